from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, NoShapingWrapper
from adops_wrappers.training import checkpoint
from adops_wrappers.training.args import Auto, ScriptArgs
from adops_wrappers.training.exit import INCOMPLETE
from adops_wrappers.training.log import read_metrics
from adops_wrappers.training.run import Run, disk_needed
from adops_wrappers.training.rundir import read_config, read_status
from adops_wrappers.training.statistics import EpisodeStatistics


@dataclass
class Args(ScriptArgs):
    """Settings of the smallest script."""

    env_id: str = "CliffWalking-v1"
    tensorboard: bool = False
    seed: int = 1
    bonus: str = "rnd"
    norm_adv: bool = False
    scale_adv: Auto = None
    num_envs: int = 2
    num_steps: int = 5
    update_epochs: int = 1
    num_minibatches: int = 1
    total_iterations: int = 6


def random_walk(args, stop_after=None, watch=None, returns=None, warm_up=None):
    """A script without a learner: walks at random, and remembers the sum of what it saw."""
    agent = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(agent.weight)
    with Run(args, "walk.py", "none") as run:
        base, _ = run.make_envs()
        envs = IntrinsicRewardWrapper(EpisodeStatistics(base), CountBonus())
        envs = NoShapingWrapper(envs)
        run.track(agent=agent)
        if not run.restore(envs):
            if warm_up:
                warm_up()
            envs.reset(seed=args.seed)
        for iteration in run.iterations():
            seen = float(np.sum(envs.episodes.last_obs))
            for _ in range(args.num_steps):
                action = torch.randint(0, 4, (args.num_envs,), generator=run.generator)
                bonus = envs.step(action.numpy())[4]["intrinsic_reward"]
                seen += float(np.sum(envs.episodes.last_obs)) + bonus.sum()
            with torch.no_grad():
                agent.weight += seen
            run.log(
                {
                    "charts/SPS": 1.0,
                    "charts/episodic_return": returns and returns[iteration - 1],
                    "charts/episodic_return_recent": returns and returns[iteration - 1],
                    "charts/episodes": 100 * iteration,
                    "seen": seen,
                    "weight": agent.weight.item(),
                }
            )
            if watch:
                watch(run)
            if iteration == stop_after:
                raise KeyboardInterrupt
    return run.path


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(tmp_path, capsys):
    whole = read_metrics(random_walk(Args(run_dir=str(tmp_path / "whole"))))
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        random_walk(Args(run_dir=str(cut), checkpoint_every=2), stop_after=5)
    assert len(read_metrics(cut)["iteration"]) == 5
    random_walk(Args(run_dir=str(cut), checkpoint_every=2, resume=str(cut)))
    assert "after iteration 4." in capsys.readouterr().out
    assert read_metrics(cut) == whole
    assert read_status(cut)["finished"]
    found = checkpoint.load(cut)
    assert found.state["shared"]["agent"]["weight"].item() == float(whole["weight"][-1])


def test_a_return_that_was_lost_is_told_while_the_run_goes_on_and_at_its_end(tmp_path, capsys):
    path, returns = tmp_path / "run", [0.0] * 10 + [0.9] * 5 + [0.0] * 15
    args = Args(run_dir=str(path), checkpoint_every=24, total_iterations=30)
    with pytest.raises(KeyboardInterrupt):
        random_walk(args, stop_after=26, returns=returns)
    warning = "warning: The return fell and stayed down. The mean return of the last 100 episodes "
    warning += "was 0.9 at iteration 11, and is 0 now."
    said = capsys.readouterr().out
    assert said.count("warning") == said.count(f"Iteration 20: {warning}") == 1
    random_walk(Args(**{**vars(args), "resume": str(path)}), returns=returns)
    said = capsys.readouterr().out
    assert said.count("warning") == said.count(f"Iteration 25: {warning}") == 1
    end = said[said.index("The run CliffWalking-v1: none has 30 iterations") :]
    assert "is 0 at the end; the best was 0.9, at iteration 11." in end
    assert end.index("Warning: The return fell") < end.index("Finished 30 iterations")


def test_runs_started_in_the_same_second_have_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    args = Args(total_iterations=1)
    inner = []
    # The second starts while the first is at work.
    first = random_walk(args, watch=lambda run: inner.append(random_walk(args)))
    assert first.name == "CliffWalking-v1__walk_none__1__1700000000"
    assert inner[0] != first
    assert read_metrics(first) == read_metrics(inner[0])


def test_a_directory_belongs_to_one_process_at_a_time(tmp_path):
    """Whether it starts or resumes: the second one names the first and changes nothing."""
    args = Args(run_dir=str(tmp_path / "run"), checkpoint_every=1, total_iterations=2)
    resumed = Args(**{**vars(args), "resume": args.run_dir})
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_run import Args, random_walk\n"
        "random_walk(Args(run_dir=sys.argv[2], resume=sys.argv[3]))\n"
    )
    said = []

    def second_process(run):
        for resume in ("", args.run_dir):
            result = subprocess.run(
                [sys.executable, "-c", program, os.path.dirname(__file__), args.run_dir, resume],
                capture_output=True,
                text=True,
                timeout=900,
            )
            assert result.returncode == 1, result.stderr
            said.append(result.stderr)

    random_walk(args, watch=lambda run: run.iteration == 1 and second_process(run))
    assert all(f"is in use by process {os.getpid()} of" in text for text in said)
    assert len(read_metrics(tmp_path / "run")["iteration"]) == 2
    random_walk(resumed)  # it is free again


def test_an_error_leaves_the_directory_free(tmp_path):
    args = Args(run_dir=str(tmp_path / "run"), checkpoint_every=1)
    with pytest.raises(KeyboardInterrupt) as held:  # keeps the frames alive
        random_walk(args, stop_after=2)
    random_walk(Args(**{**vars(args), "resume": args.run_dir}))
    assert len(read_metrics(tmp_path / "run")["iteration"]) == args.total_iterations
    assert held


@pytest.mark.parametrize("run_dir", ["", "chosen"])
@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ({"env_id": "NoSuchEnv-v0"}, SystemExit),
        ({"env_id": "Pendulum-v1"}, SystemExit),
        ({"env_kwargs": '{"is_slippery": "?", "render_mode": 3}'}, BaseException),
    ],
)
def test_a_start_that_fails_leaves_no_directory(tmp_path, monkeypatch, run_dir, changes, ended):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ended):
        random_walk(Args(run_dir=run_dir, **changes))
    assert [path for path in tmp_path.rglob("*") if path.name != "runs"] == []


def test_a_start_that_fails_leaves_the_users_directory_as_it_was(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit):
        random_walk(Args(run_dir=str(tmp_path), env_id="Pendulum-v1"))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_in_its_warm_up_starts_again(tmp_path, capsys, number):
    args = Args(run_dir=str(tmp_path / "run"))
    assert random_walk(args, warm_up=lambda: signal.raise_signal(number)) == tmp_path / "run"
    said = f"{number.name}: stopped before an iteration began. Continue with --resume {tmp_path}"
    assert said in capsys.readouterr().out
    status = read_status(tmp_path / "run")
    assert (status["iteration"], status["finished"]) == (0, False)
    assert status["reason"] == f"stopped by {number.name}"
    random_walk(Args(**{**vars(args), "resume": args.run_dir}))
    whole = random_walk(Args(run_dir=str(tmp_path / "whole")))
    assert read_metrics(tmp_path / "run") == read_metrics(whole)


def test_a_run_stopped_before_its_config_is_written_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Run, "make_envs", lambda self: signal.raise_signal(signal.SIGTERM))
    path = random_walk(Args(run_dir=str(tmp_path / "run")))
    assert "SIGTERM: stopped before an iteration began. Nothing is kept" in capsys.readouterr().out
    assert not path.exists()


def test_a_finished_run_resumed_and_stopped_early_stays_finished(tmp_path, monkeypatch):
    path = random_walk(Args(run_dir=str(tmp_path / "run")))
    monkeypatch.setattr(Run, "restore", lambda *args: signal.raise_signal(signal.SIGINT))
    random_walk(Args(run_dir=str(path), resume=str(path)))
    assert read_status(path)["finished"]


def test_config_and_status_say_what_ran(tmp_path):
    path = random_walk(Args(run_dir=str(tmp_path / "run"), save_model=True))
    config = read_config(path)
    assert (config["script"], config["method"]) == ("walk.py", "none")
    assert config["args"]["num_steps"] == 5
    assert config["args"]["scale_adv"] is True  # not None, which stood for what suits the env
    assert config["versions"]["torch"] == torch.__version__
    assert read_status(path)["iteration"] == 6
    assert set(checkpoint.load_model(path / "model.pt")["agent"]) == {"weight"}


def test_a_run_that_ends_in_nan_says_so_and_keeps_its_checkpoint(tmp_path):
    def spoil(run):
        run.stop_if_nan(torch.tensor([1.0, np.inf]))
        if run.iteration == 4:
            run.stop_if_nan(torch.tensor([1.0, np.nan]))

    path = tmp_path / "run"
    with pytest.raises(SystemExit, match="became NaN in iteration 4"):
        random_walk(Args(run_dir=str(path), checkpoint_every=3), watch=spoil)
    assert read_status(path)["reason"] == "NaN"
    assert checkpoint.load(path).iteration == 3


@pytest.fixture
def full_at_4(monkeypatch):
    """A disk that takes every checkpoint but that of iteration 4."""

    whole = checkpoint.write

    def write(run_dir, iteration, files, newest):
        if iteration == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(run_dir, iteration, files, newest)

    monkeypatch.setattr(checkpoint, "write", write)


@pytest.mark.usefixtures("full_at_4")
def test_a_finished_run_without_one_of_its_last_two_checkpoints_says_so(tmp_path, capsys):
    path = tmp_path / "run"
    args = Args(run_dir=str(path), checkpoint_every=2, save_model=True)
    for resume in ("", str(path)):  # it is still missing afterwards
        with pytest.raises(SystemExit) as ended:
            random_walk(Args(**{**vars(args), "resume": resume}))
        assert ended.value.code == INCOMPLETE == 3
        said = capsys.readouterr()
        assert said.out.endswith(f"Finished 6 iterations: {path}\n")
        assert f"error: {path} finished, but checkpoints/00000004 is missing." in said.err
        status = read_status(path)
        assert (status["iteration"], status["finished"]) == (6, True)
        assert status["lost"] == "checkpoints/00000004 is missing"
    assert checkpoint.load(path).iteration == 6
    assert (path / "model.pt").exists()


@pytest.mark.usefixtures("full_at_4")
def test_a_stopped_run_without_one_of_its_last_two_checkpoints_goes_on(tmp_path, capsys):
    path = tmp_path / "run"
    args = Args(run_dir=str(path), checkpoint_every=2)
    with pytest.raises(SystemExit) as ended:
        random_walk(args, watch=lambda run: run.iteration == 5 and signal.raise_signal(15))
    assert ended.value.code == INCOMPLETE
    assert f"error: {path} stopped by SIGTERM, but checkpoints/00000004" in capsys.readouterr().err
    assert not read_status(path)["finished"]
    random_walk(Args(**{**vars(args), "resume": str(path)}))
    assert read_status(path)["lost"] == ""


@pytest.mark.usefixtures("full_at_4")
def test_a_skipped_checkpoint_that_would_have_been_dropped_is_no_loss(tmp_path, capsys):
    path = random_walk(Args(run_dir=str(tmp_path / "run"), checkpoint_every=2, total_iterations=8))
    assert "Cannot write the checkpoint of iteration 4: [Errno 28] No" in capsys.readouterr().out
    assert read_status(path)["lost"] == ""


def test_video_without_its_package_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="--capture-video needs moviepy"):
        random_walk(Args(run_dir=str(tmp_path / "run"), capture_video=True))
    assert not (tmp_path / "run").exists()


def test_video_of_an_env_that_cannot_render_is_refused_at_the_start(tmp_path, monkeypatch):
    pytest.importorskip("moviepy")
    monkeypatch.setitem(gym.registry, "Blind-v0", EnvSpec("Blind-v0", entry_point=blind))
    with pytest.raises(SystemExit, match=r"cannot be built with render_mode='rgb_array'"):
        random_walk(Args(run_dir=str(tmp_path / "run"), env_id="Blind-v0", capture_video=True))
    assert not (tmp_path / "run").exists()
    random_walk(Args(run_dir=str(tmp_path / "run"), env_id="Blind-v0"))


def blind():
    return gym.make("CliffWalking-v1").unwrapped


def test_disk_space_is_that_of_checkpoints_and_log():
    layer = torch.nn.Linear(10, 10)
    assert disk_needed([layer, layer], 7) == 9 * 2 * 110 * 4 + 7 * 2048 + 2**20
