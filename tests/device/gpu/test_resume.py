"""Runs that are killed on one machine and resumed there, or on one with other devices."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.device.commands import MINIBATCHES, RUN, SMALL, TRAIN, call, finish, metrics, start

pytest.importorskip("minigrid")
pytest.importorskip("tyro")

SCRIPT = TRAIN / "ppo_rnd.py"
ITERATIONS, KILLED, SAVED = 10, 8, 6
FLAGS = (*SMALL, "--shaping", "adops", "--total-iterations", ITERATIONS, "--checkpoint-every", "3")
DYING = """
import os, runpy, signal, sys
from tests.device import simulated_gpu
simulated_gpu.activate()
from torch.optim.optimizer import register_optimizer_step_post_hook
left = int(sys.argv[1])
def die(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
register_optimizer_step_post_hook(die)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script until its optimiser has made a number of steps, and kills it there."""


def killed(run_dir: Path, *flags: str) -> Path:
    """Return a run that was killed in the midst of an update."""
    steps = (KILLED - 1) * MINIBATCHES + MINIBATCHES // 2
    process = start("-c", DYING, steps, SCRIPT, *FLAGS, *flags, "--run-dir", run_dir)
    output = process.communicate(timeout=900)[0]
    assert process.returncode == -signal.SIGKILL, output
    assert len(metrics(run_dir)) == KILLED - 1
    return run_dir


@pytest.fixture(scope="module")
def from_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a machine with two GPUs."""
    return killed(tmp_path_factory.mktemp("killed") / "gpu")


@pytest.fixture(scope="module")
def from_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return killed(tmp_path_factory.mktemp("killed") / "cpu", "--no-cuda")


@pytest.fixture
def run_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one of the killed runs."""
    return Path(shutil.copytree(request.getfixturevalue(request.param), tmp_path / "run"))


def assert_goes_on(run_dir: Path, before: Path) -> None:
    """The run was finished: old rows are kept up to its checkpoint, none is missing."""
    rows, old = metrics(run_dir), metrics(before)
    assert [int(row["iteration"]) for row in rows] == list(range(1, ITERATIONS + 1))
    assert rows[:SAVED] == old[:SAVED]
    assert "nan" not in str(rows)


def test_a_killed_run_goes_on_as_if_nothing_had_happened(from_gpu: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(from_gpu, tmp_path / "run")
    call("ppo_rnd.py", "--resume", run_dir)
    call("ppo_rnd.py", *FLAGS, "--run-dir", tmp_path / "whole")
    assert metrics(run_dir) == metrics(tmp_path / "whole")


@pytest.mark.parametrize("run_dir", ["from_gpu"], indirect=True)
def test_from_a_gpu_to_the_cpu_beside_it(run_dir: Path, from_gpu: Path) -> None:
    call("ppo_rnd.py", "--resume", run_dir, "--no-cuda")
    assert_goes_on(run_dir, from_gpu)


@pytest.mark.parametrize("run_dir", ["from_gpu"], indirect=True)
def test_from_a_gpu_to_a_machine_without(run_dir: Path, from_gpu: Path) -> None:
    assert "cpu" in finish(start(SCRIPT, "--resume", run_dir))
    assert_goes_on(run_dir, from_gpu)


@pytest.mark.parametrize("run_dir", ["from_gpu"], indirect=True)
def test_from_two_gpus_to_one(run_dir: Path, from_gpu: Path) -> None:
    assert "cuda:0" in finish(start(RUN, SCRIPT, "--resume", run_dir, SIMULATED_GPUS="1"))
    assert_goes_on(run_dir, from_gpu)


@pytest.mark.parametrize("run_dir", ["from_cpu"], indirect=True)
def test_from_the_cpu_to_a_gpu(
    run_dir: Path, from_cpu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("ppo_rnd.py", "--resume", run_dir, "--cuda")
    assert "cuda:0" in capsys.readouterr().out
    assert_goes_on(run_dir, from_cpu)
