"""End to end on AtariVectorEnv, a few hundred steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from train_scripts import learned, run_script

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
    last = ppo_rnd.load_checkpoint(run_dir)[0]
    assert last["iteration"] == 3
    ppo_rnd.shutil.rmtree(run_dir / "checkpoints" / "00000003")
    ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(run_dir)]))
    assert "restart from reset, running episodes are dropped" in capfd.readouterr().out
    assert [int(row["iteration"]) for row in learned(run_dir)] == [1, 2, 3]


def test_evaluation_counts_rooms(run_dir):
    output = run_script("evaluate.py", str(run_dir), "--episodes", "1")
    assert "rooms visited 1: [1]" in output
    assert "episode length 20.0" in output


def test_sync_backend_sees_what_the_vector_backend_sees(ppo_rnd):
    args = ppo_rnd.Args(num_envs=2, sticky_action_prob=0.0)
    vector = ppo_rnd.make_vector_env(args, "atari")
    args.atari_backend = "sync"
    sync = ppo_rnd.make_vector_env(args, "atari")
    vector.reset(seed=0)
    sync.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(8):
        action = rng.integers(0, 18, 2)
        ours, theirs = vector.step(action)[0], sync.step(action)[0]
    assert ours.shape == theirs.shape == (2, 4, 84, 84)
    # Two resizing libraries differ in the last bits of a pixel.
    assert np.abs(ours.astype(int) - theirs.astype(int)).mean() < 2.0
    counted = ppo_rnd.ExtrinsicReward(sync, 0.001, count_rooms=True)
    counted.reset(seed=0)
    counted.step(np.array([0, 0]))
    assert counted.rooms == {1}
    vector.close()
    sync.close()


def test_images_are_stored_as_bytes_with_channels_last(ppo_rnd):
    args = ppo_rnd.Args(num_envs=2)
    envs = ppo_rnd.make_vector_env(args, "atari")
    obs, _ = envs.reset(seed=0)
    encoder = ppo_rnd.Encoder(envs.single_observation_space, "atari", torch.device("cpu"), False)
    stored = encoder.encode(obs)
    assert stored.dtype == torch.uint8
    np.testing.assert_array_equal(stored.numpy(), obs.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(encoder.novelty(obs)[..., 0].numpy(), obs[:, -1])
    features = encoder.features(stored)
    assert features.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)
    assert float(features.max()) <= 1.0
    envs.close()
