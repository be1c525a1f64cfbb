from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from adops_wrappers.inspect import Recording
from adops_wrappers.inspect.__main__ import main
from adops_wrappers.inspect.storage import RecordingReader, RecordingWriter
from tests.inspect.synthetic import META, make


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


def damage(path: Path, entry: str, data: bytes | None = None) -> None:
    """Replace the content of one entry of a zip, or flip a bit of its stored bytes."""
    with zipfile.ZipFile(path) as file:
        offset = file.getinfo(entry).header_offset + 30 + len(entry) + 12
        contents = {name: file.read(name) for name in file.namelist()}
    if data is None:
        stored = bytearray(path.read_bytes())
        stored[offset] ^= 4
        path.write_bytes(stored)
        return
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {**contents, entry: data}.items():
            file.writestr(name, content)


DAMAGES = [
    ("shaped/000000.npy", None, "is damaged, in shaped/000000.npy"),
    ("meta.json", None, "not a recording|damaged"),
    ("meta.json", b"{cut off", "not a recording"),
    ("meta.json", b"[1]", "has format None"),
    ("meta.json", b'{"format": 1}', "damaged: its meta.json lacks 'steps'"),
    ("shaped/000000.npy", b"no array", "is damaged, in shaped/000000.npy"),
]


@pytest.mark.parametrize(("entry", "data", "message"), DAMAGES)
def test_a_damaged_recording_is_named_as_such(
    entry: str, data: bytes | None, message: str, tmp_path: Path
) -> None:
    make(tmp_path, reward=np.arange(50.0), intrinsic=np.sqrt(np.arange(50.0)))
    path = tmp_path / "synthetic.npz"
    damage(path, entry, data)
    with pytest.raises(ValueError, match=message):
        Recording.load(path)


@pytest.mark.parametrize(("entry", "data"), [case[:2] for case in DAMAGES])
def test_a_damaged_recording_gets_no_report(
    entry: str, data: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="the report needs the extra 'analysis'")
    make(tmp_path, reward=np.arange(50.0), intrinsic=np.sqrt(np.arange(50.0)))
    path = tmp_path / "synthetic.npz"
    damage(path, entry, data)
    assert main([str(path), "--out", str(tmp_path / "report.html")]) == 1
    assert capsys.readouterr().err.startswith(f"error: {path} ")
    assert not (tmp_path / "report.html").exists()


def test_a_recording_that_lost_a_column_or_rows_is_refused(tmp_path: Path) -> None:
    make(tmp_path, reward=np.arange(5.0))
    path = tmp_path / "synthetic.npz"
    with zipfile.ZipFile(path) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    for lost, message in (
        ("valid", "column valid appeared or disappeared"),
        ("reward", "reward has 0 of 5"),
    ):
        with zipfile.ZipFile(path, "w") as file:
            for name, content in contents.items():
                if not name.startswith(lost):
                    file.writestr(name, content)
            if lost == "reward":
                empty = io.BytesIO()
                np.save(empty, np.zeros((0, 1)))
                file.writestr("reward/000000.npy", empty.getvalue())
        with pytest.raises(ValueError, match=message):
            Recording.load(path)


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
    RecordingWriter(tmp_path / "empty.npz").finish(META)
    with pytest.raises(ValueError, match="no steps"):
        Recording.load(tmp_path / "empty.npz")


def test_a_flipped_bit_or_a_cut_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    recording = make(tmp_path, reward=rng.normal(size=30), intrinsic=rng.normal(size=30))
    path = tmp_path / "synthetic.npz"
    whole, table = path.read_bytes(), recording.table()
    noticed = 0
    for trial in range(300):
        data = bytearray(whole)
        place = int(rng.integers(len(data)))
        if trial % 3:
            data[place] ^= 1 << int(rng.integers(8))
        else:
            del data[place:]
        path.write_bytes(data)
        try:
            read = Recording.load(path)
            found = read.table()
        except ValueError:
            noticed += 1
        else:
            assert read.meta == recording.meta
            assert found.keys() == table.keys()
            assert all(np.array_equal(found[name], table[name]) for name in table)
    assert noticed > 200
