"""One run on two gloo ranks: equal to one process, resumable, and never hanging."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from train_scripts import TRAIN, environment, learned, read_metrics

pytest.importorskip("minigrid")
if not torch.distributed.is_available():
    pytest.skip("this torch has no distributed package", allow_module_level=True)

ITERATIONS = 120
FLAGS = [
    *("--env-id", "MiniGrid-Empty-Random-5x5-v0", "--max-episode-steps", "10"),
    *("--num-envs", "4", "--num-steps", "16", "--mlp-hidden", "16", "--torch-threads", "1"),
    *("--obs-norm-init-iterations", "1", "--learning-rate", "1e-3", "--shaping", "adops"),
    *("--update-proportion", "0.5", "--no-tensorboard", "--checkpoint-every", "4"),
    *("--total-iterations", str(ITERATIONS), "--rank-timeout", "60"),
]


def start_two(*flags: str) -> subprocess.Popen:
    """Start a run as a user does, with torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.Popen(
        [*command, "--nproc-per-node", "2", str(TRAIN / "ppo_rnd.py"), *flags],
        env={**environment(), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end_of(process: subprocess.Popen) -> str:
    return process.communicate(timeout=180)[0]


def newest_state(run_dir: Path) -> dict:
    path = sorted(run_dir.glob("checkpoints/*/state.pt"))[-1]
    return torch.load(path, weights_only=True)


def ranks_of(launcher: subprocess.Popen) -> dict[int, int]:
    """Return the process id of every rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = (path / "stat").read_text().rsplit(")", 1)[1].split()[1]
            variables = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(parent) == launcher.pid:
            found.update({int(v[5:]): int(path.name) for v in variables if v[:5] == b"RANK="})
    return found


def wait_for_rows(run_dir: Path, rows: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not (run_dir / "metrics.csv").exists() or len(read_metrics(run_dir)) < rows:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A run on two ranks, from its start to its end."""
    run_dir = tmp_path_factory.mktemp("two") / "run"
    process = start_two(*FLAGS, "--run-dir", str(run_dir))
    output = end_of(process)
    assert process.returncode == 0, output
    # Said and written once.
    assert output.count("2 ranks") == output.count(f"Finished {ITERATIONS} iterations") == 1
    return run_dir


def assert_same_metrics(ours: Path, theirs: Path, rows: int, rel: float) -> None:
    for found, expected in zip(learned(ours)[:rows], learned(theirs)[:rows], strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if value:
                assert float(found[name]) == pytest.approx(float(value), rel=rel, abs=1e-7), name
            else:
                assert not found[name]


def test_first_update_equals_that_of_one_process(tmp_path, ppo_rnd):
    """Four envs in one process against two ranks of two envs, on the same transitions."""
    one, two = tmp_path / "one", tmp_path / "two"
    flags = [*FLAGS, "--norm-adv", "--shaping", "pbim-norm", "--total-iterations", "1"]
    process = start_two(*flags, "--run-dir", str(two))
    ppo_rnd.train(ppo_rnd.parse_args([*flags, "--run-dir", str(one)]))
    output = end_of(process)
    assert process.returncode == 0, output
    ours, theirs = newest_state(two), newest_state(one)
    # The same transitions: where every env stands, and what it was paid.
    for key in ("returns", "lengths"):
        joined = torch.cat([rank["statistics"][key] for rank in ours["ranks"]])
        assert torch.equal(joined, theirs["ranks"][0]["statistics"][key])
    joined = torch.cat([rank["next_obs"] for rank in ours["ranks"]])
    assert torch.equal(joined, theirs["ranks"][0]["next_obs"])
    # The same update.
    for network, weights in theirs["networks"].items():
        for name, tensor in weights.items():
            torch.testing.assert_close(ours["networks"][network][name], tensor, msg=name)
    assert_same_metrics(two, one, 1, rel=1e-5)


def test_later_iterations_stay_those_of_one_process(tmp_path, ppo_rnd, two):
    """The whole algorithm, ADOPS and half of the predictor's rows included; rounding adds up."""
    one = tmp_path / "one"
    ppo_rnd.train(ppo_rnd.parse_args([*FLAGS, "--run-dir", str(one)]))
    assert_same_metrics(two, one, 1, rel=1e-5)
    assert_same_metrics(two, one, 4, rel=1e-3)


def test_every_rank_normalises_alike(two):
    """Moments are those of all envs, on every rank; the filters are each rank's own."""
    state = newest_state(two)
    assert len(state["ranks"]) == 2
    first, second = (rank["source"]["normalizer"] for rank in state["ranks"])
    assert first["moments"] == second["moments"]
    # One warm-up rollout and all iterations, of 16 steps and 4 envs.
    assert first["moments"][0] == (1 + ITERATIONS) * 64
    assert state["whitening"]["count"] == pytest.approx((1 + ITERATIONS) * 64)
    assert not torch.equal(first["returns"], second["returns"])


def test_envs_of_the_ranks_have_their_own_seeds(two):
    observations = [rank["next_obs"] for rank in newest_state(two)["ranks"]]
    assert not torch.equal(*observations)
    files = sorted(path.name for path in two.glob(f"checkpoints/{ITERATIONS:08d}/envs*"))
    assert files == ["envs.pkl", "envs1.pkl"]


def test_stopped_and_killed_ranks_resume_to_the_same_numbers(tmp_path, two):
    """A signal to one rank stops all; the death of one ends the run with an error."""
    run_dir = tmp_path / "run"
    process = start_two(*FLAGS, "--run-dir", str(run_dir))
    wait_for_rows(run_dir, 1, process)
    second = ranks_of(process)[1]
    wait_for_rows(run_dir, 6, process)
    os.kill(second, signal.SIGTERM)
    output = end_of(process)
    assert process.returncode == 0, output
    rows = len(read_metrics(run_dir))
    assert f"Run stopped by SIGTERM after iteration {rows}" in output
    assert newest_state(run_dir)["iteration"] == rows < ITERATIONS

    process = start_two("--resume", str(run_dir))
    wait_for_rows(run_dir, rows + 1, process)
    second = ranks_of(process)[1]
    wait_for_rows(run_dir, rows + 5, process)
    os.kill(second, signal.SIGKILL)
    output = end_of(process)
    assert process.returncode != 0
    assert "Signal 9 (SIGKILL)" in output
    assert "finished" not in (run_dir / "status.json").read_text().split("reason")[1]
    assert len(read_metrics(run_dir)) < ITERATIONS

    process = start_two("--resume", str(run_dir))
    output = end_of(process)
    assert process.returncode == 0, output
    assert learned(run_dir) == learned(two)
    ours, theirs = newest_state(run_dir), newest_state(two)
    for name, weights in theirs["networks"]["agent"].items():
        assert torch.equal(ours["networks"]["agent"][name], weights)


def test_a_silent_rank_ends_the_run_within_the_timeout(tmp_path):
    """Without a launcher's help: the other rank gives up by itself."""
    run_dir = tmp_path / "run"
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    variables |= {"TORCHELASTIC_RUN_ID": "test", "OMP_NUM_THREADS": "1"}
    flags = [*FLAGS, "--rank-timeout", "5", "--total-iterations", "100000"]
    processes = [
        subprocess.Popen(
            [sys.executable, str(TRAIN / "ppo_rnd.py"), *flags, "--run-dir", str(run_dir)],
            env={**environment(), **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        wait_for_rows(run_dir, 2, processes[0])
        processes[1].send_signal(signal.SIGSTOP)
        output = processes[0].communicate(timeout=60)[0]
        assert processes[0].returncode == 1
        assert "imed out" in output
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_other_number_of_ranks_is_refused(two, ppo_rnd):
    args = ppo_rnd.parse_args(["--resume", str(two)])
    message = r"written by 2 ranks, this run has 1\. Start it with torchrun --nproc-per-node 2"
    with pytest.raises(SystemExit, match=message):
        ppo_rnd.train(args)


@pytest.fixture
def launched(monkeypatch):
    """As one of three processes of torchrun, before any of them has met the others."""
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 4}, r"--num-envs 4 cannot be split over 3 ranks\. Choose a multiple"),
        ({"num_envs": 6, "bonus": "count"}, r"--bonus count keeps its counts in one process"),
        ({"num_envs": 6, "shaping": "guarded"}, r"guarded scale has one beta for all envs of a"),
    ],
)
def test_settings_that_cannot_be_split_are_refused(ppo_rnd, settings, message):
    with pytest.raises(SystemExit, match=message):
        ppo_rnd.Ranks(ppo_rnd.Args(**settings))


@pytest.mark.usefixtures("launched")
def test_missing_gpu_is_said(ppo_rnd, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SystemExit, match=r"rank 1 wants GPU 1 of this machine, which has 1"):
        ppo_rnd.Ranks(ppo_rnd.Args(num_envs=6))


@pytest.mark.usefixtures("launched")
def test_rows_of_the_ranks_are_those_of_the_whole(ppo_rnd, monkeypatch):
    """Each row of a shuffled minibatch goes to the one rank that holds its env."""
    steps, envs = 5, 6
    values = np.arange(steps * envs).reshape(steps, envs)
    rows = torch.randperm(steps * envs, generator=torch.Generator().manual_seed(0))[:17]
    found = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        ranks = ppo_rnd.Ranks(ppo_rnd.Args(num_envs=envs))
        own = torch.from_numpy(values[:, ranks.envs].copy()).flatten()
        found += own[ranks.own_rows(rows)].tolist()
    assert sorted(found) == sorted(rows.tolist())
    assert len(found) == 17


class Talk:
    """Ranks that agree by way of a function."""

    launched, launcher = True, os.getppid()

    def __init__(self, gather):
        self.gather = gather


def test_a_signal_that_comes_while_the_ranks_talk_is_not_lost(ppo_rnd):
    def interrupted(value):
        os.kill(os.getpid(), signal.SIGTERM)
        return ["", value]

    stop = ppo_rnd.StopOnSignal(Talk(interrupted))
    try:
        stop.agree()
        assert stop.requested == ""
        stop.agree()
        assert stop.requested == "SIGTERM"
    finally:
        stop.restore()


def test_ranks_stop_when_their_launcher_has_died(ppo_rnd):
    ranks = Talk(lambda value: [value])
    stop = ppo_rnd.StopOnSignal(ranks)
    try:
        stop.agree()
        assert stop.requested == ""
        ranks.launcher = -1
        stop.agree()
        assert stop.requested == "the death of its launcher"
    finally:
        stop.restore()


def test_one_process_leaves_all_as_it_is(ppo_rnd):
    ranks = ppo_rnd.Ranks(ppo_rnd.Args(num_envs=4))
    rows, array = torch.tensor([5, 3, 1]), np.ones((2, 4))
    assert ranks.own_rows(rows) is rows
    assert ranks.sum(rows) is rows
    assert ranks.gather("a") == ["a"]
    np.testing.assert_array_equal(ranks.side_by_side(array)[0], array)
    assert (ranks.envs, ranks.main, ranks.world) == (slice(0, 4), True, 1)


def test_rank_timeout_must_be_positive(ppo_rnd):
    with pytest.raises(SystemExit, match="--rank-timeout must be above 0, got 0"):
        ppo_rnd.parse_args(["--rank-timeout", "0"])
