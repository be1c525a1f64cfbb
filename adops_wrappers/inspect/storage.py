"""A recording on disk: one zip of .npy chunks, written with flat memory and replaced atomically."""

from __future__ import annotations

import contextlib
import io
import json
import os
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adops_wrappers._files import sync_folder
from adops_wrappers.inspect.findings import counted

Array = npt.NDArray[Any]

FORMAT = 1
_CHUNK_BYTES = 4 * 2**20
_META = "meta.json"


class RecordingWriter:
    """Appends rows to columns; a full chunk goes to disk, so memory does not grow.

    Everything is written to a temporary file beside `path`, which takes the name `path` in one
    step when the recording is finished: a file of that name is always complete. A disk error
    ends the recording and removes the temporary file.

    Args:
        path: The file to write; its directory is made.
        chunk_steps: The maximum number of rows per chunk; a chunk also holds at most about 4 MB.
    """

    def __init__(self, path: str | os.PathLike[str], *, chunk_steps: int = 4096) -> None:
        self.path = Path(path)
        self.chunk_steps = chunk_steps
        self.steps = 0
        self.finished = False
        """Whether the file of that name is this recording."""
        self._columns: dict[str, _Column] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.tmp")
        self._file = self._temporary.open("xb")
        self._zip = _OwnZip(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)

    @property
    def open(self) -> bool:
        """Whether rows can be added: neither finished nor abandoned, nor the copy of a fork."""
        return self._zip.owned and not self._file.closed

    def append(self, row: dict[str, Any]) -> None:
        """Add one step; every step must have the same columns."""
        values = {name: np.asarray(value) for name, value in row.items()}
        if not self._columns:
            self._columns = {
                name: _Column(name, value, self.chunk_steps) for name, value in values.items()
            }
        if values.keys() != self._columns.keys():
            changed = sorted(values.keys() ^ self._columns.keys())
            raise ValueError(
                f"The columns of a recording cannot change midway: {', '.join(changed)} appeared "
                "or disappeared. A critic must give q_ext always or never."
            )
        for name, value in values.items():
            self._columns[name].put(self.steps, value)
        # From here on the step counts; an interruption before this line leaves no trace.
        self.steps += 1
        full = [column for column in self._columns.values() if self.steps % column.rows == 0]
        if full:
            with self._giving_up_on_errors():
                for column in full:
                    column.write(self.steps, self._zip)
                self._file.flush()

    def finish(self, meta: dict[str, Any]) -> None:
        """Write what is left and `meta`, and give the file its name."""
        if not self.open:
            return
        with self._giving_up_on_errors():
            for column in self._columns.values():
                column.write(self.steps, self._zip)
            about = {"format": FORMAT, "steps": self.steps, "columns": [*self._columns], **meta}
            self._zip.writestr(_META, json.dumps(about))
            self._zip.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._temporary, self.path)
        self.finished = True
        sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Remove the temporary file."""
        if self._zip.owned:
            # On a full disk closing fails too, and what it would write is not wanted.
            for close in (self._zip.close, self._file.close, self._temporary.unlink):
                with contextlib.suppress(Exception):
                    close()

    @contextlib.contextmanager
    def _giving_up_on_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.abandon()
            raise OSError(
                error.errno,
                f"{error.strerror or error}. The recording of {counted(self.steps, 'step')} was "
                "abandoned, and nothing was written",
                str(self.path),
            ) from error
        except BaseException:
            self.abandon()
            raise


class _OwnZip(zipfile.ZipFile):
    """A zip that the copy in a forked process leaves alone, also when it is collected there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._owner = os.getpid()
        super().__init__(*args, **kwargs)

    @property
    def owned(self) -> bool:
        """Whether this process has opened it."""
        return os.getpid() == self._owner

    def close(self) -> None:
        """Write the directory of the zip."""
        if self.owned:
            super().close()


class _Column:
    """A buffer for one chunk."""

    def __init__(self, name: str, first: Array, chunk_steps: int) -> None:
        self.name = name
        self.rows = min(chunk_steps, max(1, _CHUNK_BYTES // max(1, first.nbytes)))
        self.buffer = np.empty((self.rows, *first.shape), dtype=first.dtype)

    def put(self, step: int, value: Array) -> None:
        self.buffer[step % self.rows] = value

    def write(self, steps: int, target: zipfile.ZipFile) -> None:
        """Write the chunk that ends with the last of `steps`, unless it is on disk already."""
        chunk = (steps - 1) // self.rows
        name = f"{self.name}/{chunk:06d}.npy"
        if steps and name not in target.NameToInfo:
            data = io.BytesIO()
            np.save(data, self.buffer[: steps - chunk * self.rows], allow_pickle=False)
            target.writestr(name, data.getvalue())


class RecordingReader:
    """Reads the columns of a recording; needs numpy alone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(f"There is no recording {self.path}.")
        with (
            _reading(f"{self.path} is not a recording of ShapingRecorder, or damaged"),
            zipfile.ZipFile(self.path) as file,
        ):
            self.meta: dict[str, Any] = json.loads(file.read(_META))
            names = file.namelist()
        if not isinstance(self.meta, dict) or self.meta.get("format") != FORMAT:
            found = self.meta.get("format") if isinstance(self.meta, dict) else None
            raise ValueError(
                f"{self.path} has format {found!r}; this version reads format {FORMAT}."
            )
        self._chunks: dict[str, list[str]] = {}
        for name in sorted(names):
            if name.endswith(".npy"):
                self._chunks.setdefault(name.rpartition("/")[0], []).append(name)
        # Versions before this one did not write the names.
        lost = set(self.meta.get("columns", self._chunks)) ^ set(self._chunks)
        if lost:
            raise self.damaged(f"the column {min(lost)} appeared or disappeared")
        self._cached: tuple[str, Array] | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._chunks)

    def read(self, column: str) -> Array:
        """Return a whole column, time first."""
        if column not in self._chunks:
            raise self.damaged(f"the column {column} is missing")
        values = np.concatenate([self._load(name) for name in self._chunks[column]])
        if len(values) != self.meta.get("steps"):
            raise self.damaged(f"{column} has {len(values)} of {self.meta.get('steps')} steps")
        return values

    def read_row(self, column: str, index: int) -> Array:
        """Return one row of a column, holding one chunk in memory."""
        first = self._chunk(self._chunks[column][0])
        name = self._chunks[column][index // len(first)]
        return np.asarray(self._chunk(name)[index % len(first)])

    def damaged(self, what: str) -> ValueError:
        """Return the error that says what is wrong with the file."""
        return ValueError(f"{self.path} is damaged: {what}. Record it again.")

    def _chunk(self, name: str) -> Array:
        if self._cached is None or self._cached[0] != name:
            self._cached = (name, self._load(name))
        return self._cached[1]

    def _load(self, name: str) -> Array:
        with (
            _reading(f"{self.path} is damaged, in {name}"),
            zipfile.ZipFile(self.path) as file,
        ):
            loaded: Array = np.load(io.BytesIO(file.read(name)), allow_pickle=False)
        return loaded


@contextlib.contextmanager
def _reading(complaint: str) -> Iterator[None]:
    """Say what is wrong with a file: a damaged zip raises anything from OSError to zlib.error."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file could not be opened
        raise ValueError(f"{complaint}: {error}") from error
