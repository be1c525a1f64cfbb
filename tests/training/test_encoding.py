from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from adops_wrappers.training.distributed import Ranks
from adops_wrappers.training.encoding import Encoder, Whitening

CPU = torch.device("cpu")


def test_images_are_stored_as_bytes_with_channels_last():
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 256, (2, 4, 84, 84), dtype=np.uint8)
    encoder = Encoder(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), "atari", CPU)
    stored = encoder.encode(obs)
    assert stored.dtype == encoder.dtype == torch.uint8
    assert tuple(stored.shape[1:]) == encoder.shape == (84, 84, 4)
    np.testing.assert_array_equal(stored.numpy(), obs.transpose(0, 2, 3, 1))
    # RND sees the newest frame alone.
    assert encoder.rnd_shape == (84, 84, 1)
    np.testing.assert_array_equal(encoder.novelty(stored)[..., 0].numpy(), obs[:, -1])
    features = encoder.features(stored)
    assert features.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)
    assert float(features.max()) <= 1.0


def test_images_with_channels_last_are_taken_as_they_are():
    obs = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    encoder = Encoder(gym.spaces.Box(0, 255, (64, 64, 3), np.uint8), "other", CPU)
    np.testing.assert_array_equal(encoder.encode(obs).numpy(), obs)
    assert encoder.rnd_shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("space", "kind", "obs", "expected"),
    [
        (gym.spaces.Discrete(3, start=1), "other", [1, 3], [[1, 0, 0], [0, 0, 1]]),
        (gym.spaces.Box(0, 255, (2, 1), np.uint8), "other", [[[255], [0]]], [[1.0, 0.0]]),
        (gym.spaces.Box(0, 255, (2,), np.uint8), "minigrid", [[10, 5]], [[1.0, 0.5]]),
        (gym.spaces.Box(-9, 9, (2,), np.float64), "other", [[3.5, -9.0]], [[3.5, -9.0]]),
    ],
)
def test_all_else_is_stored_as_flat_rows_of_floats(space, kind, obs, expected):
    encoder = Encoder(space, kind, CPU)
    stored = encoder.encode(np.array(obs, dtype=space.dtype))
    assert stored.dtype == torch.float32
    torch.testing.assert_close(stored, torch.tensor(expected, dtype=torch.float32))
    assert encoder.features(stored) is stored
    assert encoder.shape == encoder.rnd_shape == tuple(stored.shape[1:])


def test_observations_of_other_spaces_are_refused():
    with pytest.raises(SystemExit, match="not supported, only Box and Discrete"):
        Encoder(gym.spaces.MultiBinary(3), "other", CPU)


def test_whitening_equals_the_moments_of_all_that_was_seen():
    whitening, ranks = Whitening((3,), CPU), Ranks(1)
    rng = np.random.default_rng(2)
    batches = [rng.normal(5.0, 3.0, (8, 3)).astype(np.float32) for _ in range(5)]
    for number, batch in enumerate(batches):
        before = whitening.mean.clone()
        whitening.observe(torch.from_numpy(batch))
        assert torch.equal(whitening.mean, before)  # still within a rollout
        if number % 2:
            whitening.update(ranks)
    whitening.update(ranks)
    everything = np.concatenate(batches).astype(np.float64)
    np.testing.assert_allclose(whitening.mean, everything.mean(0), rtol=1e-4)
    np.testing.assert_allclose(whitening.var, everything.var(0), rtol=1e-4)
    assert whitening(torch.full((1, 3), 1e6)).tolist() == [[5.0, 5.0, 5.0]]


def test_whitening_comes_back_as_it_was():
    first, second, ranks = Whitening((3,), CPU), Whitening((3,), CPU), Ranks(1)
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(0)) * 4 + 2
    first.observe(x)
    first.update(ranks)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(x), first(x))
    assert not torch.equal(Whitening((3,), CPU)(x), first(x))
