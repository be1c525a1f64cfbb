"""Cells as processes of this machine, some at a time."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch

from adops_wrappers.training.exit import INCOMPLETE
from adops_wrappers.training.rundir import Held
from research.design import Cell
from research.sweeping.plan import Plan, free_bytes
from research.sweeping.processes import (
    Result,
    is_finished,
    log_tail,
    read_progress,
    refuse_held,
    start_run,
)
from research.sweeping.watching import watch


def run_local(
    plan: Plan, *, jobs: int = 0, threads: int = 1, ranks: int = 1, refresh: float = 0.0
) -> dict[str, Result]:
    """Run the open cells as processes, `jobs` at a time; return how each cell of the plan ended."""
    jobs = jobs or default_jobs(threads, ranks)
    return watch(plan, LocalRuns(plan, jobs, threads, ranks, refresh))


RUNS_PER_GPU = 2
"""While one run steps its envs, the other computes; a third would lack cores or memory."""


def default_jobs(threads: int, ranks: int) -> int:
    """Return how many runs fill the cores of this machine, or share its GPUs."""
    jobs = (os.cpu_count() or 1) // (threads * ranks)
    gpus = len(visible_gpus())
    return max(1, min(jobs, RUNS_PER_GPU * gpus // ranks) if gpus else jobs)


class LocalRuns:
    """Processes of this machine, each in a slot with its own GPUs.

    Not submitit's: it starts all jobs at once, and each in a process of its own that waits.
    """

    def __init__(self, plan: Plan, jobs: int, threads: int, ranks: int, refresh: float) -> None:
        self.plan, self.jobs, self.threads, self.ranks = plan, jobs, threads, ranks
        self.refresh = refresh
        self.results = plan.finished()
        self.left = Result("waiting", "not started")
        self.waiting = list(plan.open)
        self.running: dict[int, tuple[Cell, subprocess.Popen[bytes]]] = {}
        self.held: dict[str, str] = {}
        self.full_disk = ""
        self.asked = 0

    @property
    def pause(self) -> float:
        """Shorter while slots are filled."""
        starting = len(self.running) < self.jobs and self.waiting and not self.held
        return self.refresh or (0.05 if starting else 1.0)

    def step(self, signals: int, say: Callable[[str], None]) -> bool:
        """Collect what has ended and fill the slots; a signal asks the runs to stop."""
        self._collect(stopping=signals > 0)
        if signals > self.asked:
            self._ask_to_stop(signals)
            say("Stopping: the runs finish their iteration and write a checkpoint.")
        if not signals and not self.full_disk:
            self._fill_slots()
            if self.full_disk:
                say(self.full_disk)
                self.left = Result("waiting", self.full_disk)
        no_more = signals or self.full_disk
        return bool(self.running or (self.waiting and not no_more))

    def states(self) -> dict[str, str]:
        """Return the cells at work, and those whose directory another process uses."""
        states = {cell.name: "running" for cell, _ in self.running.values()}
        return states | {name: f"waiting for {holder}" for name, holder in self.held.items()}

    def close(self) -> None:
        """Kill what still runs: only after an error."""
        for _, process in self.running.values():
            process.kill()

    def _collect(self, stopping: bool) -> None:
        for slot, (cell, process) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[slot]
            result = end_of_run(self.plan.root / cell.name, process.returncode, stopping)
            if result.state == "waiting":
                self.waiting.append(cell)
                self.held[cell.name] = result.detail
            else:
                self.results[cell.name] = result

    def _ask_to_stop(self, count: int) -> None:
        self.asked = count
        for _, process in self.running.values():
            process.terminate() if count == 1 else process.kill()

    def _fill_slots(self) -> None:
        for slot in range(self.jobs):
            for cell in [] if slot in self.running else list(self.waiting):
                self.full_disk = no_space(self.plan, cell)
                if self.full_disk:
                    return
                try:
                    self.running[slot] = cell, self._start(cell, slot)
                except Held as holder:
                    self.held[cell.name] = str(holder)
                    continue
                except OSError as error:
                    self.results[cell.name] = Result("failed", f"cannot be started: {error}")
                self.held.pop(cell.name, None)
                self.waiting.remove(cell)
                if slot in self.running:
                    break

    def _start(self, cell: Cell, slot: int) -> subprocess.Popen[bytes]:
        return start_run(
            self.plan.root / cell.name,
            cell.flags(),
            threads=self.threads,
            ranks=self.ranks,
            environment=gpus_of_slot(slot, self.ranks),
        )


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may hand out."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name]
    return [str(i) for i in range(torch.cuda.device_count())]


def gpus_of_slot(slot: int, ranks: int) -> dict[str, str]:
    """Return the environment that gives the runs of one slot their own GPUs, in turn."""
    gpus = visible_gpus()
    if not gpus:
        return {}
    chosen = [gpus[(slot * ranks + i) % len(gpus)] for i in range(ranks)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(chosen))}


def no_space(plan: Plan, cell: Cell) -> str:
    """Return a message if the disk no longer holds one more run."""
    free, needed = free_bytes(plan.root), plan.bytes_missing(cell)
    if free >= needed:
        return ""
    return (
        f"the disk has {free / 2**20:.0f} MB free and a run needs {needed / 2**20:.0f} MB: no "
        "more runs are started."
    )


def end_of_run(run_dir: Path, code: int, stopping: bool) -> Result:
    """Return how a run's process ended; the cell waits if another process holds its directory."""
    if is_finished(run_dir):
        return Result("finished")
    orderly = code in (0, INCOMPLETE)
    if stopping or (orderly and read_progress(run_dir).reason.startswith("stopped")):
        return Result("stopped", "continues with the same command")
    try:
        refuse_held(run_dir)
    except Held as holder:
        return Result("waiting", str(holder))
    if code < 0:
        return Result("failed", f"killed by {signal.Signals(-code).name}")
    said = f"exit code {code}"
    if "error" not in log_tail(run_dir).lower():
        said += ", but the log holds no error message; perhaps the disk was full"
    return Result("failed", said)
