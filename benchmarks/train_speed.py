"""Steps per second of train/ppo_rnd.py by method, where the time goes, and two limits to it.

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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import env_kind, make_vector_env
from adops_wrappers.training.run import keep_malloc_pages
from train import ppo_rnd

ROOT = Path(__file__).parents[1]

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
    """also estimate the limits: of the hardware, and of torch's kernels on it"""


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


class Kernel(NamedTuple):
    """A convolution or matrix product, all calls of an iteration together."""

    layer: str
    """The shape of the weights."""
    direction: str
    """forward, or which gradient: of the data or of the weights"""
    operations: float
    seconds: float


def shortest(call: Callable[[], object]) -> float:
    """Return the shortest time of five calls."""
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def time_kernels(network: torch.nn.Module, inputs: torch.Tensor, backward: bool) -> list[Kernel]:
    """Time the convolutions and products of one pass, each alone."""
    kernels: list[Kernel] = []

    def visit(layer: Any, args: tuple[torch.Tensor], _: torch.Tensor) -> None:
        learns = backward and layer.weight.requires_grad
        x = args[0].detach().requires_grad_(learns and args[0].requires_grad)
        with torch.set_grad_enabled(learns):
            y = layer.forward(x)
        gradient = partial(torch.autograd.grad, y, grad_outputs=y.detach(), retain_graph=True)
        calls: dict[str, Callable[[], object]] = {"forward": lambda: layer.forward(x)}
        if x.requires_grad:
            calls["data"] = lambda: gradient(inputs=x)
        if learns:
            calls["weights"] = lambda: gradient(inputs=(layer.weight, layer.bias))
        name = "×".join(str(size) for size in layer.weight.shape)
        operations = 2.0 * y.numel() * layer.weight[0].numel()
        for direction, call in calls.items():
            kernels.append(Kernel(name, direction, operations, shortest(call)))

    layers = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    hooks = [layer.register_forward_hook(visit) for layer in layers]
    network(inputs)
    for hook in hooks:
        hook.remove()
    return kernels


class Pass(NamedTuple):
    """A network's pass over some rows, as often as an iteration makes it."""

    name: str
    network: torch.nn.Module
    inputs: torch.Tensor
    backward: bool
    times: int


def passes(args: Any, encoder: Encoder, actions: int) -> list[Pass]:
    """Return all passes of an iteration."""
    agent = ppo_rnd.Agent(encoder.shape, actions, args.mlp_hidden)
    target, predictor = ppo_rnd.make_rnd_networks(encoder.rnd_shape, args.mlp_hidden)
    for network in (agent, target, predictor):
        network.to(memory_format=torch.channels_last)
    envs, updates = args.num_envs, args.update_epochs * args.num_minibatches
    rows = envs * args.num_steps // args.num_minibatches
    masked = max(1, round(rows * (args.update_proportion or min(1.0, 32 / envs))))
    look, learn = torch.rand(rows, *encoder.shape), torch.rand(rows, *encoder.rnd_shape)
    found = [
        Pass("agent, rollout", agent, look[:envs], False, args.num_steps),
        Pass("agent, update", agent, look, True, updates),
    ]
    if args.bonus == "rnd":
        found += [
            Pass("target, rollout", target, learn[:envs], False, args.num_steps),
            Pass("predictor, rollout", predictor, learn[:envs], False, args.num_steps),
            Pass("predictor, update", predictor, learn[:masked], True, updates),
        ]
    return found


class Limits(NamedTuple):
    """What bounds the speed of an iteration from above."""

    env_seconds: float
    operations: float
    sgemm: float
    """operations per second of the fastest matrix product"""
    kernels: dict[str, list[Kernel]]
    """those of each pass"""

    @property
    def hardware(self) -> float:
        """The seconds of an iteration whose products all run like the fastest one."""
        return self.env_seconds + self.operations / self.sgemm

    @property
    def kernels_alone(self) -> float:
        """The seconds of an iteration that consists of envs, convolutions and products alone."""
        kernels = [kernel for group in self.kernels.values() for kernel in group]
        return self.env_seconds + sum(kernel.seconds for kernel in kernels)


def find_limits(args: Any) -> Limits:
    """Measure the envs, the fastest matrix product and every kernel, each alone."""
    kind = env_kind(args.env_id)
    envs = make_vector_env(args, kind, args.num_envs)
    encoder = Encoder(envs.single_observation_space, kind, torch.device("cpu"))
    if args.torch_threads or not encoder.image:  # as in the run
        torch.set_num_threads(args.torch_threads or 1)
    actions = int(envs.single_action_space.n)
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    started = time.perf_counter()
    for _ in range(args.num_steps):
        envs.step(rng.integers(0, actions, args.num_envs))
    env_seconds = time.perf_counter() - started
    envs.close()
    keep_malloc_pages()
    operations, kernels = 0.0, {}
    for name, network, inputs, backward, times in passes(args, encoder, actions):
        per_row = count_flops(network, inputs[:8], backward)
        operations += per_row * len(inputs) * times
        kernels[name] = [
            kernel._replace(operations=kernel.operations * times, seconds=kernel.seconds * times)
            for kernel in time_kernels(network, inputs, backward)
        ]
    return Limits(env_seconds, operations, best_sgemm(), kernels)


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
        report(find_limits(args), batch, {m: median(m, "charts/SPS") for m in settings.methods})


def report(limits: Limits, batch: int, speeds: dict[str, float]) -> None:
    """Print both limits, how near the methods come, and how fast the kernels are."""
    print(
        f"\nlimit of the hardware: {limits.operations / 1e12:.2f} Tflop at the best sgemm measured "
        f"({limits.sgemm / 1e9:.0f} Gflop/s) and {limits.env_seconds:.2f} s of env make "
        f"{limits.hardware:.1f} s or {batch / limits.hardware:.0f} steps/s;\n"
        "limit of torch: the same envs, and each convolution or product as fast as it is alone, "
        f"make {limits.kernels_alone:.1f} s or {batch / limits.kernels_alone:.0f} steps/s;"
    )
    for method, speed in speeds.items():
        share = 100 * speed / batch
        print(
            f"{method} reaches {share * limits.hardware:.0f} % of the first and "
            f"{share * limits.kernels_alone:.0f} % of the second"
        )
    print("\nGflop/s of the kernels alone:\n")
    print("| pass | weights | seconds | forward | data | weights |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, kernels in limits.kernels.items():
        for layer in (*dict.fromkeys(k.layer for k in kernels), "all"):
            of_layer = [k for k in kernels if layer in ("all", k.layer)]
            cells = [f"{sum(k.seconds for k in of_layer):.2f}"]
            for direction in ("forward", "data", "weights"):
                some = [k for k in of_layer if k.direction == direction]
                cells.append(f"{gflops(some):.0f}" if some else "")
            print(f"| {name} | {layer} | {' | '.join(cells)} |")


def gflops(kernels: list[Kernel]) -> float:
    """Return the common speed of kernels that run one after the other."""
    return sum(k.operations for k in kernels) / sum(k.seconds for k in kernels) / 1e9


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
