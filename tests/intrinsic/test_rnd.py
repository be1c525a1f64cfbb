from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

torch = pytest.importorskip("torch")

from adops_wrappers import IntrinsicRewardWrapper, evaluation_mode  # noqa: E402
from adops_wrappers.intrinsic.rnd import RND  # noqa: E402
from tests import toolkit as tk  # noqa: E402

BOX = gym.spaces.Box(-10.0, 10.0, (3,), np.float64)

pytestmark = pytest.mark.usefixtures("one_thread")


def relu_layers(network: Any, x: Any) -> Any:
    """The network's body in numpy."""
    weights = [p.detach().numpy().astype(np.float64) for p in network.body.parameters()]
    for i in range(0, len(weights), 2):
        x = x @ weights[i].T + weights[i + 1]
        if i + 2 < len(weights):
            x = np.maximum(x, 0.0)
    return x


def test_bonus_is_the_mean_squared_error_on_whitened_observations() -> None:
    rng = np.random.default_rng(0)
    source = RND(BOX, seed=0, clip=1.0, batch_size=10**6)
    seen = rng.normal(2.0, 3.0, (40, 3))
    for batch in np.split(seen, 4):
        bonus = source(None, None, batch, valid=np.ones(10, dtype=np.bool_))
    white = np.clip((seen[-10:] - seen.mean(0)) / seen.std(0), -1.0, 1.0)
    gap = relu_layers(source.predictor, white) - relu_layers(source.target, white)
    np.testing.assert_allclose(bonus, (gap**2).mean(axis=1), rtol=1e-4)


def test_familiar_observations_earn_less_and_new_ones_more() -> None:
    rng = np.random.default_rng(0)
    source = RND(BOX, seed=0)
    familiar = rng.uniform(-1.0, 1.0, (256, 3))
    first = np.mean(source(None, None, familiar))
    for _ in range(400):
        source(None, None, familiar[rng.integers(0, 256, 64)])
    source.frozen = True
    assert np.mean(source(None, None, familiar)) < 0.05 * first
    far = np.array([[9.0, -9.0, 9.0]])
    assert source(None, None, far)[0] > 20 * np.mean(source(None, None, familiar))


def test_dummy_rows_and_frozen_calls_leave_no_trace() -> None:
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(30, 4, 3))
    plain, other = RND(BOX, seed=0, batch_size=8), RND(BOX, seed=0, batch_size=8)
    for batch in batches:
        expected = plain(None, None, batch)
        polluted = np.concatenate([batch, np.full((2, 3), 99.0)])
        valid = np.array([True] * 4 + [False] * 2)
        found = other(None, None, polluted, valid=valid)
        np.testing.assert_array_equal(found, [*expected, 0.0, 0.0])
        other.frozen = True
        other(None, None, 5.0 * batch)
        other.frozen = False
    assert other(None, None, polluted, valid=np.zeros(6, dtype=np.bool_)).tolist() == [0.0] * 6


def test_learning_uses_the_observations_as_they_were() -> None:
    """An env with copy=False overwrites the array between two calls."""
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(20, 4, 3))
    fresh, reused = RND(BOX, seed=0, batch_size=8), RND(BOX, seed=0, batch_size=8)
    buffer = np.empty((4, 3))
    for batch in batches:
        buffer[:] = batch
        np.testing.assert_array_equal(fresh(None, None, batch), reused(None, None, buffer))


def test_single_env_equals_a_vector_env_of_one() -> None:
    single, batch = RND(BOX, seed=0, batch_size=4), RND(BOX, seed=0, batch_size=4)
    for obs in np.random.default_rng(0).normal(size=(12, 3)):
        one = single(None, 0, obs, valid=True)
        assert type(one) is float
        assert one == batch(None, None, obs[None])[0]


def test_state_dict_resumes_exactly() -> None:
    rng = np.random.default_rng(0)
    first, second = RND(BOX, seed=0, batch_size=8), RND(BOX, seed=1, batch_size=8)
    for batch in rng.normal(size=(7, 3, 3)):
        first(None, None, batch)
    saved = first.state_dict()
    first(None, None, np.ones((3, 3)))  # what follows must not change what was saved
    first.load_state_dict(saved)
    second.load_state_dict(saved)
    for batch in rng.normal(size=(20, 3, 3)):
        np.testing.assert_array_equal(first(None, None, batch), second(None, None, batch))


@pytest.mark.parametrize("kind", ["discrete", "dict", "tuple"])
def test_in_a_stack_with_structured_observations(kind: str) -> None:
    env = tk.make_vector("sync", AutoresetMode.NEXT_STEP, obs_kind=kind)
    source = RND(env.single_observation_space, seed=0)
    env = IntrinsicRewardWrapper(env, source)
    env.reset(seed=0)
    rewards, masks = [], []
    for _ in range(20):
        info = env.step(np.zeros(3, dtype=np.int64))[4]
        rewards.append(info["intrinsic_reward"])
        masks.append(info["_intrinsic_reward"])
    assert (np.array(rewards)[np.array(masks)] > 0.0).all()
    assert (np.array(rewards)[~np.array(masks)] == 0.0).all()
    before = source.state_dict()
    with evaluation_mode(env):
        env.step(np.zeros(3, dtype=np.int64))
    for name, value in source.state_dict()["predictor"].items():
        assert torch.equal(value, before["predictor"][name])


def test_bad_settings() -> None:
    for name in ("features", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
            RND(BOX, **{name: 0})
    with pytest.raises(ValueError, match="clip must be a number greater than 0"):
        RND(BOX, clip=0.0)
    with pytest.raises(ValueError, match="learning_rate must be"):
        RND(BOX, learning_rate=0.0)
