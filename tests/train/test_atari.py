"""End to end on AtariVectorEnv, a few hundred steps."""

from __future__ import annotations

import shutil

import pytest

from adops_wrappers.envs import montezuma_key
from adops_wrappers.training import checkpoint
from tests.train.scripts import learned, load_script, run_script

pytest.importorskip("ale_py")

FLAGS = [
    *("--num-envs", "4", "--num-steps", "32", "--update-epochs", "1", "--checkpoint-every", "1"),
    *("--obs-norm-init-iterations", "1", "--max-episode-steps", "20", "--no-tensorboard"),
    *("--torch-threads", "1"),
]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("atari") / "run"
    flags = ("--shaping", "adops", "--env-id", "ALE/MontezumaRevenge-v4")
    output = run_script(
        "ppo_rnd.py", *FLAGS, *flags, "--run-dir", str(folder), "--total-iterations", "3"
    )
    said = "does not exist in today's ale-py. Running ALE/MontezumaRevenge-v5 instead"
    assert output.count(said) == 1
    return folder


def test_montezuma_trains(run_dir):
    rows = learned(run_dir)
    assert len(rows) == 3
    assert float(rows[0]["charts/episodic_length"]) == 20.0
    assert int(rows[2]["charts/episodes"]) == 16  # 96 steps of 4 envs, cut at 20
    assert float(rows[0]["shaping/raw_mean"]) > 0.0
    assert float(rows[0]["shaping/intervention_rate"]) > 0.0
    assert 1 / 18 <= float(rows[0]["charts/action_prob_max"]) < 0.2


def test_emulators_restart_on_resume(run_dir, ppo_rnd, capfd):
    shutil.rmtree(run_dir / "checkpoints" / "00000003")
    ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(run_dir)]))
    assert "start again from reset, and unfinished episodes are dropped" in capfd.readouterr().out
    assert [int(row["iteration"]) for row in learned(run_dir)] == [1, 2, 3]


def test_evaluation_counts_rooms(run_dir):
    output = run_script("evaluate.py", str(run_dir), "--episodes", "1")
    assert "rooms visited 1: [1]" in output
    assert "episode length 20.0" in output


@pytest.fixture(scope="module")
def ram_dir(tmp_path_factory, ppo_rnd):
    folder = tmp_path_factory.mktemp("ram") / "run"
    flags = ["--atari-obs", "ram", "--bonus", "count", "--total-iterations", "2"]
    ppo_rnd.train(ppo_rnd.parse_args([*FLAGS, *flags, "--run-dir", str(folder)]))
    return folder


def test_montezuma_trains_from_ram_and_names_its_rooms(ram_dir):
    rows = learned(ram_dir)
    assert [int(row["charts/rooms"]) for row in rows] == [1, 1]
    assert [float(row["charts/episodic_rooms"]) for row in rows] == [1.0, 1.0]
    assert float(rows[0]["charts/episodic_length"]) == 20.0
    output = run_script("evaluate.py", str(ram_dir), "--episodes", "1")
    assert "rooms visited 1: [1]" in output


def test_counts_count_the_envs_key(ram_dir):
    """Four bytes, of which the first is the room and the last the items; nothing is held yet."""
    stack = checkpoint.from_plain(checkpoint.load(ram_dir).state["ranks"][0]["stack"])
    counts = next(part["source"]["counts"] for part in stack.values() if "source" in part)
    assert {(len(key), key[0], key[3]) for key in counts} == {(4, 1, 0)}
    assert sum(counts.values()) == 2 * 4 * 32
    record = load_script("record")
    _, learner, stack = record.make_stack(record.RecordArgs(str(ram_dir)))
    assert learner.source.key is montezuma_key
    assert learner.source.counts == counts
    stack.close()
