"""The gallery in torch against the gallery in NumPy, transition by transition."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

torch = pytest.importorskip("torch")

from adops_wrappers.envs import LAYOUTS, GalleryTensorEnv, GalleryVectorEnv  # noqa: E402
from adops_wrappers.envs.gridworld import IMAGE_BITS  # noqa: E402

ROWS, HORIZON = 64, 30
DETERMINISTIC = [name for name in LAYOUTS if name != "DancingSkulls"]


def put(env: GalleryTensorEnv, slow: GalleryVectorEnv, state: np.ndarray, time: np.ndarray) -> None:
    """Place the rows of both envs anywhere."""
    env._state, env._time = torch.tensor(state), torch.tensor(time)
    slow.dynamics.state, slow.dynamics.time = state.copy(), time.copy()


def assert_same_observations(found: torch.Tensor, expected: np.ndarray) -> None:
    """The pictures are random: they must be there where the others are, and hold ±1."""
    np.testing.assert_array_equal(found[:, :-IMAGE_BITS].numpy(), expected[:, :-IMAGE_BITS])
    np.testing.assert_array_equal(found[:, -IMAGE_BITS:].abs(), np.abs(expected[:, -IMAGE_BITS:]))


@pytest.mark.parametrize("layout", DETERMINISTIC)
def test_every_transition_is_that_of_the_numpy_env(layout: str) -> None:
    world = GalleryVectorEnv(1, layout).world
    states = np.flatnonzero(~world.terminal)
    everywhere = np.stack(np.meshgrid(states, np.arange(world.num_actions))).reshape(2, -1)
    rows = everywhere.shape[1]
    env = GalleryTensorEnv(rows, layout, HORIZON)
    slow = GalleryVectorEnv(rows, layout, HORIZON, AutoresetMode.SAME_STEP)
    slow.reset(seed=0)
    assert_same_observations(env.reset(seed=0)[0], slow.reset()[0])
    for time in (0, 7, HORIZON - 1):
        put(env, slow, everywhere[0], np.full(rows, time))
        one = env.step(torch.tensor(everywhere[1]))
        other = slow.step(everywhere[1])
        assert_same_observations(one[0], other[0])
        assert one[1].dtype == torch.float32
        np.testing.assert_array_equal(one[1].numpy(), other[1].astype(np.float32))
        np.testing.assert_array_equal(one[2], other[2])
        np.testing.assert_array_equal(one[3], other[3])
        ended = other[2] | other[3]
        assert ended.all() if time == HORIZON - 1 else ended.any() == other[2].any()
        np.testing.assert_array_equal(one[4]["_final_obs"], ended)
        if ended.any():
            expected = np.stack([o for o in other[4]["final_obs"] if o is not None])
            assert_same_observations(one[4]["final_obs"][ended], expected)
        going = torch.tensor(~ended)
        assert torch.equal(one[4]["final_obs"][going], one[0][going])


def test_episodes_are_those_of_the_numpy_env() -> None:
    env = GalleryTensorEnv(ROWS, "KeyDoorCoin", HORIZON)
    slow = GalleryVectorEnv(ROWS, "KeyDoorCoin", HORIZON, AutoresetMode.SAME_STEP)
    env.reset(seed=0), slow.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(3 * HORIZON):
        actions = rng.integers(0, 5, ROWS)
        one, other = env.step(torch.tensor(actions)), slow.step(actions)
        for found, expected in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.astype(found.numpy().dtype))


def test_the_skull_catches_as_often_as_in_the_numpy_env() -> None:
    world = GalleryVectorEnv(1, "DancingSkulls").world
    dancing = int(np.flatnonzero(world.catch_probability)[0])
    rows = 40_000
    env = GalleryTensorEnv(rows, "DancingSkulls")
    env.reset(seed=0)
    env._state = torch.full_like(env._state, dancing)
    onto_the_floor = world.catch_probability[world.next_state[dancing]] > 0
    action = int(np.flatnonzero(onto_the_floor)[0])
    env._state = torch.full_like(env._state, dancing)
    caught = env.step(torch.full((rows,), action))[2].double().mean()
    deviation = (0.1 * 0.9 / rows) ** 0.5
    assert abs(float(caught) - 0.1) < 4 * deviation


def test_a_seed_and_a_copy_repeat_the_pictures() -> None:
    env = GalleryTensorEnv(ROWS, "TVCorridor", HORIZON)
    left, found = torch.full((ROWS,), 3), []
    for _ in range(2):
        env.reset(seed=5)
        found.append(torch.stack([env.step(left)[0] for _ in range(8)]))
    assert torch.equal(*found)
    assert found[0][5:, :, -IMAGE_BITS:].abs().min() == 1.0
    assert abs(float(found[0][5:, :, -IMAGE_BITS:].mean())) < 0.1
    copied = deepcopy(env)
    assert torch.equal(copied.step(left)[0], env.step(left)[0])


def test_bad_settings_are_errors() -> None:
    with pytest.raises(ValueError, match="num_envs"):
        GalleryTensorEnv(0, "KeyDoor")
    with pytest.raises(ValueError, match="horizon"):
        GalleryTensorEnv(2, "KeyDoor", 0)
    with pytest.raises(ValueError, match="layout must be one of"):
        GalleryTensorEnv(2, "Nowhere")
