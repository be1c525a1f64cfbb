from __future__ import annotations

import csv
import errno
import hashlib
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")
pytest.importorskip("filelock")

from adops_wrappers._files import write_json
from adops_wrappers.training.log import Log, agrees, read_last_row, read_metrics


def write_rows(log: Log, first: int, last: int) -> None:
    for iteration in range(first, last + 1):
        log.write(iteration, 64 * iteration, {"a/b": iteration / 3, "c": None})


def steps_in_tensorboard(run_dir: Path) -> list[int]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars("a/b")]


def test_rows_are_written_as_the_csv_module_reads_them(tmp_path):
    log = Log(tmp_path)
    write_rows(log, 1, 2)
    log.close()
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["iteration", "global_step", "a/b", "c"],
            ["1", "64", repr(1 / 3), ""],
            ["2", "128", repr(2 / 3), ""],
        ]
    assert read_metrics(tmp_path)["a/b"] == [repr(1 / 3), repr(2 / 3)]


def test_numbers_of_numpy_are_written_as_numbers(tmp_path):
    log = Log(tmp_path)
    log.write(1, 64, {"a": np.float64(1 / 3), "b": np.float32(0.1), "c": np.int64(3), "d": 3})
    log.close()
    assert [cell for (cell,) in read_metrics(tmp_path).values()] == [
        *("1", "64", repr(1 / 3), repr(float(np.float32(0.1))), "3.0", "3")
    ]


def test_a_row_is_there_as_soon_as_it_is_written(tmp_path):
    log = Log(tmp_path)
    write_rows(log, 1, 1)
    assert len(read_metrics(tmp_path)["iteration"]) == 1
    log.close()


def test_rows_beyond_the_checkpoint_are_written_again(tmp_path):
    log = Log(tmp_path, tensorboard=True)
    write_rows(log, 1, 3)
    mark = log.sync()
    write_rows(log, 4, 5)
    log.close()
    whole = (tmp_path / "metrics.csv").read_bytes()
    resumed = Log(tmp_path, mark, tensorboard=True, purge_step=4 * 64)
    assert read_metrics(tmp_path)["iteration"] == ["1", "2", "3"]
    write_rows(resumed, 4, 5)
    final = resumed.sync()
    resumed.close()
    assert (tmp_path / "metrics.csv").read_bytes() == whole
    assert final == {"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest()}
    assert steps_in_tensorboard(tmp_path) == [64 * i for i in range(1, 6)]


def test_a_run_without_a_checkpoint_begins_an_empty_file(tmp_path):
    (tmp_path / "metrics.csv").write_text("iteration,global_step\r\n1,6")
    log = Log(tmp_path)
    write_rows(log, 1, 1)
    log.close()
    assert read_metrics(tmp_path)["iteration"] == ["1"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: data.rindex(b"3,192")],
        lambda data: data[:90],
        lambda data: data.replace(b"64,", b"65,"),
        lambda data: b"",
        None,
    ],
)
def test_lost_and_changed_rows_disagree_with_the_mark(tmp_path, damage):
    log = Log(tmp_path)
    write_rows(log, 1, 3)
    mark = log.sync()
    assert agrees(tmp_path, mark)
    write_rows(log, 4, 4)
    log.close()
    assert agrees(tmp_path, mark)
    path = tmp_path / "metrics.csv"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    assert not agrees(tmp_path, mark)


def test_rows_are_on_the_disk_before_the_mark_is_given(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def recorded(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    log = Log(tmp_path)
    write_rows(log, 1, 1)
    log.sync()
    assert str(tmp_path / "metrics.csv") in synced
    log.close()


def message_of(run_dir: Path) -> str:
    return rf"No space left on device\. The last checkpoint is safe: .* --resume {run_dir}"


def test_a_full_disk_is_said_with_the_way_out(tmp_path):
    log = Log(tmp_path)
    write_rows(log, 1, 1)
    log._file.close()
    log._file = log._open_files.enter_context(Path("/dev/full").open("ab", buffering=0))  # noqa: SIM115
    with pytest.raises(SystemExit, match=message_of(tmp_path)):
        write_rows(log, 2, 2)
    assert log._file.closed


def test_a_log_that_cannot_be_opened_is_said_with_the_way_out(tmp_path):
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(SystemExit, match=f"cannot write to {tmp_path}: Is a directory"):
        Log(tmp_path)


@pytest.mark.parametrize("when", ["write", "sync", "close"])
def test_a_full_disk_inside_tensorboard_is_a_message_and_the_rows_are_safe(
    tmp_path, monkeypatch, capsys, when
):
    from tensorboard.compat.tensorflow_stub.io.gfile import LocalFileSystem

    log = Log(tmp_path, tensorboard=True)
    write_rows(log, 1, 2)
    log.sync()

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    hook = log._events._hook_before if log._events else None
    monkeypatch.setattr(LocalFileSystem, "_write", full)

    def go_on() -> None:
        write_rows(log, 3, 23 if when == "write" else 3)
        (log.sync if when == "sync" else log.close)()

    with pytest.raises(SystemExit, match=message_of(tmp_path)):
        go_on()
    assert read_metrics(tmp_path)["iteration"][:3] == ["1", "2", "3"]
    assert "Traceback" not in capsys.readouterr().err
    if when == "close":
        assert threading.excepthook is hook


def test_a_full_disk_when_tensorboard_begins(tmp_path, monkeypatch):
    from tensorboard.compat.tensorflow_stub.io.gfile import LocalFileSystem

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalFileSystem, "_write", full)
    with pytest.raises(SystemExit, match=message_of(tmp_path)):
        Log(tmp_path, tensorboard=True).close()


def test_errors_of_other_threads_are_reported_as_ever(tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    log = Log(tmp_path, tensorboard=True)
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    log.close()
    assert [failed.exc_type for failed in reported] == [ZeroDivisionError]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace("2,128", "3,128"), "line 3: expected iteration 2 with 4 cells"),
        (lambda text: text.replace("1,64", "1;64"), "line 2: expected iteration 1 with 4 cells"),
        (lambda text: text.replace("\r\n2,128", "\r\n"), "line 3"),
    ],
)
def test_the_reader_notices_gaps_and_damage(tmp_path, damage, message):
    log = Log(tmp_path)
    write_rows(log, 1, 4)
    log.close()
    path = tmp_path / "metrics.csv"
    path.write_bytes(damage(path.read_bytes().decode()).encode())
    with pytest.raises(ValueError, match=message):
        read_metrics(tmp_path)


def test_the_reader_leaves_out_a_row_that_is_being_written(tmp_path):
    log = Log(tmp_path)
    write_rows(log, 1, 2)
    log.close()
    path = tmp_path / "metrics.csv"
    path.write_bytes(path.read_bytes()[:-1])
    assert read_metrics(tmp_path)["iteration"] == ["1"]
    path.write_bytes(b"")
    assert read_metrics(tmp_path) == {}
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_metrics(tmp_path)


def test_the_reader_notices_a_change_after_the_end_of_the_run(tmp_path):
    log = Log(tmp_path)
    write_rows(log, 1, 3)
    write_json(tmp_path / "status.json", {"finished": True, "metrics": log.sync()})
    log.close()
    assert len(read_metrics(tmp_path)["iteration"]) == 3
    path = tmp_path / "metrics.csv"
    whole = path.read_bytes()
    for changed in (whole.replace(b"0.3333", b"0.4333"), whole[: whole.rindex(b"3,192")]):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="is not what the run wrote"):
            read_metrics(tmp_path)
    # A resume may write other rows: the old state no longer counts.
    Log(tmp_path).close()
    assert read_metrics(tmp_path) == {}


def test_weights_and_biases_is_named_where_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SystemExit, match="pip install wandb"):
        Log(tmp_path, wandb={"project": "x"})


def test_weights_and_biases_continues_the_same_run(tmp_path, monkeypatch):
    class FakeWandb:
        calls: list[dict] = []  # noqa: RUF012

        @classmethod
        def init(cls, **settings):
            cls.calls.append(settings)

    monkeypatch.setitem(sys.modules, "wandb", FakeWandb)
    for _ in range(2):
        Log(tmp_path, wandb={"project": "x", "config": {"seed": 1}}).close()
    first, second = FakeWandb.calls
    assert first == second
    assert first["resume"] == "allow"
    assert first["sync_tensorboard"]
    assert first["config"] == {"seed": 1}
    assert first["name"] == tmp_path.name


def test_the_last_row_is_the_newest_whole_one(tmp_path: Path) -> None:
    assert read_last_row(tmp_path) == {}
    path = tmp_path / "metrics.csv"
    for text, row in {
        "": {},
        "iteration,a\r\n": {},
        "iteration,a\r\n1,2.0\r\n": {"iteration": "1", "a": "2.0"},
        "iteration,a\r\n1,2.0\r\n2,3": {"iteration": "1", "a": "2.0"},
        "iteration,a\r\n1\r\n": {},
        "iteration,a\r\n" + "1,2.0\r\n" * 5000: {"iteration": "1", "a": "2.0"},
    }.items():
        path.write_bytes(text.encode())
        assert read_last_row(tmp_path) == row
