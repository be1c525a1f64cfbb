from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers import (
    CountBonus,
    EpisodicCountBonus,
    IntrinsicRewardWrapper,
    evaluation_mode,
)
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


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_episodic_counts_by_row_and_episode(mode: AutoresetMode) -> None:
    """Against a slow reference: visits within the episode of each row's true transitions."""
    acts = np.random.default_rng(0).integers(0, 3, (40, 3))

    def cell(obs: Any) -> int:
        return int(obs[0] > 0.0)

    env = IntrinsicRewardWrapper(tk.make_vector("sync", mode), EpisodicCountBonus(key=cell))
    env.reset(seed=1)
    found = np.zeros((40, 3))
    for t, action in enumerate(acts):
        _, _, terminated, truncated, info = env.step(action)
        found[t] = info["intrinsic_reward"]
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            env.reset(options={"reset_mask": terminated | truncated})
    repeats = 0
    for i, steps in enumerate(tk.record(tk.make_vector("sync", mode), acts, 1, mode)):
        for episode in tk.episodes_of(steps):
            visits: dict[int, int] = {}
            for step in episode:
                key = cell(step.next_obs)
                visits[key] = visits.get(key, 0) + 1
                repeats += visits[key] > 1
                assert found[step.time, i] == pytest.approx(visits[key] ** -0.5)
    assert repeats > 20


def test_reset_in_mid_episode_clears_episodic_counts_of_its_rows_alone() -> None:
    env: Any = tk.make_vector("sync", AutoresetMode.DISABLED, longest=10**6)
    env = IntrinsicRewardWrapper(env, EpisodicCountBonus(key=lambda obs: 0))
    env.reset(seed=0)
    zero = np.zeros(3, dtype=np.int64)
    env.step(zero)
    env.reset(options={"reset_mask": np.array([True, False, False])})
    bonus = env.step(zero)[4]["intrinsic_reward"]
    np.testing.assert_allclose(bonus, [1.0, 2**-0.5, 2**-0.5])
    saved = env.state_dict()
    env.step(zero)
    env.load_state_dict(saved)
    with evaluation_mode(env):  # part of the running episode: the counts go on
        bonus = env.step(zero)[4]["intrinsic_reward"]
    np.testing.assert_allclose(bonus, [2**-0.5, 3**-0.5, 3**-0.5])
    env.reset(seed=0)
    np.testing.assert_allclose(env.step(zero)[4]["intrinsic_reward"], 1.0)


def test_texts_are_counted_alone_and_inside_dicts() -> None:
    bonus = CountBonus()
    found = [bonus(None, 0, text) for text in ("a", "b", "a")]
    np.testing.assert_allclose(found, [1.0, 1.0, 2**-0.5])
    batch = {"mission": ("go", "open the door", "go"), "direction": np.array([1, 1, 1])}
    together = CountBonus()(None, None, batch, valid=np.ones(3, dtype=np.bool_))
    np.testing.assert_allclose(together, [1.0, 1.0, 2**-0.5])
    one = CountBonus()
    rows = [{"mission": m, "direction": np.int64(1)} for m in batch["mission"]]
    np.testing.assert_allclose([one(None, 0, row) for row in rows], together)


def test_errors() -> None:
    with pytest.raises(ValueError, match="scale must be a number greater than 0"):
        CountBonus(scale=0.0)
    with pytest.raises(TypeError, match="key must be a function"):
        CountBonus(key=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Pass key="):
        CountBonus()(None, 0, object())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_both_zeros_are_one_state(dtype: Any) -> None:
    bonus = CountBonus()
    zeros = np.array([[0.0, 1.0], [-0.0, 1.0]], dtype=dtype)
    second = 2**-0.5
    assert bonus(zeros, None, zeros, valid=np.ones(2, dtype=np.bool_)) == pytest.approx([1, second])
    assert len(bonus.counts) == 1
    assert bonus(0, 0, {"x": np.float64(-0.0)}) == 1.0
    assert bonus(0, 0, {"x": np.float64(0.0)}) == pytest.approx(second)
