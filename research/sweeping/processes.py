"""One cell as a process, on this machine or in a job of the cluster; needs no torch."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from adops_wrappers.training.log import read_last_row
from adops_wrappers.training.rundir import read_status, run_lock
from research import ROOT

SCRIPT = ROOT / "train" / "ppo_rnd.py"


class Result(NamedTuple):
    """How a cell ended."""

    state: Literal["finished", "failed", "stopped", "waiting"]
    detail: str = ""


class CellProgress(NamedTuple):
    """How far a cell has got, read from the files of its run directory."""

    state: Literal["waiting", "unfinished", "finished"]
    iteration: int = 0
    sps: float = 0.0
    score: str = "-"
    reason: str = ""


def read_progress(run_dir: Path) -> CellProgress:
    """Read status.json and the last row of metrics.csv."""
    status = status_of(run_dir)
    row = read_last_row(run_dir)
    state: Literal["waiting", "unfinished", "finished"] = "waiting"
    if status.get("finished"):
        state = "finished"
    elif (run_dir / "config.json").exists():
        state = "unfinished"
    score = row.get("charts/episodic_return_recent") or row.get("charts/episodic_return")
    return CellProgress(
        state,
        int(row.get("iteration") or status.get("iteration") or 0),
        float(row.get("charts/SPS") or 0.0),
        f"{float(score):.3g}" if score else "-",
        str(status.get("reason", "")),
    )


def status_of(run_dir: Path) -> dict[str, Any]:
    """Return status.json, or an empty dict if it is missing or cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return read_status(run_dir)
    return {}


def is_finished(run_dir: Path) -> bool:
    """Whether the run has finished."""
    return bool(status_of(run_dir).get("finished"))


def find_loss(run_dir: Path) -> str:
    """Return what a run should have left and has not, as it said when it ended; or nothing."""
    return str(status_of(run_dir).get("lost", ""))


def log_tail(run_dir: Path, lines: int = 12) -> str:
    """Return the last lines of a run's output."""
    try:
        with (run_dir / "output.log").open("rb") as file:
            file.seek(max(0, os.stat(file.fileno()).st_size - 16384))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no output)"
    # A progress bar overwrites itself: only what follows the last carriage return was visible.
    shown = [line.rstrip().rsplit("\r", 1)[-1] for line in text.split("\n")]
    return "\n".join([line for line in shown if line][-lines:])


def start_run(
    run_dir: Path,
    flags: Sequence[str],
    *,
    threads: int = 1,
    ranks: int = 1,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start or resume one run; its output goes to output.log of the run directory.

    Raises:
        Held: Another process still uses this directory.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    # The run takes this lock itself, and keeps it even if it outlives the sweep.
    refuse_held(run_dir)
    started = (run_dir / "config.json").exists()
    chosen = ["--resume", str(run_dir)] if started else ["--run-dir", str(run_dir), *flags]
    command = [sys.executable, str(SCRIPT), *chosen, "--torch-threads", str(threads)]
    if ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command[1:1] = launcher
    env = {**os.environ, **(environment or {}), "OMP_NUM_THREADS": str(threads)}
    # How many seconds torchrun gives the ranks to finish their iteration.
    env.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600")
    with (run_dir / "output.log").open("ab") as log:
        log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(command)}\n".encode())
        log.flush()
        # A session of its own: Ctrl-C reaches the sweep alone, which then asks each run once.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def refuse_held(run_dir: Path) -> None:
    """Raise `Held` if another process uses a run directory."""
    run_lock(run_dir).refuse_holder()


def die_with_parent() -> None:
    """Run in the child: get SIGTERM when the sweep dies, ignore the cluster's preemption signal."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


class SignalCount:
    """Counts SIGINT and SIGTERM while it is entered: the first asks the runs to stop."""

    def __init__(self) -> None:
        self.count = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> SignalCount:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: Any) -> None:
        self.count += 1

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
