from __future__ import annotations

import importlib.util
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers.envs.deep_sea import BAD_SHARE, EPISODES, solved_after
from adops_wrappers.tabular import mdp_from_env

ENV = "adops/DeepSea-v0"
# `numpy.random.RandomState(42).binomial(1, 0.5, [4, 4])`, as bsuite draws it.
MAPPING = [[0, 1, 1, 1], [0, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0]]


def test_check_env() -> None:
    check_env(gym.make(ENV, render_mode="rgb_array").unwrapped)


def rules(mapping: Any, actions: list[int]) -> tuple[list[float], list[tuple[int, int]], bool]:
    """Return rewards, cells and whether the episode is bad: bsuite's rules, written out."""
    size = len(mapping)
    column, bad, rewards, cells = 0, False, [], []
    for row, action in enumerate(actions):
        reward = 0.0
        if action == mapping[row][column]:
            reward = (1.0 if column == size - 1 else 0.0) - 0.01 / size
            column = min(column + 1, size - 1)
        else:
            bad = bad or row == column
            column = max(column - 1, 0)
        rewards.append(reward)
        cells.append((row + 1, column))
    return rewards, cells, bad


@pytest.mark.parametrize("size", [1, 4, 10, 30])
def test_the_rules_are_bsuites(size: int) -> None:
    env: Any = gym.make(ENV, size=size)
    mapping = env.unwrapped.dynamics.moves_right
    if size == 4:
        assert mapping.tolist() == MAPPING
    rng = np.random.default_rng(size)
    diagonal = mapping.diagonal().tolist()
    episodes = [rng.integers(0, 2, size).tolist() for _ in range(20)]
    for actions in [diagonal, [1 - diagonal[0], *diagonal[1:]], *episodes]:
        rewards, cells, bad = rules(mapping, actions)
        obs, info = env.reset()
        assert np.flatnonzero(obs).tolist() == [0]
        for step, action in enumerate(actions):
            obs, reward, terminated, truncated, info = env.step(action)
            row, column = cells[step]
            assert reward == pytest.approx(rewards[step], abs=1e-15)
            assert (terminated, truncated) == (step + 1 == size, False)
            assert np.flatnonzero(obs).tolist() == ([] if terminated else [row * size + column])
        assert info["bad"] == bad


def test_the_treasure_is_worth_what_bsuite_says() -> None:
    env: Any = gym.make(ENV, size=20)
    env.reset(seed=0)
    rewards = [env.step(action)[1] for action in env.unwrapped.dynamics.moves_right.diagonal()]
    assert sum(rewards) == pytest.approx(0.99, abs=1e-12)


@pytest.mark.skipif(importlib.util.find_spec("bsuite") is None, reason="bsuite is not installed")
def test_it_equals_bsuites_own() -> None:
    from bsuite.environments.deep_sea import DeepSea

    for size in (10, 20):
        ours, theirs = gym.make(ENV, size=size), DeepSea(size, mapping_seed=42)
        rng, bad = np.random.default_rng(0), 0
        for _ in range(200):
            ours.reset()
            step = theirs.reset()
            info: dict[str, Any] = {}
            while not step.last():
                action = int(rng.integers(2))
                step = theirs.step(action)
                obs, reward, terminated, _, info = ours.step(action)
                np.testing.assert_array_equal(obs, step.observation.ravel())
                assert (reward, terminated) == (pytest.approx(step.reward), step.last())
            bad += info["bad"]
        assert theirs.bsuite_info()["total_bad_episodes"] == bad


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_env_equals_single_envs(mode: AutoresetMode) -> None:
    rows = 5
    fast = gym.make_vec(ENV, num_envs=rows, size=4, autoreset_mode=mode)
    slow = SyncVectorEnv([lambda: gym.make(ENV, size=4)] * rows, autoreset_mode=mode)
    rng = np.random.default_rng(0)
    for env in (fast, slow):
        env.reset(seed=7)
    # Not in step with each other, where rows can be reset alone.
    for _ in range(40):
        actions = rng.integers(0, 2, rows)
        one, other = fast.step(actions), slow.step(actions)
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one[4]["bad"], other[4]["bad"])
        ended = one[2] | one[3]
        if mode is AutoresetMode.DISABLED:
            mask = ended | (rng.random(rows) < 0.2)
            for env in (fast, slow) if mask.any() else ():
                env.reset(options={"reset_mask": mask.copy()})


def test_solved_is_the_first_episode_with_less_than_nine_tenths_bad() -> None:
    assert (EPISODES, BAD_SHARE) == (10_000, 0.9)
    assert solved_after([True] * 10_000) is None
    assert solved_after([False]) == 1
    # 9 of 10 is not less than .9; the second good episode comes as number 11.
    assert solved_after([True] * 9 + [False] + [False]) == 11
    assert solved_after([True] * 9 + [False] + [True] * 9_000) is None
    assert solved_after([True] * 10_000 + [False] * 10_000) is None


def test_the_audit_sees_that_a_bonus_for_staying_left_beats_a_far_treasure() -> None:
    env: Any = gym.make(ENV, size=6)
    mdp = mdp_from_env(env, gamma=0.99)
    costs = sum(0.99**t for t in range(6)) * 0.01 / 6
    assert mdp.start @ mdp.solve().v == pytest.approx(0.99**5 - costs)
