"""What more ranks buy: throughput of 1 and 2 ranks here, and a model for up to 64 GPUs.

    python benchmarks/scaling.py > table.md          # measures some minutes, prints Markdown
    python benchmarks/scaling.py --no-measure --gpu-tflops 20    # the model with your figures

Measured: steps per second of train/ppo_rnd.py with one and two ranks in alternated runs, the time
of one all-reduce of its gradients, and emulator steps per second of one core. Counted: gradient
bytes and operations per row. Assumed: all that belongs to a GPU cluster; each is a flag.
"""

from __future__ import annotations

import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import tyro
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "train"))

import ppo_rnd  # noqa: E402

IMAGE, FRAME, ACTIONS = (84, 84, 4), (84, 84, 1), 18


@dataclass
class Settings:
    """Settings of the benchmark; those from `gpu_tflops` on are the model's assumptions."""

    measure: bool = True
    """run ppo_rnd.py and the all-reduce here; otherwise print the model alone"""
    repetitions: int = 2
    """alternated runs of each variant"""
    iterations: int = 4
    """measured iterations of each run"""
    env_steps_per_core: float = 1_600.0
    """emulator steps per second of one CPU core; replaced by what is measured"""

    gpu_tflops: float = 8.0
    """sustained on these convolutions, float32 with TF32 products"""
    cores_per_gpu: int = 8
    """CPU cores that step the envs of one GPU"""
    step_ms: float = 2.0
    """launching the kernels of one vector step: policy, target and predictor, and two copies"""
    minibatch_ms: float = 6.0
    """launching the kernels of one minibatch: both passes, clipping, Adam"""
    node_gb_per_s: float = 100.0
    """all-reduce bandwidth among the 8 GPUs of a node"""
    network_gb_per_s: float = 20.0
    """all-reduce bandwidth between nodes"""
    hop_us: float = 10.0
    """latency of one step of an all-reduce"""
    gather_gb_per_s: float = 1.0
    """bandwidth at which the statistics of all ranks reach each of them, pickling included"""

    worker: bool = False
    """internal: one rank of the all-reduce measurement"""


class Costs(NamedTuple):
    """What does not depend on the machine: operations per row and bytes."""

    forward_flops: float
    """one row of the rollout: policy, target and predictor"""
    agent_flops: float
    """one row of one epoch, gradient included"""
    predictor_flops: float
    """one row of one epoch that trains the predictor, gradient included"""
    gradient_bytes: int


def count_flops(module: torch.nn.Module, inputs: torch.Tensor, backward: bool) -> float:
    """Return the operations per row of a pass, with its gradient if asked."""
    with FlopCounterMode(display=False) as counter:
        outputs = module(inputs)
        if backward:
            sum(o.sum() for o in (outputs if isinstance(outputs, tuple) else (outputs,))).backward()
    return counter.get_total_flops() / len(inputs)


def count_costs() -> Costs:
    """Count operations and bytes of the networks for Atari."""
    agent = ppo_rnd.Agent(IMAGE, ACTIONS, 64)
    target, predictor = ppo_rnd.make_rnd_networks(FRAME, 64)
    image, frame = torch.rand(2, *IMAGE), torch.rand(2, *FRAME)
    trained = [*agent.parameters(), *predictor.parameters()]
    return Costs(
        count_flops(agent, image, False)
        + count_flops(target, frame, False)
        + count_flops(predictor, frame, False),
        count_flops(agent, image, True),
        count_flops(predictor, frame, True),
        sum(4 * p.numel() for p in trained),
    )


# Model


class Iteration(NamedTuple):
    """Seconds of one iteration, by part."""

    env: float
    forward: float
    update: float
    all_reduce: float
    statistics: float


def largest_share(rows: int, ranks: int, minibatches: int) -> float:
    """Return how much larger the largest rank's part of a minibatch is than the mean part.

    Minibatches are drawn from all rows, so that a run on K ranks is the run on one; the parts
    then differ by chance. Normal approximation of the hypergeometric distribution, and of the
    largest of K values.
    """
    if ranks == 1:
        return 1.0
    mean = rows / minibatches / ranks
    # A part alone has the factor 1 - 1/K here; that all parts add up to the minibatch undoes it.
    deviation = math.sqrt(mean * (1 - 1 / minibatches))
    # Blom's approximation of the expected maximum of K standard normal values.
    z = statistics.NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    return 1.0 + z * deviation / mean


def all_reduce_seconds(settings: Settings, gigabytes: float, ranks: int) -> float:
    """Return the time of one ring all-reduce, its slowest link deciding."""
    if ranks == 1:
        return 0.0
    bandwidth = settings.node_gb_per_s if ranks <= 8 else settings.network_gb_per_s
    hops = 2 * math.ceil(math.log2(ranks))
    return 2 * (ranks - 1) / ranks * gigabytes / bandwidth + hops * settings.hop_us * 1e-6


def model(settings: Settings, costs: Costs, envs: int, ranks: int) -> Iteration:
    """Return the cost of one iteration of the paper's settings at so many envs and ranks."""
    args = ppo_rnd.Args(num_envs=envs)
    own, rows = envs / ranks, envs * args.num_steps
    flops = settings.gpu_tflops * 1e12
    minibatches = args.update_epochs * args.num_minibatches
    share = min(1.0, 32 / envs)
    per_row = costs.agent_flops + share * costs.predictor_flops
    largest = largest_share(rows, ranks, args.num_minibatches)
    return Iteration(
        env=args.num_steps * own / (settings.cores_per_gpu * settings.env_steps_per_core),
        forward=args.num_steps * (settings.step_ms * 1e-3 + own * costs.forward_flops / flops),
        update=minibatches * settings.minibatch_ms * 1e-3
        + args.update_epochs * rows / ranks * largest * per_row / flops,
        all_reduce=minibatches * all_reduce_seconds(settings, costs.gradient_bytes / 1e9, ranks),
        # Eleven float64 of each row: both streams of four arrays, and three single ones.
        statistics=0.0 if ranks == 1 else rows * 11 * 8 / 1e9 / settings.gather_gb_per_s,
    )


def model_table(settings: Settings, costs: Costs) -> str:
    """Return the model as a Markdown table."""
    lines = [
        "| envs | GPUs | env | forward | update | all-reduce | statistics | s/iteration | steps/s "
        "| of ideal |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for envs in (32, 128, 512, 1024):
        alone = sum(model(settings, costs, envs, 1))
        for ranks in (1, 8, 16, 32, 64):
            if envs % ranks:
                continue
            parts = model(settings, costs, envs, ranks)
            total = sum(parts)
            cells = " | ".join(f"{part:.3f}" for part in parts)
            lines.append(
                f"| {envs} | {ranks} | {cells} | {total:.2f} | {envs * 128 / total:,.0f} | "
                f"{100 * alone / total / ranks:.0f} % |"
            )
    return "\n".join(lines)


# Measurements


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


def emulator_steps_per_core() -> float:
    """Return how many vector-env steps one core makes in a second, best of three."""
    args = ppo_rnd.Args(num_envs=8, env_kwargs='{"num_threads": 1}')
    envs = ppo_rnd.make_vector_env(args, ppo_rnd.env_kind(args.env_id))
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    best = 0.0
    for _ in range(3):
        started = time.perf_counter()
        for _ in range(100):
            envs.step(rng.integers(0, ACTIONS, args.num_envs))
        best = max(best, 100 * args.num_envs / (time.perf_counter() - started))
    envs.close()
    return best


def main(settings: Settings) -> None:
    """Measure, reckon, print."""
    if settings.worker:
        all_reduce_worker()
        return
    if settings.measure:
        settings.env_steps_per_core = emulator_steps_per_core()
        load = os.getloadavg()[0]
        print(f"Measured on {os.cpu_count()} CPU cores at a load of {load:.1f}, torch")
        print(f"{torch.__version__}, gloo; medians of {settings.repetitions} alternated runs of")
        print(f"{settings.iterations} iterations.\n")
        print(throughput_table(settings), "\n", sep="")
        print("One all-reduce between two ranks:\n")
        print(all_reduce_table(), "\n", sep="")
    costs = count_costs()
    print("Model of one iteration (128 steps, 4 epochs × 4 minibatches), seconds:\n")
    print(model_table(settings, costs), "\n", sep="")
    print(
        f"Counted: {costs.gradient_bytes / 1e6:.1f} MB of gradients; "
        f"{costs.forward_flops / 1e6:.0f}, {costs.agent_flops / 1e6:.0f} and "
        f"{costs.predictor_flops / 1e6:.0f} Mflop per row of rollout, agent and predictor."
    )
    origin = "measured" if settings.measure else "assumed"
    print(
        f"Emulator: {settings.env_steps_per_core:,.0f} steps/s per core ({origin}). Assumed: "
        f"{settings.gpu_tflops:g} Tflop/s and {settings.cores_per_gpu} cores per GPU, "
        f"{settings.step_ms:g} ms per vector step and {settings.minibatch_ms:g} ms per minibatch "
        f"of kernel launches, all-reduce at {settings.node_gb_per_s:g} GB/s in a node of 8 and "
        f"{settings.network_gb_per_s:g} GB/s beyond, {settings.hop_us:g} µs per hop, statistics "
        f"gathered at {settings.gather_gb_per_s:g} GB/s."
    )


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
