"""Training asks no more of a GPU than it did: launches, copies and waits of the pixel path."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from adops_wrappers.training.encoding import Encoder
from tests.device.commands import SMALL
from tests.device.simulated_gpu import Counts, counting
from tests.device.work import measure

pytest.importorskip("ale_py")
pytest.importorskip("tyro")
from train import ppo_rnd

FLAGS = (
    *("--num-envs", "2", "--num-steps", "6", "--total-iterations", "3", "--no-tensorboard"),
    *("--obs-norm-init-iterations", "1", "--checkpoint-every", "0", "--torch-threads", "1"),
    *("--update-epochs", "2", "--num-minibatches", "2"),
)
PER_VECTOR_STEP = Counts(launches=60, uploads=1, downloads=1)
PER_MINIBATCH = Counts(launches=186)
"""The most that is allowed. Lower them with every saving; `benchmarks/gpu_work.py --lines` shows
where the rest comes from."""


def assert_at_most(counts: Counts, most: Counts) -> None:
    for name in ("launches", "uploads", "downloads", "syncs"):
        assert getattr(counts, name) <= getattr(most, name), (name, counts, counts.lines)


def test_work_of_the_pixel_path(tmp_path: Path) -> None:
    found = measure("ppo_rnd.py", *FLAGS, "--shaping", "adops", "--run-dir", tmp_path / "run")
    assert_at_most(found.vector_step, PER_VECTOR_STEP)
    assert_at_most(found.minibatch, PER_MINIBATCH)
    # One stack of four frames serves the agent and RND, two envs.
    assert found.vector_step.upload_bytes == 2 * 4 * 84 * 84
    # Values, action and bonus.
    assert found.vector_step.download_bytes == 2 * 4 * 4
    assert found.iteration.launches > 6 * 20 + 4 * 100


@pytest.mark.parametrize("flags", [("--update-proportion", "0.5"), ("--bonus", "none")])
def test_no_minibatch_waits_whatever_is_trained(flags: tuple[str, ...], tmp_path: Path) -> None:
    small = (*SMALL, "--total-iterations", "3", "--checkpoint-every", "0")
    found = measure("ppo_rnd.py", *small, *flags, "--run-dir", tmp_path / "run")
    assert_at_most(found.vector_step, PER_VECTOR_STEP)
    assert_at_most(found.minibatch, PER_MINIBATCH)


STACK = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)


def random_frames(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*shape, 4, 84, 84), dtype=np.uint8)


def test_frames_are_permuted_on_the_device() -> None:
    frames = random_frames(2)
    with counting() as counts:
        stored = Encoder(STACK, "atari", torch.device("cuda")).encode(frames)
    assert counts == Counts(launches=1, uploads=1, upload_bytes=frames.nbytes)
    np.testing.assert_array_equal(stored.cpu().numpy(), frames.transpose(0, 2, 3, 1))


def test_frames_are_kept_as_bytes() -> None:
    frames = random_frames(3, 2)
    losses = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        bonus = ppo_rnd.RNDBonus(Encoder(STACK, "atari", torch.device(device)), 64, 3, 2)
        scores = np.array([bonus.reward(None, None, frame) for frame in frames])
        losses[device] = bonus.loss(torch.arange(6, device=device), 6).item()
        assert losses[device] == pytest.approx(scores.mean(), rel=1e-5)
    assert bonus.inputs.dtype == torch.uint8
    assert losses["cuda"] == losses["cpu"]
