"""Writing metrics to metrics.csv, TensorBoard and Weights & Biases, and reading metrics.csv.

Reading needs only the standard library.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adops_wrappers._files import digest, read_json, sync_folder, write_atomically
from adops_wrappers.training.exit import exit_on_disk_error, fail

Mark = dict[str, Any]
"""The contents of metrics.csv at some moment: number of bytes and SHA-256."""


class Log:
    """Writes every iteration once: metrics.csv, TensorBoard, and W&B through it.

    Args:
        run_dir: Directory of the run.
        mark: The mark of metrics.csv in the checkpoint from which the run continues; later rows
            are dropped. None: the run starts from the beginning.
        tensorboard: Whether to write TensorBoard events.
        purge_step: The first step written again; TensorBoard drops its events from there on.
        wandb: Keyword arguments of `wandb.init` (project, config) to log to W&B as well.
    """

    def __init__(
        self,
        run_dir: Path,
        mark: Mark | None = None,
        *,
        tensorboard: bool = False,
        purge_step: int | None = None,
        wandb: dict[str, Any] | None = None,
    ) -> None:
        self.path = run_dir / "metrics.csv"
        self._open_files = contextlib.ExitStack()
        self._events: _Events | None = None
        if wandb is not None:
            _start_wandb(run_dir, wandb)
        with self._explained():
            kept = self._truncate(mark)
            # Unbuffered: each row is in the file when it is written, and after an error closing
            # the file does not try to write again.
            self._file = self._open_files.enter_context(self.path.open("ab", buffering=0))
            if tensorboard or wandb is not None:
                self._events = _Events(run_dir, purge_step)
        self._size, self._hash = len(kept), hashlib.sha256(kept)
        self.columns = next(csv.reader([kept.partition(b"\r\n")[0].decode()]), [])

    def write(self, iteration: int, global_step: int, metrics: dict[str, float | None]) -> None:
        """Write one iteration; None becomes an empty cell."""
        with self._explained():
            if not self.columns:
                self.columns = ["iteration", "global_step", *metrics]
                self._append(self.columns)
            cells = [metrics[name] for name in self.columns[2:]]
            self._append([iteration, global_step, *map(_cell, cells)])
            if self._events is not None:
                self._events.write(global_step, metrics)

    def sync(self) -> Mark:
        """Flush all rows to disk and return their mark; call this before writing a checkpoint.

        The checkpoint keeps the mark, so that a resume notices lost rows.
        """
        with self._explained():
            os.fsync(self._file.fileno())
            sync_folder(self.path.parent)
            if self._events is not None:
                self._events.flush()
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def close(self) -> None:
        """Flush and close."""
        with self._explained():
            self._open_files.close()
            if self._events is not None:
                self._events.close()

    def _truncate(self, mark: Mark | None) -> bytes:
        """Return the rows of a mark, after which the file now ends."""
        # status.json no longer describes these rows.
        self.path.with_name("status.json").unlink(missing_ok=True)
        data = self.path.read_bytes() if self.path.exists() else b""
        kept = data[: mark["bytes"]] if mark else b""
        if kept != data:
            write_atomically(self.path, kept)
        return kept

    def _append(self, row: list[Any]) -> None:
        line = ",".join(map(str, row)).encode() + b"\r\n"
        written = 0
        while written < len(line):  # an unbuffered file may take a part only
            written += self._file.write(line[written:]) or 0
        self._size += len(line)
        self._hash.update(line)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """End the script on a disk error, saying what is safe; any call may raise TensorBoard's."""
        run_dir = self.path.parent
        safe = f"The last checkpoint is safe: free some space and continue with --resume {run_dir}"
        with exit_on_disk_error(f"to {run_dir}", safe):
            try:
                yield
            except OSError:
                with contextlib.suppress(OSError):
                    self._open_files.close()
                raise


def _cell(value: float | None) -> str:
    """Write a number so that it reads back the same, whether it is Python's or NumPy's."""
    if value is None:
        return ""
    return repr(value if isinstance(value, int) else float(value))


class _Events:
    """TensorBoard's events. A thread writes them, whose errors the next call raises."""

    def __init__(self, run_dir: Path, purge_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._hook_before = threading.excepthook
        threading.excepthook = self._without_traceback
        self._writer = SummaryWriter(str(run_dir), purge_step=purge_step)
        self.flush = self._writer.flush

    def write(self, step: int, metrics: dict[str, float | None]) -> None:
        for name, value in metrics.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            threading.excepthook = self._hook_before

    def _without_traceback(self, failed: threading.ExceptHookArgs) -> None:
        if type(failed.thread).__module__.partition(".")[0] != "tensorboard":
            self._hook_before(failed)


def _start_wandb(run_dir: Path, settings: dict[str, Any]) -> None:
    """Start W&B, which must precede TensorBoard to copy its scalars."""
    try:
        wandb = importlib.import_module("wandb")
    except ImportError:
        fail("--track needs Weights & Biases: pip install wandb")
    # The id follows from the directory: a resume continues the same W&B run.
    identity = digest(str(run_dir.resolve()).encode())[:16]
    wandb.init(
        name=run_dir.name,
        id=identity,
        resume="allow",
        dir=str(run_dir),
        sync_tensorboard=True,
        **settings,
    )


def agrees(run_dir: Path, mark: Mark) -> bool:
    """Whether metrics.csv still begins with the rows of a mark."""
    try:
        with (run_dir / "metrics.csv").open("rb") as file:
            return bool(digest(file.read(mark["bytes"])) == mark["sha256"])
    except OSError:
        return False


def read_metrics(run_dir: Path) -> dict[str, list[str]]:
    """Return the columns of metrics.csv as strings.

    An incomplete last row, of a run still going or killed, is left out.

    Raises:
        FileNotFoundError: There is no metrics.csv.
        ValueError: Rows are missing, repeated or damaged, or the file was changed after the run
            finished.
    """
    path = run_dir / "metrics.csv"
    data = path.read_bytes()
    with contextlib.suppress(OSError):
        mark = read_json(run_dir / "status.json").get("metrics")
        if mark and digest(data) != mark["sha256"]:
            raise ValueError(
                f"{path} is not what the run wrote: it was truncated or changed. Restore it, or "
                "train this run again."
            )
    # A row is complete once its line ending is there.
    lines = data.decode(errors="replace").split("\r\n")[:-1]
    header, *rows = list(csv.reader(lines)) or [[]]
    for number, row in enumerate(rows, 1):
        if len(row) != len(header) or row[0] != str(number):
            raise ValueError(
                f"{path}, line {number + 1}: expected iteration {number} with {len(header)} cells, "
                f"found {row[:1]} with {len(row)}. Rows are lost, repeated or damaged; continue "
                f"the run with --resume {run_dir}, or train it again."
            )
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def read_last_row(run_dir: Path) -> dict[str, str]:
    """Return the last complete row of metrics.csv without reading the others, to watch a run.

    Checks nothing; returns an empty dict if there is no row.
    """
    path = run_dir / "metrics.csv"
    try:
        with path.open("rb") as file:
            header = file.readline()
            file.seek(max(file.tell(), path.stat().st_size - 8192))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    cells = csv.reader(line.decode(errors="replace") for line in [header, *lines[-1:]])
    names, *rows = list(cells) or [[]]
    return dict(zip(names, rows[0], strict=True)) if rows and len(rows[0]) == len(names) else {}
