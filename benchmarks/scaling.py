"""What more ranks buy on this machine: throughput of 1 and 2 ranks, and the cost of an all-reduce.

    python benchmarks/scaling.py > table.md          # a few minutes; prints Markdown

Measured: steps per second of train/ppo_rnd.py with one and two ranks in alternated runs, and the
time of one all-reduce of its gradients.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import tyro

from train import ppo_rnd

ROOT = Path(__file__).parents[1]

IMAGE, FRAME, ACTIONS = (84, 84, 4), (84, 84, 1), 18


@dataclass
class Settings:
    """Settings of the benchmark."""

    repetitions: int = 2
    """alternated runs of each variant"""
    iterations: int = 4
    """measured iterations of each run"""
    worker: bool = False
    """internal: one rank of the all-reduce measurement"""


class Variant(NamedTuple):
    """One way to run a workload on this machine."""

    workload: str
    ranks: int
    threads: int
    flags: tuple[str, ...]


def variants() -> list[Variant]:
    """Return the runs to compare: the same envs on one core, two threads and two ranks."""
    workloads = {
        "MiniGrid-DoorKey-8x8, 32 envs": ("--env-id", "MiniGrid-DoorKey-8x8-v0"),
        "Montezuma, 8 envs × 32 steps": ("--num-envs", "8", "--num-steps", "32"),
    }
    return [
        Variant(name, ranks, threads, flags)
        for name, flags in workloads.items()
        for ranks, threads in ((1, 1), (1, 2), (2, 1))
    ]


def launch(ranks: int, script: Path, flags: list[str]) -> str:
    """Run a script on some ranks and return what it printed."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *(torchrun if ranks > 1 else []), str(script), *flags]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def run(variant: Variant, iterations: int) -> list[dict[str, float]]:
    """Train for some iterations and return the rows of metrics.csv but the first."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [
            *("--run-dir", f"{folder}/run", "--total-iterations", str(iterations + 1)),
            *("--obs-norm-init-iterations", "1", "--checkpoint-every", "0", "--no-tensorboard"),
            *("--torch-threads", str(variant.threads), "--no-cuda", *variant.flags),
        ]
        launch(variant.ranks, ROOT / "train" / "ppo_rnd.py", flags)
        with Path(folder, "run", "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))[1:]
    return [{key: float(value or "nan") for key, value in row.items()} for row in rows]


def throughput_table(settings: Settings) -> str:
    """Measure all variants in alternation and return a Markdown table."""
    rows: dict[Variant, list[dict[str, float]]] = {variant: [] for variant in variants()}
    for repetition in range(settings.repetitions):
        for variant in list(rows)[:: 1 if repetition % 2 == 0 else -1]:
            rows[variant] += run(variant, settings.iterations)
            print(f"repetition {repetition + 1}, {variant[:3]}", file=sys.stderr, flush=True)
    lines = [
        "| workload | ranks | threads each | steps/s | best | ratio | rollout | update |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    base = 1.0
    for variant, seen in rows.items():
        speed = statistics.median(row["charts/SPS"] for row in seen)
        if (variant.ranks, variant.threads) == (1, 1):
            base = speed
        phases = ("time/env", "time/forward", "time/bonus")
        rollout = statistics.median(sum(row[phase] for phase in phases) for row in seen)
        update = statistics.median(row["time/update"] for row in seen)
        lines.append(
            f"| {variant.workload} | {variant.ranks} | {variant.threads} | {speed:,.0f} | "
            f"{max(row['charts/SPS'] for row in seen):,.0f} | {speed / base:.2f}× | "
            f"{rollout:.2f} s | {update:.2f} s |"
        )
    return "\n".join(lines)


def all_reduce_worker() -> None:
    """Time all-reduces of the two networks' gradients; rank 0 prints them as JSON."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    small = ppo_rnd.Agent((147,), 7, 64), ppo_rnd.make_rnd_networks((147,), 64)[1]
    large = ppo_rnd.Agent(IMAGE, ACTIONS, 64), ppo_rnd.make_rnd_networks(FRAME, 64)[1]
    found = {}
    for name, networks in (("MiniGrid", small), ("Atari", large)):
        size = sum(p.numel() for network in networks for p in network.parameters())
        vector, times = torch.zeros(size), []
        for _ in range(60):
            dist.barrier()
            started = time.perf_counter()
            dist.all_reduce(vector)
            times.append(time.perf_counter() - started)
        found[name] = [4 * size, statistics.median(times[10:]), min(times[10:])]
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def all_reduce_table() -> str:
    """Measure all-reduces of two gloo ranks on this machine."""
    found = json.loads(launch(2, Path(__file__), ["--worker"]).splitlines()[-1])
    lines = ["| gradients of | MB | median | best |", "| --- | --- | --- | --- |"]
    for name, (size, median, best) in found.items():
        lines.append(
            f"| {name} networks | {size / 1e6:.2f} | {1e3 * median:.2f} ms | {1e3 * best:.2f} ms |"
        )
    return "\n".join(lines)


def main(settings: Settings) -> None:
    """Measure and print."""
    if settings.worker:
        all_reduce_worker()
        return
    load = os.getloadavg()[0]
    print(f"Measured on {os.cpu_count()} CPU cores at a load of {load:.1f}, torch")
    print(f"{torch.__version__}, gloo; medians of {settings.repetitions} alternated runs of")
    print(f"{settings.iterations} iterations.\n")
    print(throughput_table(settings), "\n", sep="")
    print("One all-reduce between two ranks:\n")
    print(all_reduce_table())


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
