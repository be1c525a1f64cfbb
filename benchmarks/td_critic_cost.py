"""What TDCritic and RND cost per step, as multiples of the same stack without them.

    python benchmarks/td_critic_cost.py

Stacks run in turns within one process on one torch thread; the least time of several rounds
counts. "ADOPS, critic of zeros" is the clamp with an answer from memory: what TDCritic adds to it
is its network passes, its replay and its gradient steps.
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
    return gym.make("CartPole-v1")


def stacks(make: Callable[[], Any], n: int) -> dict[str, Any]:
    def base() -> Any:
        return SyncVectorEnv([make] * n, autoreset_mode=AutoresetMode.SAME_STEP)

    def nothing(obs: Any, action: Any, next_obs: Any) -> Any:
        return np.zeros(n)

    space = base().single_observation_space
    actions = base().single_action_space
    zeros = np.zeros(n)
    return {
        "no shaping": NoShapingWrapper(IntrinsicRewardWrapper(base(), nothing)),
        "ADOPS, critic of zeros": ADOPSWrapper(
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
    envs = stacks(make, n)
    actions = np.zeros(n, dtype=np.int64)
    best = dict.fromkeys(envs, float("inf"))
    for env in envs.values():
        env.reset(seed=0)
        for _ in range(max(steps, 300 // n)):
            env.step(actions)
    for _ in range(rounds):
        for name, env in envs.items():
            start = time.perf_counter()
            for _ in range(steps):
                env.step(actions)
            best[name] = min(best[name], (time.perf_counter() - start) / steps)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=128, help="vector steps per round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = {
        "CartPole, 1 env": (cart_pole, 1, args.steps),
        "CartPole, 8 envs": (cart_pole, 8, args.steps),
        "CartPole, 64 envs": (cart_pole, 64, args.steps),
        "84×84×4 images, 8 envs": (Images, 8, max(1, args.steps // 4)),
    }
    found = {
        title: measure(make, n, steps, args.rounds) for title, (make, n, steps) in settings.items()
    }
    print("Time of a vector step, as a multiple of the same stack without shaping\n")
    print("| stack | " + " | ".join(settings) + " |\n| --- |" + " ---: |" * len(settings))
    for name in next(iter(found.values())):
        cells = [
            f"{times[name] / times['no shaping']:.2f}x ({1e6 * times[name]:.0f} us)"
            for times in found.values()
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
