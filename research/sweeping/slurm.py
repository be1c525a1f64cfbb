"""Cells as a job array of a SLURM cluster, through submitit."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adops_wrappers._files import write_atomically
from adops_wrappers.training.envs import env_kind, ram_game
from adops_wrappers.training.exit import fail
from research.design import Cell
from research.sweeping.jobs import CellJob
from research.sweeping.plan import Plan
from research.sweeping.processes import Result, is_finished
from research.sweeping.watching import watch

if TYPE_CHECKING:
    from research.sweep import RunArgs
    from train import ppo_rnd


def require_slurm() -> None:
    """Exit with a message if --executor slurm cannot work here."""
    if importlib.util.find_spec("submitit") is None:
        fail('--executor slurm needs submitit: pip install "adops-wrappers[cluster]"')
    missing = [name for name in ("sbatch", "squeue", "scontrol") if shutil.which(name) is None]
    if missing:
        fail(
            f"--executor slurm: there is no SLURM on this machine ({', '.join(missing)} not "
            "found). Run it on a login node of the cluster, or use --executor local."
        )
    answer = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True)
    if answer.returncode:
        fail(f"--executor slurm: SLURM does not answer: {answer.stderr.strip()}")


def queue_states() -> dict[str, str] | None:
    """Return the state of every job of this user that has not ended; None if SLURM is silent."""
    answer = subprocess.run(
        ["squeue", "--noheader", "--array", "--user", str(os.getuid()), "--format", "%i %T"],
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        return None
    return dict(line.split(maxsplit=1) for line in answer.stdout.splitlines() if line.strip())


def run_slurm(plan: Plan, args: RunArgs) -> dict[str, Result]:
    """Submit the open cells, except those an earlier sweep has queued; watch all of them."""
    require_slurm()
    jobs = queued_jobs(plan)
    if jobs:
        print(f"{len(jobs)} cells are already in the queue; watching their jobs.")
    new = [cell for cell in plan.open if cell.name not in jobs]
    if new:
        jobs |= submit(plan, new, args)
    results = watch(plan, QueuedRuns(plan, jobs, args.refresh or 15.0))
    left = [jobs[name] for name, result in results.items() if result.state == "stopped"]
    if left:
        print(
            "The jobs keep running. Run the same command to watch them again, or cancel them with: "
            f"scancel {' '.join(left)}"
        )
    return results


def queued_jobs(plan: Plan) -> dict[str, str]:
    """Return the job ids of open cells that an earlier sweep submitted and that have not ended."""
    queued, jobs = queue_states() or {}, {}
    for cell in plan.open:
        with contextlib.suppress(OSError):
            job_id = (plan.root / cell.name / "job.txt").read_text()
            if job_id in queued:
                jobs[cell.name] = job_id
    return jobs


def submit(plan: Plan, cells: Sequence[Cell], args: RunArgs) -> dict[str, str]:
    """Submit cells as one job array; return their job ids."""
    import submitit

    executor = submitit.AutoExecutor(
        plan.root / "slurm", cluster="slurm", slurm_max_num_timeout=1_000_000
    )
    executor.update_parameters(
        name=f"sweep-{plan.root.name}",
        slurm_array_parallelism=args.jobs or len(cells),
        **job_parameters(args, [plan.args[cell.name] for cell in cells]),
    )
    patience = max(10.0, args.signal_delay - 20.0)
    try:
        with executor.batch():
            jobs = [
                executor.submit(
                    CellJob(
                        (plan.root / cell.name).resolve(),
                        cell.flags(),
                        args.threads,
                        args.ranks,
                        patience,
                    )
                )
                for cell in cells
            ]
    except submitit.core.utils.FailedJobError as error:
        fail(f"SLURM refused the jobs: {error}")
    ids = {cell.name: job.job_id for cell, job in zip(cells, jobs, strict=True)}
    for name, job_id in ids.items():
        (plan.root / name).mkdir(exist_ok=True)
        write_atomically(plan.root / name / "job.txt", job_id.encode())
    return ids


MOST_EMULATOR_CPUS = 16


def cpus_of_run(args: RunArgs, gpus: int, runs: Sequence[ppo_rnd.Args]) -> int:
    """Return the CPUs of each job: its threads; beside a GPU one for every two emulators."""
    emulators = 0
    if gpus:
        # Those seen through their RAM take turns on one thread.
        drawn = [r for r in runs if env_kind(r.env_id) == "atari" and not ram_game(r)]
        emulators = max((r.num_envs for r in drawn), default=0)
    return args.cpus or max(args.threads * args.ranks, min(MOST_EMULATOR_CPUS, emulators // 2))


def job_parameters(args: RunArgs, runs: Sequence[ppo_rnd.Args]) -> dict[str, Any]:
    """Return what each job asks of the cluster, as submitit names it."""
    gpus = args.gpus or (args.ranks if args.ranks > 1 else 0)
    extra = dict(pair.split("=", 1) for pair in args.slurm_extra)
    return {
        "timeout_min": max(1, round(args.hours * 60)),
        "mem_gb": args.mem_gb,
        "cpus_per_task": cpus_of_run(args, gpus, runs),
        "slurm_signal_delay_s": args.signal_delay,
        "slurm_additional_parameters": {"requeue": True, **extra},
        **({"slurm_partition": args.partition} if args.partition else {}),
        **({"gpus_per_node": gpus} if gpus else {}),
    }


class QueuedRuns:
    """Jobs of a cluster, which outlive the sweep that watches them."""

    left = Result("stopped", "its job keeps running")

    def __init__(self, plan: Plan, jobs: Mapping[str, str], refresh: float) -> None:
        self.plan, self.jobs, self.pause = plan, jobs, refresh
        self.results = plan.finished()
        self.queue: dict[str, str] | None = None
        self.missing: Counter[str] = Counter()

    def step(self, signals: int, say: Callable[[str], None]) -> bool:
        """Ask the queue which jobs have ended."""
        if signals:
            return False
        self.queue = queue_states()
        for name, job_id in self.jobs.items():
            if name in self.results or self.queue is None or job_id in self.queue:
                self.missing[name] = 0
                continue
            # Twice: a shared disk may show the job's last files a moment late.
            self.missing[name] += 1
            if is_finished(self.plan.root / name):
                self.results[name] = Result("finished")
            elif self.missing[name] > 1:
                self.results[name] = Result("failed", f"job {job_id} ended before the run did")
        return len(self.results) < len(self.plan.cells)

    def states(self) -> dict[str, str]:
        """Return the queue's words for the jobs that have not ended."""
        queue = self.queue or {}
        jobs = {name: job for name, job in self.jobs.items() if name not in self.results}
        return {name: queue.get(job, "?").lower() for name, job in jobs.items()}

    def close(self) -> None:
        """The jobs go on."""
