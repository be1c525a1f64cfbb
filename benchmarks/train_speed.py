"""Steps per second of train/ppo_rnd.py by method, where the time goes, and the limit it approaches.

    python benchmarks/train_speed.py --methods none adops pbim --repetitions 3

Every repetition runs all methods one after the other, so that drift in machine load affects them
equally. The first iteration of each run is left out.
"""

from __future__ import annotations

import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import env_kind, make_vector_env

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "train"))

import ppo_rnd  # noqa: E402

PHASES = ("time/env", "time/forward", "time/bonus", "time/update")


@dataclass
class Settings:
    """Settings of the benchmark."""

    methods: tuple[str, ...] = ("none", "adops", "adopes", "pies", "pbim", "grm")
    """methods to compare; the first one is the baseline"""
    repetitions: int = 2
    """number of runs of each method"""
    iterations: int = 3
    """number of measured iterations of each run"""
    flags: str = ""
    """further flags of ppo_rnd.py, as in --flags="--update-proportion 0.25" """
    limit: bool = True
    """also estimate the physical limit"""


def run(method: str, settings: Settings) -> list[dict[str, float]]:
    """Train for a few iterations and return all rows of metrics.csv but the first."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, str(ROOT / "train" / "ppo_rnd.py"), "--shaping", method),
            *("--run-dir", f"{folder}/run", "--total-iterations", str(settings.iterations + 1)),
            *("--obs-norm-init-iterations", "1", "--checkpoint-every", "0", "--no-tensorboard"),
            *settings.flags.split(),
        ]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        result = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        if result.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
        with Path(folder, "run", "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))[1:]
    return [{key: float(value or "nan") for key, value in row.items()} for row in rows]


def best_sgemm() -> float:
    """Return the speed of the fastest float32 matrix product, in operations per second."""
    best = 0.0
    for size in (512, 1024, 2048):
        a, b = torch.rand(size, size), torch.rand(size, size)
        for _ in range(5):
            started = time.perf_counter()
            a @ b
            best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


def count_flops(module: torch.nn.Module, inputs: torch.Tensor, backward: bool) -> float:
    """Return the operations per row of a forward pass, optionally with its backward pass."""
    with FlopCounterMode(display=False) as counter:
        outputs = module(inputs)
        if backward:
            sum(o.sum() for o in (outputs if isinstance(outputs, tuple) else (outputs,))).backward()
    return counter.get_total_flops() / len(inputs)


def physical_limit(args: Any) -> tuple[float, float, float]:
    """Return the shortest time of an iteration, its operations and the time in the envs."""
    kind = env_kind(args.env_id)
    envs = make_vector_env(args, kind, args.num_envs)
    encoder = Encoder(envs.single_observation_space, kind, torch.device("cpu"))
    agent = ppo_rnd.Agent(encoder.shape, int(envs.single_action_space.n), args.mlp_hidden)
    target, predictor = ppo_rnd.make_rnd_networks(encoder.rnd_shape, args.mlp_hidden)
    images, frames = torch.rand(8, *encoder.shape), torch.rand(8, *encoder.rnd_shape)
    share = args.update_proportion or min(1.0, 32 / args.num_envs)
    per_row = count_flops(agent, images, backward=False) + args.update_epochs * count_flops(
        agent, images, backward=True
    )
    if args.bonus == "rnd":
        per_row += (
            count_flops(target, frames, backward=False)
            + count_flops(predictor, frames, backward=False)
            + args.update_epochs * share * count_flops(predictor, frames, backward=True)
        )
    operations = per_row * args.num_envs * args.num_steps
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    started = time.perf_counter()
    for _ in range(args.num_steps):
        envs.step(rng.integers(0, envs.single_action_space.n, args.num_envs))
    env_seconds = time.perf_counter() - started
    envs.close()
    return operations / best_sgemm() + env_seconds, operations, env_seconds


def main(settings: Settings) -> None:
    """Run, compare, print."""
    args = ppo_rnd.parse_args(settings.flags.split())
    batch = args.num_envs * args.num_steps
    rows: dict[str, list[dict[str, float]]] = {method: [] for method in settings.methods}
    for repetition in range(settings.repetitions):
        order = settings.methods if repetition % 2 == 0 else settings.methods[::-1]
        for method in order:
            rows[method] += run(method, settings)
            print(f"repetition {repetition + 1}, {method}", file=sys.stderr, flush=True)

    def median(method: str, *columns: str) -> float:
        return statistics.median(sum(row[c] for c in columns) for row in rows[method])

    base = settings.methods[0]
    print(f"{args.env_id}, {args.num_envs} envs x {args.num_steps} steps, {settings.flags}")
    print(f"{torch.get_num_threads()} torch threads, {settings.repetitions} alternated runs,")
    print(f"medians over {len(rows[base])} iterations\n")
    print("| method | steps/s | best | env | forward | bonus | update | rollout cost |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rollout = PHASES[:3]
    total = sum(median(base, phase) for phase in PHASES)
    for method in settings.methods:
        speeds = [row["charts/SPS"] for row in rows[method]]
        phases = " | ".join(f"{median(method, phase):.2f} s" for phase in PHASES)
        extra = (median(method, *rollout) - median(base, *rollout)) / total
        print(
            f"| {method} | {statistics.median(speeds):.0f} | {max(speeds):.0f} | {phases} | "
            f"{100 * extra:+.1f} % |"
        )
    print(
        f"\nrollout cost: time that the method adds to the rollout of {base}, as a share of its "
        "iteration; the update does the same work for all."
    )
    if settings.limit:
        seconds, operations, env_seconds = physical_limit(args)
        print(
            f"limit: {operations / 1e12:.2f} Tflop at the best sgemm measured and {env_seconds:.2f}"
            f" s of env make {seconds:.1f} s or {batch / seconds:.0f} steps/s;"
        )
        for method in settings.methods:
            speed = statistics.median(row["charts/SPS"] for row in rows[method])
            print(f"{method} reaches {100 * speed * seconds / batch:.0f} % of it")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
