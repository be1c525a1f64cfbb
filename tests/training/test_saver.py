from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("filelock")
pytest.importorskip("cloudpickle")

from adops_wrappers.training import checkpoint
from adops_wrappers.training.log import Log


def save_all(run_dir: Path, iterations: tuple[int, ...]) -> list[bool]:
    """Save checkpoints of these iterations; return what `save` says."""
    log, own = Log(run_dir), checkpoint.Saver(run_dir)
    log.write(1, 1, {"a": 0.5})
    said = [own.save(n, {"weight": n}, [b"envs"], log.sync()) for n in iterations]
    log.close()
    return said


def files(run_dir: Path) -> dict[str, bytes]:
    folder = run_dir / "checkpoints"
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.glob("[0-9]*/*")}


@pytest.fixture
def refuse(monkeypatch):
    """Let the disk refuse checkpoints: `refuse({4: 2})` does so twice for iteration 4."""

    def refuse(times: dict[int, int]) -> None:
        left, whole = dict(times), checkpoint.write

        def write(run_dir, iteration, files, newest):
            if left.get(iteration, 0):
                left[iteration] -= 1
                raise OSError(errno.ENOSPC, "No space left on device")
            whole(run_dir, iteration, files, newest)

        monkeypatch.setattr(checkpoint, "write", write)

    return refuse


@pytest.mark.parametrize("refused", [{2: 1}, {4: 1}, {6: 1}, {4: 1, 6: 1}, {2: 1, 4: 1, 6: 1}])
def test_a_disk_that_was_full_for_a_while_costs_nothing(tmp_path, refuse, refused, capsys):
    for name in ("whole", "full"):
        (tmp_path / name).mkdir()
    save_all(tmp_path / "whole", (2, 4, 6, 8))
    refuse(refused)
    said = save_all(tmp_path / "full", (2, 4, 6, 8))
    assert said == [n not in refused for n in (2, 4, 6, 8)]
    assert files(tmp_path / "full") == files(tmp_path / "whole")
    assert checkpoint.find_loss(tmp_path / "full") == ""
    last = max(refused)
    lines = capsys.readouterr().out.splitlines()
    assert f"The checkpoint of iteration {last} is written now." in lines


def test_the_newest_goes_first_where_there_is_space_for_one(tmp_path, refuse):
    refuse({4: 2})
    assert save_all(tmp_path, (2, 4, 6)) == [True, False, True]
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["00000002", "00000006"]
    assert checkpoint.find_loss(tmp_path) == "checkpoints/00000004 is missing"


def test_the_one_before_is_written_even_if_the_newest_cannot_be(tmp_path, refuse):
    refuse({4: 1, 6: 1})
    assert save_all(tmp_path, (2, 4, 6)) == [True, False, False]
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["00000002", "00000004"]


def test_a_checkpoint_older_than_the_last_two_is_no_loss(tmp_path, refuse):
    refuse({4: 9})
    assert save_all(tmp_path, (2, 4, 6, 8)) == [True, False, True, True]
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["00000006", "00000008"]
    assert checkpoint.find_loss(tmp_path) == ""
