from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, SimHashCount, evaluation_mode
from tests import toolkit as tk


def key_of(bonus: SimHashCount) -> Any:
    """The counter of an observation, bit by bit in Python."""

    def key(obs: Any) -> int:
        state = bonus.state_dict()
        signs = [sum(map(float.__mul__, obs.tolist(), c)) >= 0 for c in state["projection"].T]
        if state["spread"] is not None:
            signs = [
                sum(s and bool(m) for s, m in zip(signs, mask, strict=True)) % 2
                for mask in state["spread"].T
            ]
        return sum(int(sign) << place for place, sign in enumerate(signs))

    return key


@pytest.mark.parametrize(("bits", "table_bits"), [(4, 20), (7, 7), (24, 5)])
def test_counts_what_count_bonus_counts_under_the_same_keys(bits: int, table_bits: int) -> None:
    rng = np.random.default_rng(0)
    bonus = SimHashCount(bits=bits, table_bits=table_bits, scale=3.0, seed=1)
    batches = rng.normal(size=(30, 9, 4)) * (rng.random((30, 9, 1)) > 0.1)
    masks = rng.random((30, 9)) > 0.2
    assert bonus(None, None, batches[0], valid=np.zeros(9, dtype=np.bool_)).tolist() == [0.0] * 9
    expected = CountBonus(scale=3.0, key=key_of(bonus))
    most = 0
    for step, (batch, valid) in enumerate(zip(batches, masks, strict=True)):
        bonus.frozen = expected.frozen = step % 7 == 3
        found = bonus(None, None, batch, valid=valid)
        np.testing.assert_array_equal(found, expected(None, None, batch, valid=valid))
        keys = [expected.key(obs) for obs in batch[valid]]  # type: ignore[misc]
        most = max(most, max(map(keys.count, keys)))
    assert most > 2  # rows of one step met each other
    counts = {key: n for key, n in enumerate(bonus.counts.tolist()) if n}
    assert counts == expected.counts
    one = batches[0, 0]
    found_one = bonus(None, None, one, valid=True)
    assert type(found_one) is float
    assert found_one == expected(None, None, one, valid=True)
    assert bonus(None, None, one, valid=False) == 0.0


def assert_binomial(successes: int, trials: int, p: float) -> None:
    """Fail if so few, or so many, successes have a probability below 1e-3."""

    def log_pmf(k: int) -> float:
        choose = math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        return choose + k * math.log(p) + (trials - k) * math.log1p(-p)

    at_most = math.fsum(math.exp(log_pmf(k)) for k in range(successes + 1))
    at_least = math.fsum(math.exp(log_pmf(k)) for k in range(successes, trials + 1))
    assert min(at_most, at_least) > 1e-3, (successes, trials * p)


def collisions(trials: int, pair: Any, **settings: Any) -> int:
    """In how many of so many hash functions do both rows share a counter?"""
    both = np.ones(2, dtype=np.bool_)
    answers = [
        SimHashCount(**settings, seed=seed)(None, None, pair, valid=both) for seed in range(trials)
    ]
    assert {round(float(second), 6) for _, second in answers} <= {1.0, round(2**-0.5, 6)}
    return sum(bool(second < 1.0) for _, second in answers)


@pytest.mark.parametrize("bits", [1, 4, 16])
@pytest.mark.parametrize("angle", [0.1, 0.8, 2.0])
def test_the_probability_of_a_collision_follows_from_the_angle(angle: float, bits: int) -> None:
    """(1 − θ/π)^bits, in whatever plane and at whatever length."""
    plane = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 2)))[0].T
    pair = np.array([plane[0], 7.0 * (math.cos(angle) * plane[0] + math.sin(angle) * plane[1])])
    trials = 1500
    p = (1.0 - angle / math.pi) ** bits
    assert_binomial(collisions(trials, pair, bits=bits), trials, p)


@pytest.mark.parametrize("table_bits", [1, 3, 6])
def test_different_hashes_share_a_counter_as_often_as_the_table_is_small(table_bits: int) -> None:
    opposite = np.array([[1.0, 2.0, -1.0], [-1.0, -2.0, 1.0]])  # no sign in common
    trials = 1500
    found = collisions(trials, opposite, bits=12, table_bits=table_bits)
    assert_binomial(found, trials, 2.0**-table_bits)


@pytest.mark.parametrize(("bits", "table_bits", "counters"), [(6, 20, 64), (64, 10, 1024)])
def test_memory_does_not_follow_what_is_visited(bits: int, table_bits: int, counters: int) -> None:
    bonus = SimHashCount(bits=bits, table_bits=table_bits, seed=0)
    for obs in np.random.default_rng(0).normal(size=(200, 3)):
        bonus(None, None, obs)
    assert bonus.counts.nbytes == 8 * counters
    assert bonus.counts.sum() == 200


def test_parts_of_an_observation_are_one_row_of_numbers() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(20, 2, 2)), rng.integers(0, 9, 20), rng.normal(size=(20, 3)) > 0
    valid = np.ones(20, dtype=np.bool_)
    flat = np.concatenate([a.reshape(20, 4), b[:, None], c], axis=1)
    whole = SimHashCount(bits=6, seed=0)(None, None, flat, valid=valid)
    assert whole.min() < 0.5
    for parts in ({"a": a, "c": {"x": c}, "b": b}, (a, (b, c))):
        bonus = SimHashCount(bits=6, seed=0)
        np.testing.assert_array_equal(bonus(None, None, parts, valid=valid), whole)
    bonus = SimHashCount(bits=6, seed=0)
    rows = [bonus(None, None, {"a": a[i], "b": b[i], "c": c[i]}) for i in range(20)]
    assert rows == whole.tolist()


def test_features_are_hashed_in_place_of_the_observations() -> None:
    """Seen from the origin these two are one; seen from their mean they are opposite."""
    pair, both = np.array([[100.0, 101.0], [101.0, 100.0]]), np.ones(2, dtype=np.bool_)
    plain, centred = SimHashCount(seed=0), SimHashCount(seed=0, features=lambda obs: obs - 100.5)
    assert plain(None, None, pair, valid=both)[1] < 1.0
    assert centred(None, None, pair, valid=both)[1] == 1.0
    one_hot = SimHashCount(bits=16, seed=0, features=lambda cells: np.eye(5)[cells])
    expected = CountBonus()
    for cell in (3, 1, 3, 0, 4, 4, 3):
        assert one_hot(None, None, cell) == expected(None, None, cell)


def test_seeds_and_states() -> None:
    rng = np.random.default_rng(0)
    valid = np.ones(6, dtype=np.bool_)
    first, same, other = (SimHashCount(bits=5, seed=seed) for seed in (1, 1, 2))
    blank = first.state_dict()
    assert blank["projection"] is None
    batches = rng.normal(size=(30, 6, 3))
    answers = [first(None, None, batch, valid=valid) for batch in batches]
    np.testing.assert_array_equal(answers, [same(None, None, b, valid=valid) for b in batches])
    assert not np.array_equal(answers, [other(None, None, b, valid=valid) for b in batches])
    state = first.state_dict()
    fresh = SimHashCount(bits=5)
    for bonus in (other, fresh):
        bonus.load_state_dict(state)
    for batch in rng.normal(size=(10, 6, 3)):
        expected = first(None, None, batch, valid=valid)
        for bonus in (other, fresh):
            np.testing.assert_array_equal(bonus(None, None, batch, valid=valid), expected)
    fresh.load_state_dict(blank)
    assert fresh(None, None, batches[0, 0]) == 1.0


@pytest.mark.parametrize("kind", ["box", "dict", "tuple"])
def test_in_a_stack(kind: str) -> None:
    env = tk.make_vector("sync", AutoresetMode.NEXT_STEP, obs_kind=kind)
    env = IntrinsicRewardWrapper(env, source := SimHashCount(seed=0))
    env.reset(seed=0)
    visits = 0
    for _ in range(20):
        info = env.step(np.zeros(3, dtype=np.int64))[4]
        bonus, real = info["intrinsic_reward"], info["_intrinsic_reward"]
        assert (bonus[real] > 0.0).all()
        assert (bonus[~real] == 0.0).all()
        visits += np.count_nonzero(real)
    assert source.counts.sum() == visits
    with evaluation_mode(env):
        env.step(np.zeros(3, dtype=np.int64))
    assert source.counts.sum() == visits


def test_bad_settings_and_observations() -> None:
    for name in ("bits", "table_bits"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
            SimHashCount(**{name: 0})
    with pytest.raises(
        ValueError, match=r"table_bits must be at most 30, got 40: .* 8.8e\+12 bytes"
    ):
        SimHashCount(table_bits=40)
    with pytest.raises(ValueError, match="scale must be a number greater than 0"):
        SimHashCount(scale=0.0)
    with pytest.raises(TypeError, match="features must be a function of observations, got 3"):
        SimHashCount(features=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Count Discrete observations with CountBonus"):
        SimHashCount()(None, None, np.int64(3))
    with pytest.raises(TypeError, match=r"has dtype <U4. Pass features="):
        SimHashCount()(None, None, "text")
    with pytest.raises(TypeError, match="hashes numbers"):
        SimHashCount()(None, None, ("open", "shut"), valid=np.ones(2, dtype=np.bool_))
    bonus = SimHashCount()
    bonus(None, None, np.zeros(3))
    with pytest.raises(ValueError, match="counts observations of 3 numbers, got one of 2"):
        bonus(None, None, np.zeros(2))
