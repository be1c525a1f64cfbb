"""Faults that once lost data without a word, each through the command that a user gives."""

from __future__ import annotations

import csv
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.machine import Machine, Plan
from tests.faults.scenarios import ENVS, SCRIPT, SIZE, run_result

TRAIN = (SCRIPT, "--shaping", "adops", "--bonus", "count", *ENVS["count"], *SIZE)
RESUME = (SCRIPT, "--resume", "run")


@pytest.fixture(scope="module")
def whole(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of six iterations, with checkpoints after the fourth and the sixth."""
    folder = tmp_path_factory.mktemp("whole")
    assert machine.run(*TRAIN, "--run-dir", "run", folder=folder).code == 0
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def iterations(run_dir: Path) -> list[int]:
    with (run_dir / "metrics.csv").open(newline="") as file:
        return [int(row["iteration"]) for row in csv.DictReader(file)]


def cut_rows(run_dir: Path, keep: int) -> None:
    path = run_dir / "metrics.csv"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: keep + 1]))


def test_two_runs_started_in_the_same_second_both_keep_all_their_rows(
    machine, second_machine, tmp_path
):
    """Twice at once, with the clock that names the directories."""
    with ThreadPoolExecutor() as pool:
        outcomes = list(
            pool.map(lambda m: m.run(*TRAIN, folder=tmp_path), [machine, second_machine])
        )
        outcomes += pool.map(lambda m: m.run(*TRAIN, folder=tmp_path), [machine, second_machine])
    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 0]
    found = list((tmp_path / "runs").iterdir())
    assert len(found) == 4
    assert all(iterations(run_dir) == [1, 2, 3, 4, 5, 6] for run_dir in found)


def test_the_same_run_dir_given_twice_at_once_is_refused_once(machine, second_machine, tmp_path):
    command = (*TRAIN, "--run-dir", "run")
    with ThreadPoolExecutor() as pool:
        outcomes = list(
            pool.map(lambda m: m.run(*command, folder=tmp_path), [machine, second_machine])
        )
    refused = [outcome for outcome in outcomes if outcome.code != 0]
    assert len(refused) == 1
    assert "is in use by process" in refused[0].output or "holds a run" in refused[0].output
    assert iterations(tmp_path / "run") == [1, 2, 3, 4, 5, 6]


def test_a_run_is_not_resumed_twice_at_once(machine, second_machine, folder):
    shutil.rmtree(folder / "run" / "checkpoints")
    with ThreadPoolExecutor() as pool:
        outcomes = list(
            pool.map(lambda m: m.run(*RESUME, folder=folder), [machine, second_machine])
        )
    # On a slow machine the second may come when the first has ended.
    refused = [outcome for outcome in outcomes if outcome.code != 0]
    assert all("run is in use by process" in outcome.output for outcome in refused)
    assert refused or "after iteration 6" in "".join(outcome.output for outcome in outcomes)
    assert iterations(folder / "run") == [1, 2, 3, 4, 5, 6]


def test_a_resume_that_misses_rows_goes_back_to_a_checkpoint_that_agrees(machine, folder, whole):
    cut_rows(folder / "run", 5)
    outcome = machine.run(*RESUME, folder=folder)
    assert outcome.code == 0
    assert "00000006 does not fit metrics.csv, in which rows were lost" in outcome.output
    assert "after iteration 4" in outcome.output
    assert run_result(folder / "run") == run_result(whole / "run")


@pytest.mark.parametrize("keep", [3, None])
def test_a_resume_that_no_checkpoint_agrees_with_is_refused(machine, folder, keep):
    if keep is None:
        (folder / "run" / "metrics.csv").unlink()
    else:
        cut_rows(folder / "run", keep)
    outcome = machine.run(*RESUME, folder=folder)
    assert outcome.code == 1
    assert "does not fit metrics.csv, in which rows were lost" in outcome.output
    assert "Traceback" not in outcome.output


@pytest.mark.parametrize(
    ("old", "new"), [('"learning_rate": 0.0001', '"learning_rate": 0.5'), ('"num_envs": 2', "{")]
)
def test_the_checkpoint_is_the_truth_when_config_json_is_not(machine, folder, whole, old, new):
    shutil.rmtree(folder / "run" / "checkpoints" / "00000006")
    path = folder / "run" / "config.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    outcome = machine.run(*RESUME, folder=folder)
    assert outcome.code == 0
    assert "Using the checkpoint's settings and rewriting config.json" in outcome.output
    assert run_result(folder / "run") == run_result(whole / "run")
    assert json.loads(path.read_text())["args"]["learning_rate"] == 0.0001


def test_a_checkpoint_of_the_old_format_is_refused_by_name(machine, folder):
    for path in (folder / "run" / "checkpoints").iterdir():
        (path / "manifest.json").rename(path / "sha256.json")
    outcome = machine.run(*RESUME, folder=folder)
    assert outcome.code == 1
    assert "has format 1, but this version reads format 2" in outcome.output
    assert "Traceback" not in outcome.output


def test_a_checkpoint_that_failed_once_is_written_with_the_next_one(machine, tmp_path, whole):
    plan = Plan("full disk", at=1, only="00000004")
    outcome = machine.run(*TRAIN, "--run-dir", "run", folder=tmp_path, plan=plan)
    assert outcome.code == 0
    assert "Cannot write the checkpoint of iteration 4" in outcome.output
    assert "The checkpoint of iteration 4 is written now." in outcome.output
    assert run_result(tmp_path / "run") == run_result(whole / "run")


def test_a_run_that_lacks_a_checkpoint_at_its_end_says_so_each_time(machine, tmp_path, whole):
    plan = Plan("full disk", at=1, lasting=10**9, only="00000004")
    first = machine.run(*TRAIN, "--run-dir", "run", folder=tmp_path, plan=plan)
    again = machine.run(*RESUME, folder=tmp_path)
    for outcome in (first, again):
        assert outcome.code == 3
        assert "error: run finished, but checkpoints/00000004 is missing." in outcome.output
    ours, theirs = run_result(tmp_path / "run"), run_result(whole / "run")
    assert ours.pop("checkpoints")["00000006"] == theirs.pop("checkpoints")["00000006"]
    assert ours == theirs


@pytest.mark.parametrize("at", [1, 50, 250])
def test_a_full_disk_inside_tensorboard_is_a_message_and_costs_nothing(
    machine, tmp_path, whole, at
):
    plan = Plan("full disk", at=at, lasting=10**9, only="tfevents")
    outcome = machine.run(*TRAIN, "--run-dir", "run", folder=tmp_path, plan=plan)
    assert outcome.code == 1
    assert "No space left on device" in outcome.output
    assert "continue with --resume run" in outcome.output
    assert "Traceback" not in outcome.output
    assert machine.run(*RESUME, folder=tmp_path).code == 0
    assert run_result(tmp_path / "run") == run_result(whole / "run")
