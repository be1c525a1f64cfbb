"""Speed of the audit and of the gallery: `python benchmarks/tabular.py`.

CPU seconds of one process; set OPENBLAS_NUM_THREADS=1 to hold numpy to one core too.
"""

from __future__ import annotations

import time

import gymnasium as gym
import numpy as np
from evidence import sweep
from gymnasium.vector import SyncVectorEnv

from adops_wrappers.envs import GALLERY_IDS
from adops_wrappers.tabular import FiniteMDP, audit, mdp_from_env

ROWS, STEPS = 64, 400


def taxi() -> None:
    """Time the audit of 500 states, import of the env's table aside."""
    mdp = mdp_from_env(gym.make("Taxi-v4"), 0.99)
    bonus = np.random.default_rng(0).normal(size=(500, 6))
    for method in ("raw", "adops", "grm"):
        fresh = FiniteMDP(mdp.transition, mdp.reward, 0.99, mdp.terminal, mdp.start)
        began = time.process_time()
        audit(fresh, bonus, method)
        print(f"Taxi, {method:<6} {time.process_time() - began:6.3f} s")


def random_mdps(count: int = 400) -> None:
    """Time the sweep of random MDPs with all its claims."""
    began = time.process_time()
    sweep(count, seed=0)
    seconds = time.process_time() - began
    print(f"sweep        {seconds / count * 4000:6.1f} s per 4000 MDPs (from {count})")


def steps_per_second(envs: gym.vector.VectorEnv, steps: int) -> float:
    """Return row-steps per CPU second with random actions."""
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(
        0, envs.single_action_space.n, (steps, envs.num_envs)
    )
    began = time.process_time()
    for row in actions:
        envs.step(row)
    return steps * envs.num_envs / (time.process_time() - began)


def gallery() -> None:
    """Compare the exact vector envs with single envs in a SyncVectorEnv."""
    for env_id in GALLERY_IDS:
        fast = steps_per_second(gym.make_vec(env_id, num_envs=ROWS), STEPS)
        slow_envs = SyncVectorEnv([lambda env_id=env_id: gym.make(env_id)] * ROWS)
        slow = steps_per_second(slow_envs, STEPS // 10)
        print(f"{env_id:<24} {fast:10,.0f} steps/s, {fast / slow:5.1f} × SyncVectorEnv")


def minizuma(rows: int = 128, rounds: int = 5) -> None:
    """Compare MiniZuma with KeyDoor, in alternated runs; the median of the ratios."""
    ids = ("adops/MiniZuma-v0", "adops/KeyDoor-v0")
    speeds = np.array(
        [
            [steps_per_second(gym.make_vec(env_id, num_envs=rows), STEPS) for env_id in ids]
            for _ in range(rounds)
        ]
    )
    speed, ratio = np.median(speeds[:, 0]), np.median(speeds[:, 0] / speeds[:, 1])
    print(f"{ids[0]:<24} {speed:10,.0f} steps/s, {ratio:5.2f} × KeyDoor, {rows} rows")


if __name__ == "__main__":
    taxi()
    gallery()
    minizuma()
    random_mdps()
