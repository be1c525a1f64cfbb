from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers import IntrinsicReturnNormalizer

streams = st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=2, max_size=20).map(
    np.array
)


def filtered(stream: Any, gamma: float) -> Any:
    """Discounted returns over time and per env, by their definition."""
    return np.array(
        [sum(gamma ** (t - i) * stream[i] for i in range(t + 1)) for t in range(len(stream))]
    )


@given(streams, st.floats(0.1, 1.0), st.sampled_from(["std", "rms"]), st.integers(1, 6))
def test_divides_by_the_size_of_all_returns_so_far(
    stream: Any, gamma: float, rule: Any, warm_up: int
) -> None:
    normalizer = IntrinsicReturnNormalizer(3, gamma=gamma, rule=rule, warm_up=warm_up)
    returns = filtered(stream, gamma)
    for t, values in enumerate(stream):
        seen = returns[: t + 1]
        size = seen.std() if rule == "std" else np.sqrt(np.square(seen).mean())
        normalized = normalizer(values)
        if t + 1 < warm_up:
            assert normalized.tolist() == [0.0] * 3
        elif size > 1e-6:
            np.testing.assert_allclose(normalized, values / size, rtol=1e-6)


@given(streams, st.sampled_from(["std", "rms"]), st.integers(-8, 8))
def test_the_user_s_scale_cancels(stream: Any, rule: Any, power: int) -> None:
    """Powers of two lose no digits: F and a·F come out alike to the last bit."""
    one, other = (IntrinsicReturnNormalizer(3, rule=rule, warm_up=2) for _ in range(2))
    for values in stream:
        values = np.round(values, 3)  # no denormal numbers
        np.testing.assert_array_equal(one(values), other(values * 2.0**power))


@pytest.mark.parametrize("rule", ["std", "rms"])
def test_a_bonus_that_never_dries_up_is_made_small_by_its_root_mean_square_alone(
    rule: Any,
) -> None:
    """A constant F of 1: once the filter is full G is 100, but it hardly varies any more."""
    normalizer = IntrinsicReturnNormalizer(1, gamma=0.99, rule=rule, update="manual")
    normalizer.returns[:] = 99.0
    for _ in range(10_000):
        normalizer(np.ones(1))
    normalizer.update()
    if rule == "std":
        assert normalizer.scale < 0.2  # the return of the normalised bonus is above 500
    else:
        assert normalizer.scale == pytest.approx(100.0, rel=1e-3)


def test_nothing_is_paid_until_the_scale_is_known() -> None:
    """One horizon of the filter where steps count at once, the first update where it is called."""
    for gamma, steps in ((0.99, 100), (0.5, 2), (1.0, 1000), (0.9999, 1000)):
        assert IntrinsicReturnNormalizer(gamma=gamma).warm_up == steps
    by_steps = IntrinsicReturnNormalizer(2, gamma=0.9, rule="rms")
    paid = [bool(by_steps(np.ones(2)).any()) for _ in range(12)]
    assert paid == [False] * 9 + [True] * 3
    by_hand = IntrinsicReturnNormalizer(2, rule="rms", update="manual")
    for _ in range(200):
        assert by_hand(np.ones(2)).tolist() == [0.0, 0.0]
    assert by_hand.scale == 0.0
    by_hand.update()
    assert by_hand(np.ones(2)).tolist() == [1.0 / by_hand.scale] * 2


def test_a_dummy_reset_is_no_step_of_the_warm_up() -> None:
    normalizer = IntrinsicReturnNormalizer(2, rule="rms", warm_up=2)
    for _ in range(5):
        normalizer(np.ones(2), valid=np.array([False, False]))
    assert normalizer(np.ones(2)).tolist() == [0.0, 0.0]
    assert normalizer(np.ones(2)).all()


def test_golden_array() -> None:
    """Two envs, γ = ½: G = (1, 3), (2.5, 1.5), (1.25, 4.75) by hand."""
    normalizer = IntrinsicReturnNormalizer(2, gamma=0.5)
    normalizer(np.array([1.0, 3.0]))
    assert normalizer.returns.tolist() == [1.0, 3.0]
    normalizer(np.array([2.0, 0.0]))
    assert normalizer.returns.tolist() == [2.5, 1.5]
    out = normalizer(np.array([0.0, 4.0]))
    assert normalizer.returns.tolist() == [1.25, 4.75]
    # Mean 14/6, mean of squares 42.625/6.
    variance = (1 + 9 + 6.25 + 2.25 + 1.5625 + 22.5625) / 6 - (14 / 6) ** 2
    np.testing.assert_allclose(out, [0.0, 4.0 / variance**0.5], rtol=1e-12)
    other = IntrinsicReturnNormalizer(2, gamma=0.5, rule="rms")
    for intrinsic in ([1.0, 3.0], [2.0, 0.0], [0.0, 4.0]):
        other(np.array(intrinsic))
    assert other.scale == pytest.approx((42.625 / 6) ** 0.5, rel=1e-12)


def test_filter_runs_over_time_not_over_envs() -> None:
    """Equal bonuses in all envs at every step: returns grow in time, alike in all envs."""
    normalizer = IntrinsicReturnNormalizer(4, gamma=1.0, warm_up=1)
    for _ in range(3):
        normalizer(np.ones(4))
    assert normalizer.scale == pytest.approx(np.std([1.0, 2.0, 3.0]))


def test_manual_update_freezes_the_scale_within_a_rollout() -> None:
    manual = IntrinsicReturnNormalizer(2, gamma=0.9, update="manual")
    stream = np.random.default_rng(0).random((10, 2))
    assert [manual(values).any() for values in stream] == [False] * 10
    manual.update()
    assert manual.scale == pytest.approx(filtered(stream, 0.9).std())
    std = manual.scale
    np.testing.assert_allclose(manual(stream[0]), stream[0] / std)
    manual.update()
    assert manual.scale != std


@given(streams)
def test_parts_that_exchange_what_they_collected_scale_as_the_whole(stream: Any) -> None:
    whole = IntrinsicReturnNormalizer(3, gamma=0.9, update="manual")
    parts = [IntrinsicReturnNormalizer(n, gamma=0.9, update="manual") for n in (2, 1)]
    half = len(stream) // 2
    for end, rows in ((half, stream[:half]), (len(stream), stream[half:])):
        for values in rows:
            whole(values)
            parts[0](values[:2])
            parts[1](values[2:])
        collected = [part.collected for part in parts]
        whole.update()
        for part in parts:
            part.update(collected)
        assert parts[0].scale == parts[1].scale
        if filtered(stream[:end], 0.9).std() > 1e-6:
            assert parts[0].scale == pytest.approx(whole.scale, rel=1e-9)
        assert parts[0].collected == [0.0, 0.0, 0.0]


def test_rows_that_are_not_valid_leave_no_trace() -> None:
    with_dummies, without = (IntrinsicReturnNormalizer(1, warm_up=1) for _ in range(2))
    for value in (1.0, 3.0, 2.0):
        with_dummies(np.array([50.0]), valid=np.array([False]))
        a, b = with_dummies(np.array([value]), np.array([True])), without(np.array([value]))
        assert a == b


def test_frozen_and_state_dict() -> None:
    first, second = (IntrinsicReturnNormalizer(2, update="manual") for _ in range(2))
    first(np.array([1.0, 2.0]))
    first.update()
    first(np.array([4.0, 2.0]))
    second.load_state_dict(first.state_dict())
    first.frozen = True
    before = first.state_dict()
    first(np.array([100.0, 7.0]))
    assert str(first.state_dict()) == str(before)
    for normalizer in (first, second):
        normalizer.frozen = False
        normalizer.update()
    np.testing.assert_array_equal(first(np.array([1.0, 1.0])), second(np.array([1.0, 1.0])))
    first.update()
    second.update()
    assert first.scale == second.scale


def test_a_spread_of_zero_is_no_scale() -> None:
    normalizer = IntrinsicReturnNormalizer(1, warm_up=1)
    normalizer.update()
    assert normalizer(np.array([3.0])).tolist() == [0.0]
    assert normalizer(np.array([3.0])).tolist() == [3.0 / normalizer.scale]


def test_errors() -> None:
    with pytest.raises(ValueError, match="gamma must be a discount"):
        IntrinsicReturnNormalizer(gamma=1.5)
    with pytest.raises(ValueError, match="update must be one of"):
        IntrinsicReturnNormalizer(update="rollout")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"rule must be one of \('std', 'rms'\), got 'max'"):
        IntrinsicReturnNormalizer(rule="max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="warm_up must be a whole number of at least 1"):
        IntrinsicReturnNormalizer(warm_up=0)
    with pytest.raises(ValueError, match=r"Expected 3 intrinsic rewards.*got 2"):
        IntrinsicReturnNormalizer(3)(np.zeros(2))
    with pytest.raises(ValueError, match="num_envs must be a whole number"):
        IntrinsicReturnNormalizer(0)


def test_what_random_actions_have_left_is_dropped_after_the_first_rollout() -> None:
    rng = np.random.default_rng(0)
    started, fresh = (IntrinsicReturnNormalizer(3, gamma=0.9, update="manual") for _ in range(2))
    for values in 10.0 * rng.random((8, 3)):
        started(values)
    started.update()
    started.restart()
    scale = started.scale
    assert scale > 1.0
    for values in (first := rng.random((8, 3))):
        np.testing.assert_array_equal(started(values), values / scale)
        fresh(values)
    restored = IntrinsicReturnNormalizer(3, gamma=0.9, update="manual")
    restored.load_state_dict(started.state_dict())
    for normalizer in (started, fresh, restored):
        normalizer.update()
        assert normalizer.scale == pytest.approx(filtered(first, 0.9).std(), rel=1e-12)
    # From then on returns add up.
    started(np.ones(3))
    fresh(np.ones(3))
    started.update()
    fresh.update()
    assert started.scale == fresh.scale


@pytest.mark.parametrize("rule", ["std", "rms"])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("size", [1e200, -1e200, 1e308])
def test_a_bonus_whose_square_overflows_is_an_error_that_names_its_size(
    size: float, num_envs: int, rule: Any
) -> None:
    normalizer = IntrinsicReturnNormalizer(num_envs, rule=rule, warm_up=1)
    normalizer(np.linspace(1.0, 2.0, num_envs))
    before = normalizer.state_dict()
    bonus = np.zeros(num_envs)
    bonus[-1] = size
    with pytest.raises(OverflowError, match=r"F is about -?\d.*e\+.*Divide F by its order"):
        normalizer(bonus)
    after = normalizer.state_dict()
    assert after["moments"] == before["moments"]  # nothing is left of it
    np.testing.assert_array_equal(after["returns"], before["returns"])


@pytest.mark.parametrize("rule", ["std", "rms"])
def test_a_bonus_far_from_unit_size_is_brought_there_all_the_same(rule: Any) -> None:
    stream = np.random.default_rng(0).random((50, 2))
    small, large = (IntrinsicReturnNormalizer(2, rule=rule, warm_up=5) for _ in range(2))
    for bonus in stream:
        np.testing.assert_array_equal(small(bonus), large(bonus * 2.0**480))  # about 3e144
