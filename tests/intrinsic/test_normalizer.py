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


@given(streams, st.floats(0.1, 1.0))
def test_divides_by_the_spread_of_all_returns_so_far(stream: Any, gamma: float) -> None:
    normalizer = IntrinsicReturnNormalizer(3, gamma=gamma)
    returns = filtered(stream, gamma)
    for t, values in enumerate(stream):
        std = returns[: t + 1].std()
        normalized = normalizer(values)
        if std > 1e-6:
            np.testing.assert_allclose(normalized, values / std, rtol=1e-6)


def test_golden_array() -> None:
    """Two envs, γ = ½: G = (1, 3), (2.5, 1.5), (1.25, 4.75) by hand."""
    normalizer = IntrinsicReturnNormalizer(2, gamma=0.5)
    normalizer(np.array([1.0, 3.0]))
    assert normalizer.returns.tolist() == [1.0, 3.0]
    normalizer(np.array([2.0, 0.0]))
    assert normalizer.returns.tolist() == [2.5, 1.5]
    out = normalizer(np.array([0.0, 4.0]))
    assert normalizer.returns.tolist() == [1.25, 4.75]
    # Mean 14/6, mean of squares 43.125/6.
    variance = (1 + 9 + 6.25 + 2.25 + 1.5625 + 22.5625) / 6 - (14 / 6) ** 2
    np.testing.assert_allclose(out, [0.0, 4.0 / variance**0.5], rtol=1e-12)


def test_filter_runs_over_time_not_over_envs() -> None:
    """Equal bonuses in all envs at every step: returns grow in time, alike in all envs."""
    normalizer = IntrinsicReturnNormalizer(4, gamma=1.0)
    for _ in range(3):
        normalizer(np.ones(4))
    assert normalizer.std == pytest.approx(np.std([1.0, 2.0, 3.0]))


def test_manual_update_freezes_the_scale_within_a_rollout() -> None:
    manual = IntrinsicReturnNormalizer(2, gamma=0.9, update="manual")
    stream = np.random.default_rng(0).random((10, 2))
    assert [manual(values).tolist() for values in stream] == stream.tolist()
    manual.update()
    assert manual.std == pytest.approx(filtered(stream, 0.9).std())
    std = manual.std
    np.testing.assert_allclose(manual(stream[0]), stream[0] / std)
    manual.update()
    assert manual.std != std


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
        assert parts[0].std == parts[1].std
        if filtered(stream[:end], 0.9).std() > 1e-6:
            assert parts[0].std == pytest.approx(whole.std, rel=1e-9)
        assert parts[0].collected == [0.0, 0.0, 0.0]


def test_rows_that_are_not_valid_leave_no_trace() -> None:
    with_dummies, without = (IntrinsicReturnNormalizer(1) for _ in range(2))
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
    assert first.std == second.std


def test_no_spread_yet_means_no_scaling() -> None:
    normalizer = IntrinsicReturnNormalizer(1)
    normalizer.update()
    assert normalizer(np.array([3.0])).tolist() == [3.0]


def test_errors() -> None:
    with pytest.raises(ValueError, match="gamma must be a discount"):
        IntrinsicReturnNormalizer(gamma=1.5)
    with pytest.raises(ValueError, match="update must be one of"):
        IntrinsicReturnNormalizer(update="rollout")  # type: ignore[arg-type]
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
    scale = started.std
    assert scale > 1.0
    for values in (first := rng.random((8, 3))):
        np.testing.assert_array_equal(started(values), values / scale)
        fresh(values)
    restored = IntrinsicReturnNormalizer(3, gamma=0.9, update="manual")
    restored.load_state_dict(started.state_dict())
    for normalizer in (started, fresh, restored):
        normalizer.update()
        assert normalizer.std == pytest.approx(filtered(first, 0.9).std(), rel=1e-12)
    # From then on returns add up.
    started(np.ones(3))
    fresh(np.ones(3))
    started.update()
    fresh.update()
    assert started.std == fresh.std
