"""What TDCritic and RND cost, as multiples of the same stack and the same PPO without them.

    python benchmarks/td_critic_cost.py           # a vector step
    python benchmarks/td_critic_cost.py --ppo     # whole runs of Stable-Baselines3's PPO

Stacks and runs take turns within one process on one torch thread. What counts is the CPU time of
the process, which other processes change little, and the median over the rounds. "ADOPS, critic
of zeros" is the clamp with an answer from memory: what TDCritic adds to it is its network passes,
its replay and its gradient steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper, NoShapingWrapper, TDCritic
from adops_wrappers.intrinsic.rnd import RND

CART_POLE = "CartPole-v1"
RAW, ZEROS = "no shaping", "ADOPS, critic of zeros"


class Images(gym.Env[Any, Any]):
    """Random 84×84 pictures in stacks of four: Atari's observations without the emulator."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.action_space = gym.spaces.Discrete(2)
        self.frames = np.random.default_rng(0).integers(0, 255, (8, 4, 84, 84)).astype(np.uint8)
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.frames[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.frames[self.t % 8], 0.0, self.t % 200 == 0, False, {}


def cart_pole() -> Any:
    return gym.make(CART_POLE)


def stacks(make: Callable[[], Any], n: int) -> dict[str, Any]:
    def base() -> Any:
        return SyncVectorEnv([make] * n, autoreset_mode=AutoresetMode.SAME_STEP)

    def nothing(obs: Any, action: Any, next_obs: Any) -> Any:
        return np.zeros(n)

    space = base().single_observation_space
    actions = base().single_action_space
    zeros = np.zeros(n)
    return {
        RAW: NoShapingWrapper(IntrinsicRewardWrapper(base(), nothing)),
        ZEROS: ADOPSWrapper(
            IntrinsicRewardWrapper(base(), nothing), lambda obs: (zeros[: len(obs)],) * 2
        ),
        "ADOPS, TDCritic": ADOPSWrapper(
            IntrinsicRewardWrapper(base(), nothing), TDCritic(space, seed=0)
        ),
        "ADOPS, TDCritic with Q_E": ADOPSWrapper(
            IntrinsicRewardWrapper(base(), nothing), TDCritic(space, action_space=actions, seed=0)
        ),
        "no shaping, RND": NoShapingWrapper(IntrinsicRewardWrapper(base(), RND(space, seed=0))),
    }


def measure(make: Callable[[], Any], n: int, steps: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of a vector step of each stack, with random actions."""
    envs = stacks(make, n)
    chance = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in envs}
    for env in envs.values():
        env.reset(seed=0)
        for _ in range(max(steps, 600 // n)):
            env.step(chance.integers(0, 2, n))
    for _ in range(rounds):
        actions = chance.integers(0, 2, (steps, n))
        for name, env in envs.items():
            start = time.process_time()
            for action in actions:
                env.step(action)
            times[name].append((time.process_time() - start) / steps)
    return {name: float(np.median(found)) for name, found in times.items()}


def steps_table(rounds: int, steps: int) -> None:
    """Print the time of a vector step."""
    settings = {
        **{f"CartPole, {n} env{'s' * (n > 1)}": (cart_pole, n, steps) for n in (1, 8, 16, 64)},
        "84×84×4 images, 8 envs": (Images, 8, steps),
    }
    found = {
        title: measure(make, n, k, max(2, rounds // 5) if make is Images else rounds)
        for title, (make, n, k) in settings.items()
    }
    print("Time of a vector step, as a multiple of ADOPS with a critic of zeros\n")
    print("| stack | " + " | ".join(settings) + " |\n| --- |" + " ---: |" * len(settings))
    for name in next(iter(found.values())):
        cells = [
            f"{times[name] / times[ZEROS]:.2f}× ({1e6 * times[name]:.0f} µs)"
            for times in found.values()
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


def ppo(env_id: str, n: int, name: str) -> Any:
    """Return SB3's PPO with the settings of examples/sb3_ppo.py on one of the stacks."""
    from stable_baselines3 import PPO

    from adops_wrappers.sb3 import SB3VecEnv

    mode = AutoresetMode.SAME_STEP
    env: Any = (
        SyncVectorEnv([cart_pole] * n, autoreset_mode=mode)
        if env_id == CART_POLE
        else gym.make_vec(env_id, num_envs=n, autoreset_mode=mode)
    )
    space, zeros = env.single_observation_space, np.zeros(n)
    env = IntrinsicRewardWrapper(env, lambda obs, action, next_obs: zeros)
    if name == RAW:
        env = NoShapingWrapper(env)
    else:
        critic: Any = lambda obs: (zeros[: len(obs)],) * 2  # noqa: E731
        env = ADOPSWrapper(env, critic if name == ZEROS else TDCritic(space, seed=0), gamma=0.99)
    return PPO(
        "MlpPolicy",
        SB3VecEnv(env),
        n_steps=64,
        batch_size=16 * n,
        n_epochs=4,
        learning_rate=1e-3,
        seed=0,
        device="cpu",
    )


def ppo_table(rounds: int) -> None:
    """Print the time of whole iterations of PPO: rollout and optimisation."""
    counts = (1, 16, 64)
    print("Time of a run of SB3's PPO, as a multiple of the same run without shaping\n")
    print("| stack | env | " + " | ".join(f"{n} envs" for n in counts) + " |")
    print("| --- | --- |" + " ---: |" * len(counts))
    for env_id in (CART_POLE, "adops/LoopFarm-v0"):
        names = (RAW, ZEROS, "ADOPS, TDCritic")
        cells: dict[str, list[str]] = {name: [] for name in names}
        for n in counts:
            models = {name: ppo(env_id, n, name) for name in names}
            times: dict[str, list[float]] = {name: [] for name in names}
            iterations = 8 if n == 1 else 2
            for round_ in range(rounds + 2):
                for name, model in models.items():
                    start = time.process_time()
                    model.learn(64 * n * iterations, reset_num_timesteps=False)
                    if round_ >= 2:
                        times[name].append(time.process_time() - start)
            for name in names:
                ratio = np.median(np.divide(times[name], times[RAW]))
                micro = 1e6 * np.median(times[name]) / (64 * iterations)
                cells[name].append(f"{ratio:.2f}× ({micro:.0f} µs)")
        for name in names:
            print(f"| {name} | {env_id} | " + " | ".join(cells[name]) + " |", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--steps",
        type=int,
        default=64,
        help="vector steps per round: a multiple of 64, after which TDCritic learns",
    )
    parser.add_argument("--ppo", action="store_true", help="whole runs of PPO, not vector steps")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.ppo:
        ppo_table(args.rounds)
    else:
        steps_table(args.rounds, args.steps)


if __name__ == "__main__":
    main()
