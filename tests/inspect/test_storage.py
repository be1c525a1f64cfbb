from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from adops_wrappers.inspect import Recording
from adops_wrappers.inspect.storage import RecordingReader, RecordingWriter


def test_round_trip_is_exact_for_every_chunk_length(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(23, 2)) * 10.0 ** rng.integers(-300, 300, (23, 2))
    flags = rng.random((23, 2)) < 0.5
    for chunk in (1, 5, 23, 100):
        writer = RecordingWriter(tmp_path / "a.npz", chunk_steps=chunk)
        for value, flag in zip(values, flags, strict=True):
            writer.append({"x": value, "flag": flag})
        writer.finish({"note": "ε"})
        reader = RecordingReader(tmp_path / "a.npz")
        np.testing.assert_array_equal(reader.read("x"), values)
        np.testing.assert_array_equal(reader.read("flag"), flags)
        assert reader.read("flag").dtype == bool
        assert reader.meta["note"] == "ε"
        for t in (0, 4, 5, 22):
            np.testing.assert_array_equal(reader.read_row("x", t), values[t])


def test_rows_are_copied(tmp_path: Path) -> None:
    writer, buffer = RecordingWriter(tmp_path / "a.npz"), np.zeros(2)
    for t in range(3):
        buffer[:] = t  # as an env with copy=False does
        writer.append({"x": buffer})
    writer.finish({})
    assert RecordingReader(tmp_path / "a.npz").read("x").tolist() == [[0, 0], [1, 1], [2, 2]]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no recording"):
        Recording.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match="not a recording"):
        Recording.load(tmp_path / "text.npz")
    np.savez(tmp_path / "arrays.npz", x=np.zeros(2))
    with pytest.raises(ValueError, match="not a recording"):
        Recording.load(tmp_path / "arrays.npz")
    with zipfile.ZipFile(tmp_path / "future.npz", "w") as file:
        file.writestr("meta.json", '{"format": 99, "steps": 1}')
    with pytest.raises(ValueError, match="format 99"):
        Recording.load(tmp_path / "future.npz")
    RecordingWriter(tmp_path / "empty.npz").finish({})
    with pytest.raises(ValueError, match="no steps"):
        Recording.load(tmp_path / "empty.npz")
