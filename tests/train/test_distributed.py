"""One run on two gloo ranks: equal to one process, resumable, and never hanging."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.train.scripts import TRAIN, learned, read_metrics, start_script, zygote
from tests.zygote import Child

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


def start_two(*flags: str) -> Child:
    """Start a run as a user does, with torchrun."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return zygote().start([*command, str(TRAIN / "ppo_rnd.py"), *flags])


def variables_of_ranks() -> list[dict[str, str]]:
    """What torchrun tells each of two ranks."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"TORCHELASTIC_RUN_ID": "test", "OMP_NUM_THREADS": "1"}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]


def start_ranks(*flags: str) -> list[Child]:
    """Start both ranks without a launcher, which is quicker."""
    return [start_script("ppo_rnd.py", *flags, **own) for own in variables_of_ranks()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end_of(process: Child) -> str:
    return process.communicate(timeout=900)[0]


def good_end_of(ranks: list[Child]) -> str:
    """Return the output of both ranks, which must end well."""
    output = "".join(map(end_of, ranks))
    assert [rank.returncode for rank in ranks] == [0, 0], output
    return output


def newest_checkpoint(run_dir: Path) -> int:
    return max(int(path.name) for path in run_dir.glob("checkpoints/[0-9]*"))


def newest_state(run_dir: Path) -> dict:
    path = sorted(run_dir.glob("checkpoints/*/state.pt"))[-1]
    return torch.load(path, weights_only=True)


def ranks_of(launcher: Child) -> dict[int, int]:
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


def wait_for_rows(run_dir: Path, rows: int, process: Child) -> None:
    deadline = time.monotonic() + 900
    while not (run_dir / "metrics.csv").exists() or len(read_metrics(run_dir)) < rows:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A run on two ranks, from its start to its end."""
    run_dir = tmp_path_factory.mktemp("two") / "run"
    output = good_end_of(start_ranks(*FLAGS, "--run-dir", str(run_dir)))
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
    ranks = start_ranks(*flags, "--run-dir", str(two))
    ppo_rnd.train(ppo_rnd.parse_args([*flags, "--run-dir", str(one)]))
    good_end_of(ranks)
    ours, theirs = newest_state(two), newest_state(one)
    # The same transitions: where every env stands, and what it was paid.
    statistics, source = "EpisodeStatistics", "IntrinsicRewardWrapper"
    for layer, key in ((statistics, "returns"), (statistics, "lengths"), (source, "last_obs")):
        joined = torch.cat([rank["stack"][layer][key] for rank in ours["ranks"]])
        assert torch.equal(joined, theirs["ranks"][0]["stack"][layer][key])
    # The same update.
    for network in ("agent", "target", "predictor"):
        for name, tensor in theirs["shared"][network].items():
            torch.testing.assert_close(ours["shared"][network][name], tensor, msg=name)
    assert_same_metrics(two, one, 1, rel=1e-5)


def test_later_iterations_stay_those_of_one_process(tmp_path, ppo_rnd, two):
    """The whole algorithm, ADOPS and half of the predictor's rows included; rounding adds up."""
    one = tmp_path / "one"
    flags = [*FLAGS, "--total-iterations", "4", "--run-dir", str(one)]
    ppo_rnd.train(ppo_rnd.parse_args(flags))
    assert_same_metrics(two, one, 1, rel=1e-5)
    assert_same_metrics(two, one, 4, rel=1e-3)


def test_ranks_clamp_from_the_same_reward_on(tmp_path, ppo_rnd):
    """The first reward is one rank's; the clamp and its floor are those of one process."""
    one, two = tmp_path / "one", tmp_path / "two"
    own = ["--shaping", "none", "--clamp-advantage", "--scale-adv", "--total-iterations", "4"]
    own += ["--seed", "2"]  # pays in its third iteration for the first time
    process = start_two(*FLAGS, *own, "--run-dir", str(two))
    ppo_rnd.train(ppo_rnd.parse_args([*FLAGS, *own, "--run-dir", str(one)]))
    output = end_of(process)
    assert process.returncode == 0, output
    assert_same_metrics(two, one, 1, rel=1e-5)
    for found, expected in zip(learned(two), learned(one), strict=True):
        for rate in ("shaping/advantage_conflict_rate", "shaping/advantage_intervention_rate"):
            assert float(found[rate]) == float(expected[rate])  # of the same 64 advantages
    rates = [float(row["shaping/advantage_intervention_rate"]) for row in learned(two)]
    assert [rate > 0.0 for rate in rates] == [False, False, True, True]
    ours, theirs = (newest_state(path)["shared"] for path in (two, one))
    assert ours["combine"] == theirs["combine"] == {"rewarded": True}
    assert ours["floor"]["mean_square"] == pytest.approx(theirs["floor"]["mean_square"], rel=1e-3)


def test_every_rank_normalises_alike(two):
    """Moments are those of all envs, on every rank; the filters are each rank's own."""
    state = newest_state(two)
    assert len(state["ranks"]) == 2
    first, second = (
        rank["stack"]["IntrinsicRewardWrapper"]["normalizer"] for rank in state["ranks"]
    )
    assert first["moments"] == second["moments"]
    # All iterations, of 16 steps and 4 envs; the whitening also has one warm-up rollout.
    assert first["moments"][0] == ITERATIONS * 64
    assert state["shared"]["whitening"]["count"] == pytest.approx((1 + ITERATIONS) * 64)
    assert not torch.equal(first["returns"], second["returns"])


LEAVING = """
import pathlib, torch
from adops_wrappers.training.distributed import Ranks
ranks = Ranks(2, cuda=False)
torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])  # imports much of torch
ranks.gather(1)
ranks.close()
names = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
raise SystemExit(any("gloo" in name for name in names))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_no_thread_outlives_the_group():
    """It would abort the process if it needed Python while the interpreter ends."""
    ranks = [
        subprocess.Popen([sys.executable, "-c", LEAVING], env={**os.environ, **own})
        for own in variables_of_ranks()
    ]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]


def test_envs_of_the_ranks_have_their_own_seeds(two):
    ranks = newest_state(two)["ranks"]
    observations = [rank["stack"]["IntrinsicRewardWrapper"]["last_obs"] for rank in ranks]
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
    assert newest_checkpoint(run_dir) == rows < ITERATIONS

    process = start_two("--resume", str(run_dir))
    wait_for_rows(run_dir, rows + 1, process)
    second = ranks_of(process)[1]
    wait_for_rows(run_dir, rows + 5, process)
    os.kill(second, signal.SIGKILL)
    output = end_of(process)
    assert process.returncode != 0
    assert "Signal 9 (SIGKILL)" in output
    assert not (run_dir / "status.json").exists()  # it has not come to an end
    assert len(read_metrics(run_dir)) < ITERATIONS

    process = start_two("--resume", str(run_dir))
    output = end_of(process)
    assert process.returncode == 0, output
    assert learned(run_dir) == learned(two)
    ours, theirs = newest_state(run_dir), newest_state(two)
    for name, weights in theirs["shared"]["agent"].items():
        assert torch.equal(ours["shared"]["agent"][name], weights)


def test_a_silent_rank_ends_the_run_within_the_timeout(tmp_path):
    """Without a launcher's help: the other rank gives up by itself."""
    run_dir = tmp_path / "run"
    flags = [*FLAGS, "--rank-timeout", "5", "--total-iterations", "100000"]
    processes = start_ranks(*flags, "--run-dir", str(run_dir))
    try:
        wait_for_rows(run_dir, 2, processes[0])
        processes[1].send_signal(signal.SIGSTOP)
        output = processes[0].communicate(timeout=900)[0]
        assert processes[0].returncode == 1
        assert "imed out" in output
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_other_number_of_ranks_is_refused(two, ppo_rnd):
    args = ppo_rnd.parse_args(["--resume", str(two)])
    message = r"written by 2 ranks, this run has 1\. Start it with torchrun --nproc-per-node 2"
    with pytest.raises(SystemExit, match=message):
        ppo_rnd.train(args)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bonus": "count"}, r"--bonus count keeps its counts in one process"),
        ({"shaping": "guarded"}, r"the guarded scale learns from all envs of a process: do not"),
    ],
)
def test_what_learns_in_one_process_is_refused(ppo_rnd, monkeypatch, tmp_path, settings, message):
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back afterwards
    with pytest.raises(SystemExit, match=message):
        ppo_rnd.train(ppo_rnd.Args(num_envs=6, run_dir=str(tmp_path / "run"), **settings))
    sys.stdout.close()
    assert not (tmp_path / "run").exists()
