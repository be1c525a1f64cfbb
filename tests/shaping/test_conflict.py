from __future__ import annotations

import numpy as np
import pytest

from adops_wrappers.shaping import ADOPS
from adops_wrappers.shaping.conflict import ROUNDING, advantages, contradicts, is_bad
from tests.shaping.transitions import random_transitions

COEFFICIENTS = {"gamma_ext": 0.95, "gamma_int": 0.9, "ext_coef": 2.0, "int_coef": 0.5}


def test_a_conflict_is_where_the_clamp_has_something_to_do() -> None:
    t = random_transitions(np.random.default_rng(3), 500, 4)
    for tolerance in (0.0, 0.3):
        ext, total = advantages(t, **COEFFICIENTS)
        conflict = contradicts(ext, total, tolerance) & t.valid
        shaped = ADOPS(4, **COEFFICIENTS, epsilon=0.0, tie_tolerance=tolerance).rollout(t)
        np.testing.assert_array_equal(conflict, (shaped != t.intrinsic) & t.valid)
        assert 0.05 < conflict.mean() < 0.95


def test_coefficients_and_tolerance_decide() -> None:
    ext, bonus = np.array([-1.0, -1.0, 0.2]), np.array([1.5, 0.5, -0.3])
    assert contradicts(ext, ext + bonus).tolist() == [True, False, True]
    assert contradicts(ext, 2.0 * ext + bonus).tolist() == [False, False, False]
    assert contradicts(ext, ext + bonus, tie_tolerance=1.0).tolist() == [False, True, True]
    assert is_bad(np.array([-0.1, 0.0, 0.1]), 0.1).tolist() == [False, False, False]


def test_q_values_take_the_place_of_the_one_step_estimate() -> None:
    t = random_transitions(np.random.default_rng(4), 50, 2)
    given = t._replace(advantage_ext=np.full(t.reward.shape, -3.0))
    assert (advantages(given, **COEFFICIENTS).ext == -3.0).all()
    expected = t.reward + 0.95 * np.where(t.terminated, 0.0, t.next_value_ext) - t.value_ext
    plain = t._replace(advantage_ext=None)
    np.testing.assert_array_equal(advantages(plain, **COEFFICIENTS).ext, expected)


@pytest.mark.parametrize(("total", "wrong"), [(-1e-12, False), (-1e-6, True), (0.0, False)])
def test_rounding_forgives_totals_just_below_zero(total: float, wrong: bool) -> None:
    good = np.array([0.5])
    assert contradicts(good, np.array([total]), rounding=ROUNDING)[0] == wrong
    assert contradicts(good, np.array([total]))[0] == (total < 0.0)
