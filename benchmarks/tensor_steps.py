"""What a vector step costs where the env's rewards are tensors.

    python benchmarks/tensor_steps.py            # launches and waits, on the simulated GPU
    python benchmarks/tensor_steps.py --time     # 4,096 rows on the CPU: torch against NumPy

The env gives out slices of tensors, the critic returns stored ones: what is counted is the
wrapper's own. Counts are exact; times on a real GPU need one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from adops_wrappers import CriticHandle, make_shaping
from benchmarks.wrapper_overhead import StillVectorEnv
from tests.device import simulated_gpu
from tests.device.commands import RUN
from tests.vector.tensor_world import TensorWorld

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "pies": ("pies", {}),
    "pbim": ("pbim", {"gamma": 0.99}),
    "grm": ("grm", {"gamma": 0.99}),
    "pbrs": ("pbrs", {"gamma": 0.99, "potential": lambda obs, t: obs[:, 0]}),
    "adops": ("adops", {}),
    "adopes": ("adopes", {}),
    "adops-gated": ("adops-gated", {}),
    "guarded": ("guarded", {}),
}
KINDS = {
    "final observations at every step": {"final_obs": True},
    "none reported": {"final_obs": False},
    "NEXT_STEP": {"mode": AutoresetMode.NEXT_STEP, "final_obs": False},
}


def stack(method: str, env: Any, values: Any) -> Any:
    """Put a method above an env, with a critic that returns stored values."""
    name, settings = METHODS[method]
    return make_shaping(name, env, CriticHandle(lambda obs: (values, values)), **settings)


def work_per_step(method: str, kind: dict[str, Any], steps: int = 40) -> simulated_gpu.Counts:
    """Count what the wrapper adds to a step of the bare env, on average over some steps."""
    world = TensorWorld(64, device="cuda", **kind)
    env = stack(method, world, torch.zeros(64, device="cuda"))
    actions = torch.zeros(64, dtype=torch.int64, device="cuda")
    for one in (env, world):
        one.reset(seed=0)
        one.step(actions)
    with simulated_gpu.counting() as counts:
        for _ in range(steps):
            env.step(actions)
    wrapped = counts.copy()
    with simulated_gpu.counting() as counts:
        for _ in range(steps):
            world.step(actions)
    return wrapped - counts


def print_work(steps: int = 40) -> None:
    print("| method | " + " | ".join(f"{kind}: launches | waits" for kind in KINDS) + " |")
    print("| --- |" + " ---: |" * 2 * len(KINDS))
    for method in METHODS:
        cells = []
        for kind in KINDS.values():
            work = work_per_step(method, kind, steps)
            waits = work.syncs + work.downloads + work.uploads
            cells += [f"{work.launches / steps:.1f}", f"{waits / steps:.2g}"]
        print(f"| {method} | {' | '.join(cells)} |")


def seconds(env: Any, actions: Any, steps: int = 5) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        env.step(actions)
    return (time.perf_counter() - start) / steps


def print_times(rows: int, rounds: int) -> None:
    print(f"A step of {rows:,} rows on the CPU: torch (one thread) against NumPy")
    print(f"(the least of {rounds} rounds)\n")
    print("| method | NumPy | torch | ratio |\n| --- | ---: | ---: | ---: |")
    torch.set_num_threads(1)
    for method in METHODS:
        arrays = stack(method, StillVectorEnv(rows), np.zeros(rows))
        world = TensorWorld(rows, mode=AutoresetMode.NEXT_STEP, final_obs=False)
        tensors = stack(method, world, torch.zeros(rows))
        sides = [(arrays, np.zeros(rows, np.int64)), (tensors, torch.zeros(rows))]
        for env, actions in sides:
            env.reset(seed=0)
            seconds(env, actions)
        times = [[seconds(env, actions) for env, actions in sides] for _ in range(rounds)]
        # Other work on the machine only adds time.
        arrays_take, tensors_take = (min(column) for column in zip(*times, strict=True))
        cells = [f"{taken * 1e6:.0f} us" for taken in (arrays_take, tensors_take)]
        print(f"| {method} | {' | '.join(cells)} | {tensors_take / arrays_take:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--time", action="store_true", help="time the CPU instead of counting")
    parser.add_argument("--rows", type=int, default=4096, help="rows that are timed")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of timing")
    settings = parser.parse_args()
    if settings.time:
        print_times(settings.rows, settings.rounds)
    elif not simulated_gpu.active():
        reason = simulated_gpu.unavailable()
        if reason:
            sys.exit(f"error: {reason}.")
        os.execv(sys.executable, [sys.executable, str(RUN), *sys.argv])
    else:
        print_work()
