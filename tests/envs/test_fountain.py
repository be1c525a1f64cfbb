from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adops_wrappers  # noqa: F401
from adops_wrappers import audit
from adops_wrappers.envs.fountain import FOUNTAIN, GOAL, START, in_fountain

ENV = "adops/Fountain-v0"
EAST = np.array([1.0, 0.0])


def make() -> Any:
    env = gym.make(ENV)
    env.reset(seed=0)
    return env


def test_check_env() -> None:
    check_env(gym.make(ENV, render_mode="rgb_array").unwrapped)


def test_seven_strides_east_reach_the_goal() -> None:
    env = make()
    for step in range(1, 8):
        obs, reward, terminated, truncated, _ = env.step(EAST)
        np.testing.assert_allclose(obs, START + 0.2 * step * EAST, atol=1e-6)
        assert terminated == (step == 7)
        assert not truncated
    assert reward == pytest.approx(1 - 0.9 * 7 / 100)


def test_the_edge_stops_a_step_and_the_horizon_truncates() -> None:
    env = gym.make(ENV, horizon=20).unwrapped
    env.reset(seed=0)
    for step in range(1, 21):
        obs, reward, terminated, truncated, _ = env.step(np.array([-1.0, -3.0]))
        assert (truncated, terminated, reward) == (step == 20, False, 0.0)
    np.testing.assert_array_equal(obs, [-1.0, -1.0])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_env_equals_single_envs(mode: AutoresetMode) -> None:
    rows = 5
    fast = gym.make_vec(ENV, num_envs=rows, horizon=12, autoreset_mode=mode)
    slow = SyncVectorEnv([lambda: gym.make(ENV, horizon=12)] * rows, autoreset_mode=mode)
    rng = np.random.default_rng(0)
    assert np.array_equal(fast.reset(seed=7)[0], slow.reset(seed=7)[0])
    ends = 0
    for _ in range(60):
        actions = rng.uniform([-0.2, -1.0], [1.0, 1.0], (rows, 2)).astype(np.float32)
        one, other = fast.step(actions), slow.step(actions)
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        ended = one[2] | one[3]
        ends += int(ended.sum())
        if mode is AutoresetMode.DISABLED and ended.any():
            for env in (fast, slow):
                env.reset(options={"reset_mask": ended.copy()})
    assert ends > 10


def test_bad_actions_are_refused() -> None:
    env = make()
    with pytest.raises(gym.error.InvalidAction, match="finite"):
        env.step(np.array([np.nan, 0.0]))
    with pytest.raises(gym.error.InvalidAction, match=r"shape \(1, 2\), got shape \(1, 3\)"):
        env.unwrapped.step(np.zeros(3))


def test_the_fountain_pays_for_every_step_in_it() -> None:
    env = make()
    source = env.unwrapped.tempting_source(0.5)
    position = np.array([START, FOUNTAIN, FOUNTAIN + 0.24 * EAST, FOUNTAIN + 0.26 * EAST, GOAL])
    assert source(None, None, position).tolist() == [0.0, 0.5, 0.5, 0.0, 0.0]
    assert source(None, None, position[1]) == 0.5


def test_the_lattice_is_the_env_with_nine_actions() -> None:
    env: Any = make().unwrapped
    mdp = env.to_mdp(0.99)
    bonus = env.tempting_bonus(2.0)
    rng = np.random.default_rng(0)
    moves = [np.array([x, y], dtype=np.float64) for y in (1, 0, -1) for x in (-1, 0, 1)]
    for _ in range(20):
        obs, _ = env.reset()
        for _ in range(30):
            action = int(rng.integers(9))
            before = int(env.state_of(obs))
            obs, reward, terminated, _, _ = env.step(moves[action])
            after = int(env.state_of(obs))
            assert mdp.transition[before, action, after] == 1.0
            assert mdp.reward[before, action, after] == (reward > 0)
            assert bonus[before, action, after] == 2.0 * in_fountain(obs)
            assert mdp.terminal[after] == terminated
            if terminated:
                break


def test_the_raw_bonus_changes_what_is_best_and_ideal_adops_does_not() -> None:
    env: Any = make().unwrapped
    mdp = env.to_mdp(0.99)
    assert not audit(mdp, env.tempting_bonus(), "raw").preserved
    assert not audit(mdp, env.tempting_bonus(0.3), "raw").preserved
    assert audit(mdp, env.tempting_bonus(), "adops").preserved
    value = mdp.solve().v[int(env.state_of(START))]
    assert value == pytest.approx(0.99**6)  # seven strides, the goal worth 1
