from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers.shaping.advantage import (
    AdvantageFloor,
    AdvantageSum,
    ClampedAdvantage,
    clamp_advantage,
    clamp_by_sign,
)
from adops_wrappers.shaping.conflict import contradicts

# Eighths, so that float64 adds them up exactly.
numbers = st.integers(-80, 80).map(lambda i: i / 8)
coefs = st.integers(0, 24).map(lambda i: i / 8)
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20).map(
    lambda rows: np.array(rows).T
)


def by_hand(a: float, b: float, ext: float, int_: float, tolerance: float) -> Fraction:
    """The definition, one step at a time, in exact arithmetic."""
    a, b, ext, int_, tolerance = map(Fraction, (a, b, ext, int_, tolerance))
    total = ext * a + int_ * b
    return min(total, Fraction(0)) if a < -tolerance else max(total, Fraction(0))


@given(pairs, coefs, coefs, st.sampled_from([0.0, 0.5]))
def test_clamp_equals_its_definition(pairs: Any, ext: float, int_: float, tolerance: float) -> None:
    found = clamp_advantage(*pairs, ext_coef=ext, int_coef=int_, tie_tolerance=tolerance)
    expected = [by_hand(a, b, ext, int_, tolerance) for a, b in pairs.T]
    assert [Fraction(value) for value in found.tolist()] == expected


@given(pairs, coefs, coefs)
def test_signs_agree_and_what_agreed_is_unchanged(pairs: Any, ext: float, int_: float) -> None:
    advantage_ext, advantage_int = pairs
    before = advantage_ext.copy(), advantage_int.copy()
    total = ext * advantage_ext + int_ * advantage_int
    found = clamp_advantage(advantage_ext, advantage_int, ext_coef=ext, int_coef=int_)
    assert (found * advantage_ext >= 0.0).all()
    assert (found[advantage_ext == 0.0] >= 0.0).all()  # a tie is not a bad action
    agreed = ~contradicts(advantage_ext, total)
    np.testing.assert_array_equal(found[agreed], total[agreed])
    assert (found[~agreed] == 0.0).all()
    np.testing.assert_array_equal(found, clamp_by_sign(total, advantage_ext))
    for array, copy in zip(pairs, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@given(pairs, coefs, coefs)
def test_clamping_twice_is_clamping_once(pairs: Any, ext: float, int_: float) -> None:
    once = clamp_advantage(*pairs, ext_coef=ext, int_coef=int_)
    np.testing.assert_array_equal(clamp_by_sign(once, pairs[0]), once)


@given(pairs)
def test_without_a_bonus_nothing_changes(pairs: Any) -> None:
    np.testing.assert_array_equal(clamp_advantage(*pairs, ext_coef=2.0, int_coef=0.0), 2 * pairs[0])


def test_tolerance_by_hand() -> None:
    ext, int_ = np.array([-0.5, -0.5, -0.51, 0.0]), np.array([2.0, -2.0, 2.0, -2.0])
    found = clamp_advantage(ext, int_, tie_tolerance=0.5)
    assert found.tolist() == [1.5, 0.0, 0.0, 0.0]


def test_any_shape_a_list_or_a_number() -> None:
    ext = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert clamp_advantage(ext, 3.0 * np.ones((2, 2))).tolist() == [[4.0, 0.0], [0.0, 4.0]]
    assert clamp_advantage([1.0, -1.0], [-3.0, 3.0]).tolist() == [0.0, 0.0]  # type: ignore[attr-defined]
    assert clamp_advantage(np.float64(-1.0), np.float64(0.25)) == -0.75


@given(pairs, coefs, coefs)
def test_torch_gives_the_same(pairs: Any, ext: float, int_: float) -> None:
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(row, dtype=torch.float64) for row in pairs]
    found = clamp_advantage(*tensors, ext_coef=ext, int_coef=int_)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(
        found.numpy(), clamp_advantage(*pairs, ext_coef=ext, int_coef=int_)
    )
    single = clamp_advantage(*(tensor.float() for tensor in tensors))
    assert single.dtype == torch.float32


def test_the_plain_sum_is_never_clamped() -> None:
    plain = AdvantageSum(2.0, 0.5)
    plain.observe(np.ones(3))
    assert plain(np.array([-1.0]), np.array([8.0])).tolist() == [2.0]


def test_the_clamp_begins_with_the_first_reward() -> None:
    combine = ClampedAdvantage(2.0, 0.5)
    ext, int_ = np.array([-1.0, 1.0]), np.array([8.0, -2.0])
    combine.observe(np.zeros((4, 2)))
    assert combine(ext, int_).tolist() == [2.0, 1.0]
    combine.observe([False, True])  # a rank saw one
    assert combine(ext, int_).tolist() == [0.0, 1.0]
    assert combine.plain(ext, int_).tolist() == [2.0, 1.0]
    combine.observe(np.zeros((4, 2)))  # once is enough
    assert combine(ext, int_).tolist() == [0.0, 1.0]
    resumed = ClampedAdvantage(2.0, 0.5)
    assert not resumed.rewarded
    resumed.load_state_dict(combine.state_dict())
    assert resumed(ext, int_).tolist() == [0.0, 1.0]


def test_a_punishment_is_a_reward_too() -> None:
    combine = ClampedAdvantage()
    combine.observe(np.array([0.0, -1.0]))
    assert combine.rewarded


def test_bad_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="ext_coef must be a number of at least 0, got -1"):
        ClampedAdvantage(-1.0, 1.0)
    with pytest.raises(ValueError, match="int_coef must be a number of at least 0"):
        AdvantageSum(1.0, -0.5)


# The floor of --scale-adv


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=8), coefs)
def test_floor_is_a_share_of_the_size_over_all_updates(updates: Any, share: float) -> None:
    floor = AdvantageFloor(share / 3)
    for n, advantages in enumerate(updates, start=1):
        squares = [Fraction(a) ** 2 for update in updates[:n] for a in update]
        size = float(sum(squares) / len(squares)) ** 0.5
        found = floor.after(np.array(advantages))
        assert found == pytest.approx(max(share / 3 * size, 1e-8), rel=1e-12)


def test_what_is_left_near_convergence_is_not_blown_up() -> None:
    """Nine updates of size 1, then noise of size 0.001: divided by 0.095 and not by 0.001."""
    floor = AdvantageFloor(share=0.1)
    for _ in range(9):
        assert floor.after(np.array([1.0, -1.0])) == pytest.approx(0.1)
    noise = 0.001 * np.array([1.0, -1.0])
    least = floor.after(noise)
    assert least == pytest.approx(0.1 * ((9.0 + 1e-6) / 10.0) ** 0.5, rel=1e-12)
    size = float(np.sqrt(np.square(noise).mean()))
    assert abs(noise / max(size, least)).max() == pytest.approx(0.01054, rel=1e-3)


def test_floor_grows_with_rewards_and_resumes() -> None:
    """The same stream times 1000 has a floor times 1000: there is no absolute size in it."""
    rng = np.random.default_rng(0)
    small, large, resumed = AdvantageFloor(), AdvantageFloor(), AdvantageFloor()
    for advantages in rng.normal(size=(6, 20)):
        resumed.load_state_dict(small.state_dict())
        least = small.after(advantages)
        assert large.after(1000.0 * advantages) == pytest.approx(1000.0 * least, rel=1e-12)
        assert resumed.after(advantages) == least
    assert AdvantageFloor().after(np.zeros(4)) == 1e-8
    with pytest.raises(ValueError, match="share must be a number from 0 to 1"):
        AdvantageFloor(2.0)
