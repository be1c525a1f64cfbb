"""What a vector wrapper costs per step, against Gymnasium's own vector NormalizeReward.

    python benchmarks/wrapper_overhead.py            # the table, about two minutes
    python benchmarks/wrapper_overhead.py --memory   # resident memory over 200,000 steps

All wrappers stand on the same trivial vector env and run in turns within one process; what is
compared is the time that each adds to a bare step, the least of many rounds. ADOPS and ADOPES
consult a critic that returns stored arrays; the time of asking it (copying the observation,
checking and converting the answer) is measured beside them and taken out in their second rows.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import NormalizeReward

from adops_wrappers import CriticHandle, IntrinsicRewardWrapper, make_shaping

GOAL = 1.5
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "pies": ("pies", {}),
    "pbim": ("pbim", {"gamma": 1.0}),
    "pbim-norm": ("pbim-norm", {"gamma": 1.0}),
    "grm": ("grm", {"gamma": 1.0}),
    "grm-norm": ("grm-norm", {"gamma": 1.0}),
    "grm (delay 100)": ("grm", {"gamma": 1.0, "delay": 100}),
    "pbrs": ("pbrs", {"gamma": 1.0, "potential": lambda obs, t: obs[:, 0]}),
    "adops": ("adops", {}),
    "adopes": ("adopes", {}),
    "guarded": ("guarded", {}),
}
CONSULTING = ("adops", "adopes")


class StillVectorEnv(VectorEnv[Any, Any, Any]):
    """Returns the same arrays at every step; an episode ends every `length` steps, if ever."""

    def __init__(self, num_envs: int, length: float = 200) -> None:
        self.num_envs, self.length = num_envs, length
        self.single_observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.obs = np.zeros((num_envs, 4), np.float32)
        self.rewards = np.ones(num_envs)
        self.bonus = np.random.default_rng(0).random(num_envs)
        self.steps = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.obs, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.steps += 1
        never = np.zeros(self.num_envs, dtype=np.bool_)
        ended = np.full(self.num_envs, self.steps % self.length == 0)
        return self.obs, self.rewards, ended, never, {"intrinsic_reward": self.bonus}


def build(name: str, num_envs: int, length: float = 200) -> VectorEnv[Any, Any, Any]:
    env = StillVectorEnv(num_envs, length)
    if name == "bare":
        return env
    if name == "NormalizeReward":
        return NormalizeReward(env)
    if name == "IntrinsicRewardWrapper":
        return IntrinsicRewardWrapper(env, lambda obs, action, next_obs: env.bonus)
    method, settings = METHODS[name]
    zeros = np.zeros(num_envs)
    return make_shaping(method, env, CriticHandle(lambda obs: (zeros, zeros)), **settings)


def seconds_per_step(env: VectorEnv[Any, Any, Any], steps: int) -> float:
    actions = np.zeros(env.num_envs, dtype=np.int64)
    start = time.perf_counter()
    for _ in range(steps):
        env.step(actions)
    return (time.perf_counter() - start) / steps


def seconds_per_estimate(num_envs: int, steps: int) -> float:
    zeros = np.zeros(num_envs)
    critic = CriticHandle(lambda obs: (zeros, zeros))
    observations = np.zeros((num_envs, 4), np.float32), np.ones((num_envs, 4), np.float32)
    start = time.perf_counter()
    for i in range(steps):
        critic.observations_change()  # as the wrapper says before each step
        critic.estimate(observations[i % 2], num_envs)
    return (time.perf_counter() - start) / steps


def overheads(num_envs: int, rounds: int, steps: int) -> dict[str, float]:
    names = ["bare", "NormalizeReward", "IntrinsicRewardWrapper", *METHODS]
    envs = {name: build(name, num_envs) for name in names}
    for env in envs.values():
        env.reset(seed=0)
        seconds_per_step(env, steps)
    best = dict.fromkeys(names, math.inf)
    asking = math.inf
    for _ in range(rounds):
        for name, env in envs.items():
            best[name] = min(best[name], seconds_per_step(env, steps))
        asking = min(asking, seconds_per_estimate(num_envs, steps))
    added = {name: best[name] - best["bare"] for name in names if name != "bare"}
    added.update({f"{name}, without the critic": added[name] - asking for name in CONSULTING})
    return added


def print_table(sizes: list[int], rounds: int, steps: int) -> None:
    columns = {n: overheads(n, rounds, steps) for n in sizes}
    print("Time added to a step, as a multiple of gymnasium.wrappers.vector.NormalizeReward")
    print(f"(goal without a critic: at most {GOAL}x)\n")
    print("| wrapper | " + " | ".join(f"{n:,} envs" for n in sizes) + " |")
    print("| --- |" + " ---: |" * len(sizes))
    for name in columns[sizes[0]]:
        cells = []
        for n in sizes:
            added, unit = columns[n][name], columns[n]["NormalizeReward"]
            cells.append(f"{added / unit:.2f}x ({added * 1e6:.0f} us)")
        print(f"| {name} | " + " | ".join(cells) + " |")


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise RuntimeError("This system does not report resident memory in /proc/self/status.")


def print_memory(steps: int) -> None:
    print(f"Resident memory (KiB) over {steps:,} steps of 32 envs without an episode end\n")
    print("| wrapper | after 10 % | at the end | growth |\n| --- | ---: | ---: | ---: |")
    for name in METHODS:
        env = build(name, 32, length=math.inf)
        env.reset(seed=0)
        seconds_per_step(env, steps // 10)
        before = resident_kib()
        seconds_per_step(env, steps - steps // 10)
        after = resident_kib()
        print(f"| {name} | {before:,} | {after:,} | {after - before:,} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--memory", action="store_true", help="measure memory instead of time")
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 32, 1024])
    parser.add_argument("--rounds", type=int, default=300, help="how often each wrapper is timed")
    parser.add_argument(
        "--steps",
        type=int,
        default=50,
        help="steps per round: so few that other work seldom interrupts",
    )
    parser.add_argument("--memory-steps", type=int, default=200_000)
    args = parser.parse_args()
    if args.memory:
        print_memory(args.memory_steps)
    else:
        print_table(args.envs, args.rounds, args.steps)


if __name__ == "__main__":
    main()
