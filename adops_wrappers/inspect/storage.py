"""A recording on disk: one zip of .npy chunks, written with flat memory and replaced atomically."""

from __future__ import annotations

import io
import json
import os
import uuid
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FORMAT = 1
_CHUNK_BYTES = 4 * 2**20
_META = "meta.json"


class RecordingWriter:
    """Appends rows to columns; a full chunk goes to disk, so memory does not grow.

    All is written into a temporary file beside `path`, which takes the name `path` in one
    step when the recording is finished: a file of that name is always complete.

    Args:
        path: The file to write; its directory is made.
        chunk_steps: The most rows of a chunk; a chunk also holds at most some 4 MB.
    """

    def __init__(self, path: str | os.PathLike[str], *, chunk_steps: int = 4096) -> None:
        self.path = Path(path)
        self.chunk_steps = chunk_steps
        self.steps = 0
        self._columns: dict[str, _Column] = {}
        # A forked copy of this object must not write into its parent's file.
        self._owner = os.getpid()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.tmp")
        self._zip = zipfile.ZipFile(self._temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1)

    def append(self, row: dict[str, Array]) -> None:
        """Add one step; every step must bring the same columns."""
        if not self._columns:
            self._columns = {
                name: _Column(name, np.asarray(value), self.chunk_steps)
                for name, value in row.items()
            }
        if row.keys() != self._columns.keys():
            changed = sorted(row.keys() ^ self._columns.keys())
            raise ValueError(
                f"The columns of a recording cannot change on the way: {', '.join(changed)} came "
                "or went. A critic must give q_ext always or never."
            )
        for name, value in row.items():
            self._columns[name].append(np.asarray(value), self._zip)
        self.steps += 1

    def finish(self, meta: dict[str, Any]) -> None:
        """Write what is left and `meta`, and give the file its name."""
        if os.getpid() != self._owner:
            return
        for column in self._columns.values():
            column.flush(self._zip)
        self._zip.writestr(_META, json.dumps({"format": FORMAT, "steps": self.steps, **meta}))
        self._zip.close()
        with self._temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(self._temporary, self.path)

    def abandon(self) -> None:
        """Remove the temporary file."""
        self._zip.close()
        self._temporary.unlink(missing_ok=True)


class _Column:
    def __init__(self, name: str, first: Array, chunk_steps: int) -> None:
        rows = min(chunk_steps, max(1, _CHUNK_BYTES // max(1, first.nbytes)))
        self.name, self.chunk, self.filled = name, 0, 0
        self.buffer = np.empty((rows, *first.shape), dtype=first.dtype)

    def append(self, value: Array, target: zipfile.ZipFile) -> None:
        self.buffer[self.filled] = value
        self.filled += 1
        if self.filled == len(self.buffer):
            self.flush(target)

    def flush(self, target: zipfile.ZipFile) -> None:
        if self.filled == 0:
            return
        data = io.BytesIO()
        np.save(data, self.buffer[: self.filled], allow_pickle=False)
        target.writestr(f"{self.name}/{self.chunk:06d}.npy", data.getvalue())
        self.chunk, self.filled = self.chunk + 1, 0


class RecordingReader:
    """Reads the columns of a recording; needs numpy alone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            with zipfile.ZipFile(self.path) as file:
                self.meta: dict[str, Any] = json.loads(file.read(_META))
                names = file.namelist()
        except FileNotFoundError:
            raise FileNotFoundError(f"There is no recording {self.path}.") from None
        except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"{self.path} is not a recording of ShapingRecorder.") from error
        if self.meta.get("format") != FORMAT:
            raise ValueError(
                f"{self.path} has format {self.meta.get('format')!r}; this version reads format "
                f"{FORMAT}."
            )
        self._chunks: dict[str, list[str]] = {}
        for name in sorted(names):
            if name.endswith(".npy"):
                self._chunks.setdefault(name.rpartition("/")[0], []).append(name)
        self._cached: tuple[str, Array] | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._chunks)

    def read(self, column: str) -> Array:
        """Return a whole column, time first."""
        with zipfile.ZipFile(self.path) as file:
            return np.concatenate([_load(file, name) for name in self._chunks[column]])

    def read_row(self, column: str, index: int) -> Array:
        """Return one row of a column, holding one chunk in memory."""
        first = self._chunk(self._chunks[column][0])
        name = self._chunks[column][index // len(first)]
        return np.asarray(self._chunk(name)[index % len(first)])

    def _chunk(self, name: str) -> Array:
        if self._cached is None or self._cached[0] != name:
            with zipfile.ZipFile(self.path) as file:
                self._cached = (name, _load(file, name))
        return self._cached[1]


def _load(file: zipfile.ZipFile, name: str) -> Array:
    loaded: Array = np.load(io.BytesIO(file.read(name)), allow_pickle=False)
    return loaded
