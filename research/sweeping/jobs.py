"""What one job of the cluster does; its python needs submitit, not torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adops_wrappers.training.rundir import Held
from research.sweeping.processes import is_finished, log_tail, start_run


class CellJob:
    """Runs one cell to its end; submitit calls `checkpoint` before a time-out or preemption.

    A job that SLURM itself starts again, after a node failure or a requeue, finds the run
    directory and resumes in the same way.
    """

    def __init__(
        self, run_dir: Path, flags: Sequence[str], threads: int, ranks: int, patience: float
    ) -> None:
        self.run_dir, self.flags, self.patience = run_dir, list(flags), patience
        self.threads, self.ranks = threads, ranks
        self.pid = 0

    def __call__(self) -> str:
        """Run the cell to its end."""
        process = self._start()
        self.pid = process.pid
        # No blocking wait: `checkpoint` interrupts this very thread and waits for the same child.
        while process.poll() is None:
            time.sleep(0.2)
        if not is_finished(self.run_dir):
            raise RuntimeError(
                f"{self.run_dir} ended with code {process.returncode}:\n{log_tail(self.run_dir)}"
            )
        return "finished"

    def _start(self) -> subprocess.Popen[bytes]:
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return start_run(self.run_dir, self.flags, threads=self.threads, ranks=self.ranks)
            except Held as holder:
                # The run of the job's former life may still be writing its checkpoint.
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.run_dir} is in use by {holder}") from None
                time.sleep(1.0)

    def checkpoint(self) -> Any:
        """Let the run write its checkpoint, and ask for the same job again."""
        import submitit

        if self.pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGTERM)
                deadline = time.monotonic() + self.patience
                while time.monotonic() < deadline and not self._has_ended():
                    time.sleep(0.1)
        again = CellJob(self.run_dir, self.flags, self.threads, self.ranks, self.patience)
        return submitit.helpers.DelayedSubmission(again)

    def _has_ended(self) -> bool:
        """Whether the child has ended; it is not reaped."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
