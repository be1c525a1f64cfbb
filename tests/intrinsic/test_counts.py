from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers import CountBonus, IntrinsicRewardWrapper
from tests import toolkit as tk


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.floats(0.1, 10))
def test_single_observations(states: list[int], scale: float) -> None:
    bonus, seen = CountBonus(scale=scale), Counter[int]()
    for state in states:
        seen[state] += 1
        assert bonus(None, 0, state) == pytest.approx(scale / seen[state] ** 0.5)


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=20))
def test_batches_count_row_after_row(rows: list[tuple[int, int, int]]) -> None:
    batched, one_by_one = CountBonus(), CountBonus()
    for row in rows:
        valid = np.array([True, row[0] != 1, True])
        values = batched(None, None, np.array(row), valid=valid)
        expected = [one_by_one(None, 0, s, valid=bool(v)) for s, v in zip(row, valid, strict=True)]
        np.testing.assert_allclose(values, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda k: np.full(4, k, dtype=np.float32),
        lambda k: np.full((84, 84), k, dtype=np.uint8),
        lambda k: {"b": np.array([k]), "a": (np.array([k, k]), np.int64(k))},
    ],
)
def test_observations_of_any_kind_agree_between_one_and_many(make: Any) -> None:
    def stack(rows: list[Any]) -> Any:
        if isinstance(rows[0], dict):
            return {key: stack([row[key] for row in rows]) for key in rows[0]}
        if isinstance(rows[0], tuple):
            return tuple(stack(list(column)) for column in zip(*rows, strict=True))
        return np.stack(rows)

    states = [1, 2, 1, 1]
    single, batch = CountBonus(), CountBonus()
    one_by_one = [single(None, 0, make(k)) for k in states]
    together = batch(None, None, stack([make(k) for k in states]), valid=np.ones(4, dtype=bool))
    np.testing.assert_allclose(one_by_one, [1, 1, 2**-0.5, 3**-0.5])
    np.testing.assert_allclose(together, one_by_one)
    assert single.counts == batch.counts
    assert all(len(key) <= 32 for key in single.counts)


def test_key_function_counts_coarser_cells() -> None:
    bonus = CountBonus(key=lambda obs: int(obs[0]))
    assert bonus(None, 0, np.array([1.2, 5.0])) == 1.0
    assert bonus(None, 0, np.array([1.9, 7.0])) == pytest.approx(2**-0.5)
    many = bonus(None, None, np.array([[1.5, 0.0], [2.5, 0.0]]), valid=np.ones(2, dtype=bool))
    np.testing.assert_allclose(many, [3**-0.5, 1.0])
    nested = CountBonus(key=lambda obs: int(obs["x"][0]) + obs["y"][0])
    batch = {"x": np.array([[1], [1]]), "y": (np.array([0, 0]),)}
    np.testing.assert_allclose(nested(None, None, batch, valid=np.ones(2, bool)), [1, 2**-0.5])


def test_frozen_counts() -> None:
    bonus = CountBonus()
    bonus(None, 0, 3)
    bonus.frozen = True
    assert bonus(None, 0, 3) == bonus(None, 0, 3) == pytest.approx(2**-0.5)
    assert bonus(None, 0, 9) == 1.0
    assert list(bonus.counts.values()) == [1]


def test_state_dict() -> None:
    bonus, copy = CountBonus(), CountBonus()
    bonus(None, 0, 3)
    saved = bonus.state_dict()
    bonus(None, 0, 3)
    copy.load_state_dict(saved)
    assert copy(None, 0, 3) == pytest.approx(2**-0.5)


def test_in_a_vector_env_dummy_steps_do_not_count() -> None:
    env = gym.make_vec(tk.CLIFF, num_envs=1, max_episode_steps=2)
    bonus = CountBonus()
    env = IntrinsicRewardWrapper(env, bonus)
    env.reset(seed=0)
    infos = [env.step(np.array([0]))[4] for _ in range(6)]
    assert [bool(info["_intrinsic_reward"][0]) for info in infos] == [True, True, False] * 2
    assert sum(bonus.counts.values()) == 4


def test_errors() -> None:
    with pytest.raises(ValueError, match="scale must be a number greater than 0"):
        CountBonus(scale=0.0)
    with pytest.raises(TypeError, match="key must be a function"):
        CountBonus(key=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Pass key="):
        CountBonus()(None, 0, object())
