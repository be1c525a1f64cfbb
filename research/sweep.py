"""Runs a grid of methods, seeds and settings of ppo_rnd.py, here or on a SLURM cluster.

    python -m research.sweep runs/small --methods none adops pbim --seeds 1-3
        --settings env_id=adops/KeyDoorTV-v0 total_iterations=50 bonus=count
    python -m research.sweep runs/paper --paper --executor slurm --partition gpu --gpus 1

Run the same command again to continue: finished cells are skipped and unfinished ones resume from
their checkpoints. `--dry-run` prints the plan and stops. The exit code is 0 if all cells have
finished, 3 if some of these lack a checkpoint that could not be written, and 1 otherwise.

As a library: `expand` or `paper_cells` make the cells and `run` runs them. Its parts: `check`
refuses what cannot work, `hold` locks the directory, `run_local` or `run_slurm` run the cells, and
`report` says what failed.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from adops_wrappers.training.exit import fail
from research.design import Cell
from research.sweeping.cells import SHAPINGS, expand, paper_cells, read_pairs, read_seeds
from research.sweeping.display import print_plan, report
from research.sweeping.local import default_jobs, run_local, visible_gpus
from research.sweeping.plan import check, check_space, hold, write_cells
from research.sweeping.processes import read_progress
from research.sweeping.slurm import require_slurm, run_slurm


@dataclass
class RunArgs:
    """Where and how cells are run."""

    root: Annotated[str, tyro.conf.Positional]
    """directory of the sweep; each cell's run directory is made in it"""
    dry_run: bool = False
    """print the plan with estimated hours and disk, and run nothing"""
    executor: Literal["local", "slurm"] = "local"
    """local: processes on this machine; slurm: a job array through submitit"""
    jobs: int = 0
    """runs at a time; 0: local, one for each CPU core, or two for each GPU; slurm, as many as the
    cluster allows"""
    threads: int = 1
    """CPU threads of each process"""
    ranks: int = 1
    """processes (GPUs) of each run, through torchrun on one node"""
    sps: float = 0.0
    """steps per second of one run, for the estimate; 0: measured in this directory, or assumed"""
    refresh: float = 0.0
    """seconds between checks on the runs; 0: 1 here, 15 on a cluster"""

    partition: str = ""
    """slurm: partition; empty: the cluster's default"""
    hours: float = 24.0
    """slurm: time limit of one job; a run that needs longer is requeued and resumes"""
    gpus: int = 0
    """slurm: GPUs of each job; 0: a CPU job, or one GPU for each rank if ranks > 1"""
    cpus: int = 0
    """slurm: CPUs of each job; 0: threads × ranks; on GPUs one for every two emulators, up to 16"""
    mem_gb: float = 8.0
    """slurm: memory of each job"""
    signal_delay: int = 120
    """slurm: seconds before the time limit at which a run is told to write its checkpoint"""
    slurm_extra: list[str] = dataclasses.field(default_factory=list)
    """slurm: further name=value pairs for sbatch, such as account=me qos=high"""


@dataclass
class Args(RunArgs):
    """Settings of one sweep."""

    methods: list[str] = dataclasses.field(default_factory=list)
    """values of --shaping"""
    seeds: list[str] = dataclasses.field(default_factory=lambda: ["1"])
    """seeds, single (7) or as ranges (1-20)"""
    settings: list[str] = dataclasses.field(default_factory=list)
    """name=value pairs of ppo_rnd.py for every cell, such as num_envs=8"""
    grid: list[str] = dataclasses.field(default_factory=list)
    """name=value,value,... axes of the grid; methods that do not use a setting skip its axis"""
    paper: bool = False
    """run the paper's nine configurations and seeds; --settings still apply"""


def cells_of(args: Args) -> list[Cell]:
    """Return the cells that the command line asks for."""
    settings = read_pairs("--settings", args.settings)
    grid = {k: v.split(",") for k, v in read_pairs("--grid", args.grid).items()}
    twice = settings.keys() & grid.keys()
    if twice:
        fail(f"{', '.join(sorted(twice))} cannot be in both --settings and --grid.")
    if args.paper:
        if args.methods or grid or args.seeds != ["1"]:
            fail("--paper sets methods and seeds itself; drop --methods, --seeds and --grid.")
        return paper_cells(settings)
    if not args.methods:
        fail(f"choose --methods from {', '.join(SHAPINGS)}, or give --paper.")
    return expand(args.methods, read_seeds(args.seeds), settings, grid)


def check_run_args(args: RunArgs) -> None:
    """Refuse flags that cannot work, saying what is allowed."""
    for name in ("threads", "ranks"):
        if getattr(args, name) < 1:
            fail(f"--{name} must be at least 1, got {getattr(args, name)}.")
    for name in ("jobs", "cpus"):
        if getattr(args, name) < 0:
            fail(f"--{name} must not be negative, got {getattr(args, name)}.")
    bad = [pair for pair in args.slurm_extra if "=" not in pair]
    if bad:
        fail(f"--slurm-extra takes name=value, got {bad[0]!r}.")
    if args.executor == "slurm" and not args.dry_run:
        require_slurm()


def run(
    args: RunArgs, cells: Sequence[Cell], at_start: Callable[[Path], object] | None = None
) -> int:
    """Check, plan and run cells as the settings say; return the exit code.

    Args:
        args: Where and how to run them.
        cells: What to run.
        at_start: Called with the sweep's directory before the first run, once nothing is left to
            refuse; not called by a dry run.
    """
    check_run_args(args)
    root, local = Path(args.root), args.executor == "local"
    on_gpu = bool(visible_gpus() if local else args.gpus)
    plan = check(cells, root, ranks=args.ranks, sps=args.sps, on_gpu=on_gpu)
    slots = args.jobs or (default_jobs(args.threads, args.ranks) if local else len(cells))
    print_plan(plan, slots)
    if args.dry_run:
        return 0
    with hold(root):
        # Once more under the lock: another sweep may just have finished some cells.
        plan.progress = {cell.name: read_progress(root / cell.name) for cell in cells}
        check_space(plan)
        write_cells(plan)
        if at_start:
            at_start(root)
        if local:
            shape = {"threads": args.threads, "ranks": args.ranks}
            results = run_local(plan, jobs=slots, refresh=args.refresh, **shape)
        else:
            results = run_slurm(plan, args)
        return report(plan, results)


def main(argv: list[str] | None = None) -> int:
    """Run the sweep that the command line asks for."""
    args = tyro.cli(Args, args=argv, description=__doc__)
    return run(args, cells_of(args))


if __name__ == "__main__":
    sys.exit(main())
