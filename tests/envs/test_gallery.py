from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers.envs import GALLERY_IDS, GalleryEnv, GalleryVectorEnv
from adops_wrappers.envs.gridworld import IMAGE_BITS

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
SHORT = 15


@pytest.mark.parametrize("env_id", GALLERY_IDS)
def test_check_env(env_id):
    check_env(gym.make(env_id, render_mode="rgb_array").unwrapped)


def to_noise(env_id):
    """An action sequence from the start that reaches a noisy cell or the goal."""
    return {
        "adops/TVCorridor-v0": [3] * 6,
        "adops/DancingSkulls-v0": [1, 1, 1, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2],
    }.get(env_id, [2] * 5 + [4] + [0] * 2 + [1] * 5 + [4] + [1] * 7 + [0] * 4 + [1] * 3)


@pytest.mark.parametrize("env_id", GALLERY_IDS)
@pytest.mark.parametrize("mode", MODES)
def test_vector_env_equals_single_envs(env_id, mode):
    """Row i of the vector env seeded s gives the stream of a single env seeded s + i."""
    rows, horizon = 6, 40
    fast = gym.make_vec(env_id, num_envs=rows, horizon=horizon, autoreset_mode=mode)
    slow = SyncVectorEnv(
        [lambda: gym.make(env_id, horizon=horizon) for _ in range(rows)], autoreset_mode=mode
    )
    rng = np.random.default_rng(0)
    first, second = fast.reset(seed=7), slow.reset(seed=7)
    assert np.array_equal(first[0], second[0])
    script = to_noise(env_id)
    pictures = ends = 0
    for t in range(4 * horizon):
        actions = rng.integers(0, fast.single_action_space.n, rows)
        if t < len(script):
            actions[: rows // 2] = script[t] % fast.single_action_space.n
        one, other = fast.step(actions), slow.step(actions)
        for name, a, b in zip(
            ("obs", "reward", "terminated", "truncated"), one, other, strict=False
        ):
            assert np.array_equal(a, b), (name, t)
        assert one[0].dtype == np.float32
        ended = one[2] | one[3]
        ends += int(ended.sum())
        pictures += int(np.any(one[0][:, -IMAGE_BITS:] != 0))
        if mode is AutoresetMode.SAME_STEP:
            assert ("final_obs" in one[4]) == ended.any() == ("final_obs" in other[4])
            for row in np.flatnonzero(ended):
                assert np.array_equal(one[4]["final_obs"][row], other[4]["final_obs"][row])
    assert ends > 10
    if env_id in ("adops/KeyDoorTV-v0", "adops/TVCorridor-v0", "adops/DancingSkulls-v0"):
        assert pictures > 3


def test_pictures_are_new_at_every_step_and_only_on_the_tv():
    env = gym.make("adops/TVCorridor-v0")
    obs, _ = env.reset(seed=0)
    for _ in range(3):
        obs = env.step(3)[0]
        assert not obs[-IMAGE_BITS:].any()
    seen = [env.step(3)[0][-IMAGE_BITS:] for _ in range(40)]
    assert all(set(np.unique(bits)) <= {-1.0, 1.0} for bits in seen)
    assert len({bits.tobytes() for bits in seen}) > 35
    assert abs(np.mean(seen)) < 0.15


def test_goal_reward_falls_with_the_clock():
    env = gym.make("adops/TVCorridor-v0", horizon=30)
    env.reset(seed=0)
    env.step(0)  # a wall: one step is lost
    for _ in range(12):
        assert env.step(1)[1:4] == (0.0, False, False)
    _, reward, terminated, truncated, _ = env.step(1)
    assert reward == pytest.approx(1 - 0.9 * 14 / 30)
    assert (terminated, truncated) == (True, False)


def test_time_limit_is_a_truncation():
    env = gym.make("adops/KeyDoor-v0", horizon=5)
    env.reset(seed=0)
    flags = [env.step(0)[2:4] for _ in range(5)]
    assert flags == [(False, False)] * 4 + [(False, True)]
    # On the last step the goal wins over the clock.
    env = gym.make("adops/TVCorridor-v0", horizon=13)
    env.reset(seed=0)
    steps = [env.step(1) for _ in range(13)]
    assert steps[-1][1] == pytest.approx(0.1)
    assert steps[-1][2:4] == (True, False)


def test_key_door_played_by_hand():
    env = gym.make("adops/KeyDoor-v0")
    env.reset(seed=0)
    script = [2] * 5 + [4] + [0] * 2 + [1] * 5 + [4] + [1] * 7 + [2] * 2
    outcomes = [env.step(action) for action in script]
    assert outcomes[-1][2]
    assert outcomes[-1][1] == pytest.approx(1 - 0.9 * 23 / 80)
    key, door = outcomes[5][0][-IMAGE_BITS - 2], outcomes[13][0][-IMAGE_BITS - 1]
    assert (key, door) == (1.0, 1.0)
    assert outcomes[4][0][-IMAGE_BITS - 2] == 0.0


def test_coin_pays_once():
    env = gym.make("adops/KeyDoorCoin-v0")
    env.reset(seed=0)
    rewards = [env.step(action)[1] for action in [1] * 5 + [3, 1, 1]]
    assert rewards == [0.0] * 4 + [0.1] + [0.0] * 3


def test_skull_catches_one_in_ten():
    envs = gym.make_vec("adops/DancingSkulls-v0", num_envs=2000, horizon=100)
    envs.reset(seed=0)
    for action in (1, 1, 1):
        envs.step(np.full(2000, action))
    _, reward, terminated, _, _ = envs.step(np.full(2000, 2))
    # Binomial(2000, 0.1): five standard deviations are 67.
    assert abs(int(terminated.sum()) - 200) < 67
    assert not reward.any()


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_saved_run_goes_on_as_before(copier):
    envs = gym.make_vec("adops/DancingSkulls-v0", num_envs=8, horizon=SHORT)
    rng = np.random.default_rng(0)
    envs.reset(seed=3)
    script = rng.choice([1, 2, 0], (60, 8), p=[0.3, 0.4, 0.3])
    for actions in script[:20]:
        envs.step(actions)
    saved = copier(envs)
    for actions in script[20:]:
        one, other = envs.step(actions), saved.step(actions)
        for a, b in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(a, b)


def test_rows_are_reset_by_mask():
    envs = gym.make_vec(
        "adops/TVCorridor-v0", num_envs=3, horizon=4, autoreset_mode=AutoresetMode.DISABLED
    )
    start, _ = envs.reset(seed=0)
    envs.step(np.array([1, 1, 1]))
    options = {"reset_mask": np.array([False, True, False])}
    obs, _ = envs.reset(options=options)
    assert "reset_mask" in options
    assert np.array_equal(obs[1], start[1])
    assert not np.array_equal(obs[0], start[0])
    for _ in range(3):
        truncated = envs.step(np.array([1, 1, 1]))[3]
    assert truncated.tolist() == [True, False, True]
    with pytest.raises(gym.error.ResetNeeded, match=r"rows \[0, 2\] have ended"):
        envs.step(np.array([1, 1, 1]))
    envs.reset(options={"reset_mask": truncated})
    assert envs.step(np.array([1, 1, 1]))[3].tolist() == [False, True, False]


def test_seeds_per_row():
    envs = gym.make_vec("adops/TVCorridor-v0", num_envs=3)
    envs.reset(seed=[5, 5, 6])
    for _ in range(3):
        envs.step(np.full(3, 3))
    bits = envs.step(np.full(3, 3))[0][:, -IMAGE_BITS:]
    assert np.array_equal(bits[0], bits[1])
    assert not np.array_equal(bits[0], bits[2])


@pytest.mark.parametrize("env_id", GALLERY_IDS)
def test_pictures_of_the_world(env_id):
    env = gym.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    rows, columns = len(env.unwrapped.world.plan), len(env.unwrapped.world.plan[0])
    assert before.shape == (16 * rows, 16 * columns, 3)
    assert before.dtype == np.uint8
    env.step(1 if env_id != "adops/LoopFarm-v0" else 0)
    assert not np.array_equal(before, env.render())
    envs = gym.make_vec(env_id, num_envs=2, render_mode="rgb_array")
    envs.reset(seed=0)
    assert np.array_equal(envs.render()[1], before)
    assert gym.make_vec(env_id, num_envs=2).unwrapped.render() is None


def test_tv_is_drawn():
    env = GalleryEnv("TVCorridor", render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(4):
        env.step(3)
    one = env.render()
    env.step(3)
    assert not np.array_equal(one, env.render())


def test_bad_input():
    env = GalleryEnv("KeyDoor")
    with pytest.raises(gym.error.ResetNeeded, match="before the first step"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match=r"whole numbers in 0 … 4, got \[5\]"):
        env.step(5)
    envs = GalleryVectorEnv(2, "KeyDoor")
    with pytest.raises(gym.error.ResetNeeded, match="before the first step"):
        envs.step([0, 0])
    envs.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match="Actions for 2 rows must have shape"):
        envs.step([0, 0, 0])
    with pytest.raises(gym.error.InvalidAction, match="whole numbers"):
        envs.step([0.5, 0.0])
    with pytest.raises(ValueError, match="2 seeds are needed"):
        envs.reset(seed=[1])
    with pytest.raises(ValueError, match="render_mode must be None or 'rgb_array'"):
        GalleryEnv("KeyDoor", render_mode="human")
    with pytest.raises(ValueError, match="horizon must be a whole number of at least 1"):
        GalleryEnv("KeyDoor", horizon=0)
    with pytest.raises(ValueError, match="num_envs must be a whole number"):
        GalleryVectorEnv(0, "KeyDoor")


def test_both_kinds_export_the_same_mdp():
    env, envs = gym.make("adops/KeyDoor-v0"), gym.make_vec("adops/KeyDoor-v0", num_envs=3)
    one, other = env.unwrapped, envs.unwrapped
    assert np.array_equal(one.to_mdp(0.9).transition, other.to_mdp(0.9).transition)
    assert np.array_equal(one.tempting_bonus(), other.tempting_bonus())
    obs, _ = envs.reset(seed=0)
    assert other.state_of(obs).tolist() == [0, 0, 0]
