"""The plan of a sweep: checks before anything starts, open cells, and the resources they need."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces.utils import flatdim

from adops_wrappers._files import read_json, write_json
from adops_wrappers.methods import METHODS
from adops_wrappers.training.args import FREE_ON_RESUME
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import env_kind, make_env, ram_game, require_discrete
from adops_wrappers.training.exit import fail
from adops_wrappers.training.run import disk_needed
from adops_wrappers.training.rundir import Held, Lock, read_config
from research.design import Cell
from research.sweeping.processes import CellProgress, Result, read_progress
from train import ppo_rnd

GPU_STEPS_PER_SECOND = 30_000 * 32 * 128 / (30 * 3600)
"""The paper's 30 GPU-hours for 30,000 iterations on Atari."""
CPU_STEPS_PER_SECOND = {
    "atari": 100.0,
    "atari from RAM": 1_500.0,
    "minigrid": 2_000.0,
    "gallery": 25_000.0,
    "other": 3_000.0,
}
"""One thread of a CPU, by kind of env: an order of magnitude. The gallery's envs are tables."""


@dataclass
class Plan:
    """What a sweep will do, and what it will need."""

    root: Path
    cells: list[Cell]
    args: dict[str, ppo_rnd.Args]
    """The full settings of each cell, by name."""
    progress: dict[str, CellProgress]
    bytes_per_run: dict[str, int]
    sps: float
    sps_source: str

    @property
    def open(self) -> list[Cell]:
        """Cells that are not finished."""
        return [c for c in self.cells if self.progress[c.name].state != "finished"]

    def finished(self) -> dict[str, Result]:
        """Return the results of the cells that are not open."""
        names = {cell.name for cell in self.cells} - {cell.name for cell in self.open}
        return dict.fromkeys(names, Result("finished"))

    def hours(self, cell: Cell) -> float:
        """Return the hours that a cell still needs."""
        return steps_left(self.args[cell.name], self.progress[cell.name]) / self.sps / 3600

    def bytes_left(self) -> int:
        """Return the disk space that the open cells still need."""
        return sum(max(0, self.bytes_missing(cell)) for cell in self.open)

    def bytes_missing(self, cell: Cell) -> int:
        """Return what a cell needs beyond what it has written."""
        return self.bytes_per_run[cell.name] - directory_size(self.root / cell.name)


def steps_left(args: ppo_rnd.Args, progress: CellProgress) -> int:
    """Return the env steps that a run still has to make."""
    return (args.total_iterations - progress.iteration) * args.num_envs * args.num_steps


def check(
    cells: Sequence[Cell], root: Path, *, ranks: int = 1, sps: float = 0.0, on_gpu: bool = False
) -> Plan:
    """Refuse cells that cannot run before any of them starts; return the plan.

    Settings go through ppo_rnd.py's own checks, the env is built once, and a run directory that
    holds a run with other settings is left alone.
    """
    twice = [name for name, count in Counter(c.name for c in cells).items() if count > 1]
    if twice:
        fail(
            f"two cells would share the run directory {twice[0]}: they differ only in settings "
            "that its name does not show. Put these settings into --grid."
        )
    checked: dict[Cell, tuple[ppo_rnd.Args, int]] = {}
    for cell in cells:
        if cell.configuration not in checked:
            own = checked_args(cell, ranks)
            checked[cell.configuration] = own, run_bytes(own)
    args = {
        c.name: dataclasses.replace(
            checked[c.configuration][0], seed=c.seed, run_dir=str(root / c.name)
        )
        for c in cells
    }
    for cell in cells:
        refuse_other_run(root / cell.name, args[cell.name])
    progress = {cell.name: read_progress(root / cell.name) for cell in cells}
    sps, source = (sps, "--sps") if sps else estimate_sps(args, progress, ranks, on_gpu)
    sizes = {cell.name: checked[cell.configuration][1] for cell in cells}
    return Plan(root, list(cells), args, progress, sizes, sps, source)


def checked_args(cell: Cell, ranks: int) -> ppo_rnd.Args:
    """Return the full settings of a cell's configuration, if they can work."""
    try:
        args = ppo_rnd.parse_args(cell.configuration.flags())
    except SystemExit as error:
        fail(f"cell {cell.name}: {str(error).removeprefix('error: ')}")
    if args.num_envs % ranks:
        fail(
            f"cell {cell.name}: num_envs={args.num_envs} cannot be split over --ranks {ranks}. "
            "Choose a multiple."
        )
    if ranks > 1 and args.bonus == "count":
        fail(f"cell {cell.name}: bonus=count keeps its counts in one process. Drop --ranks.")
    if ranks > 1 and METHODS[cell.method].one_process_only:
        fail(f"cell {cell.name}: {cell.method} learns from all envs of a process. Drop --ranks.")
    return args


def refuse_other_run(run_dir: Path, wanted: ppo_rnd.Args) -> None:
    """Stop if the directory holds a run whose learning settings are not the wanted ones."""
    path = run_dir / "config.json"
    if not path.exists():
        return
    try:
        there = read_config(run_dir)["args"]
    except (OSError, ValueError) as error:
        fail(f"{path} cannot be read ({error}). Move {run_dir} away to start this cell over.")
    different = [
        f"{name} is {there.get(name)!r} there and {value!r} here"
        for name, value in dataclasses.asdict(wanted).items()
        if name not in FREE_ON_RESUME and there.get(name) != value
    ]
    if different:
        fail(
            f"{run_dir} holds a run with other settings: {'; '.join(different)}. Choose another "
            "directory for this sweep; nothing was changed."
        )


def run_bytes(args: ppo_rnd.Args) -> int:
    """Return the disk space that one run needs, by ppo_rnd.py's own estimate."""
    kind = env_kind(args.env_id)
    try:
        env = make_env(args, kind)
    except Exception as error:
        fail(f"env_id={args.env_id} cannot be built: {error}")
    require_discrete(args.env_id, env.action_space)
    encoder = Encoder(env.observation_space, kind, torch.device("cpu"))
    actions = flatdim(env.action_space)
    modules: list[torch.nn.Module] = [ppo_rnd.Agent(encoder.shape, actions, args.mlp_hidden)]
    if args.bonus == "rnd":
        modules += ppo_rnd.make_rnd_networks(encoder.rnd_shape, args.mlp_hidden)
    env.close()
    return disk_needed(modules, args.total_iterations)


def estimate_sps(
    args: Mapping[str, ppo_rnd.Args], progress: Mapping[str, CellProgress], ranks: int, on_gpu: bool
) -> tuple[float, str]:
    """Return steps per second of one run, and where the figure comes from."""
    seen = [p.sps for p in progress.values() if p.sps > 0.0]
    if seen:
        return sum(seen) / len(seen), f"mean of {len(seen)} runs in this directory"
    kind = speed_kind(next(iter(args.values())))
    if on_gpu and kind == "atari":
        return ranks * GPU_STEPS_PER_SECOND, "assumed: the paper's 30 GPU-hours; see --sps"
    return ranks * CPU_STEPS_PER_SECOND[kind], f"assumed for {kind} on one CPU thread; see --sps"


def speed_kind(args: ppo_rnd.Args) -> str:
    """Return the kind of env by which its speed is assumed."""
    kind = env_kind(args.env_id)
    if kind == "atari":
        return "atari from RAM" if ram_game(args) else kind
    return "gallery" if args.env_id.startswith("adops/") else kind


def directory_size(path: Path) -> int:
    """Return the bytes of all files below a directory."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(folder, name)).st_size
    return total


def free_bytes(path: Path) -> int:
    """Return the free space of the disk on which a directory is or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def check_space(plan: Plan) -> None:
    """Stop before the first run if the disk cannot hold them all."""
    needed, free = plan.bytes_left(), free_bytes(plan.root)
    if needed > free:
        fail(
            f"the disk of {plan.root} has {free / 2**20:.0f} MB free and the sweep needs about "
            f"{needed / 2**20:.0f} MB more. Free some space or choose another directory; finished "
            "runs are kept."
        )


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Make the sweep's directory and lock it: two sweeps in one directory would both write it."""
    lock = Lock(root / "sweep.lock")
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock.take()
    except Held as holder:
        fail(
            f"{root} is in use by another sweep: {holder}. Wait for it, stop it, or choose "
            "another directory."
        )
    except OSError as error:
        fail(f"cannot write to {root}: {error.strerror}. Choose another directory.")
    try:
        yield
    finally:
        lock.release()


def write_cells(plan: Plan) -> None:
    """Add the cells to sweep.json, which the analysis reads."""
    path = plan.root / "sweep.json"
    known: dict[str, Any] = {}
    try:
        known = {cell["name"]: cell for cell in read_json(path)["cells"]}
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError) as error:
        fail(f"{path} cannot be read ({error}). Restore it, or move it away to start a new list.")
    for c in plan.cells:
        known[c.name] = {
            "name": c.name,
            "method": c.method,
            "seed": c.seed,
            "varied": dict(c.varied),
            "settings": dict((*c.fixed, *c.varied)),
        }
    try:
        write_json(path, {"cells": list(known.values())})
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}. Free some space; nothing was changed.")
