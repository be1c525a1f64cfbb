from __future__ import annotations

import math

import numpy as np
import pytest

from adops_wrappers.shaping import METHODS
from adops_wrappers.training.metrics import conflicts, explained_variance, mean, spread


def test_mean_of_nothing_is_an_empty_cell():
    assert mean([]) is None
    assert mean([1, 2]) == 1.5
    assert mean(np.array([True, False])) == 0.5


def test_spread_names_mean_and_extremes():
    found = spread("shaping/raw", np.array([[-3.0, 1.0], [0.0, 4.0]]))
    assert found == {"shaping/raw_mean": 0.5, "shaping/raw_min": -3.0, "shaping/raw_max": 4.0}


def test_explained_variance():
    returns = np.stack([np.array([[1.0], [2.0], [4.0]]), np.ones((3, 1))], 1)
    assert explained_variance(returns, returns, 0) == 1.0
    assert explained_variance(np.zeros_like(returns), returns, 0) == 0.0
    assert math.isnan(explained_variance(np.zeros_like(returns), returns, 1))


EXT = np.array([-1.0, -1.0, 1.0, 1.0, -0.2])
INT = np.array([2.0, 0.5, -3.0, 2.0, -1.0])


@pytest.mark.parametrize(
    ("method", "settings", "expected"),
    [
        ("none", {}, [True, False, True, False, False]),
        ("guarded", {}, [True, False, True, False, False]),
        ("adops", {}, [True, False, True, False, False]),
        ("adops", {"ext_coef": 4.0}, [False, False, False, False, False]),
        ("adops", {"int_coef": 3.0}, [True, True, True, False, False]),
        ("adops", {"tie_tolerance": 0.5}, [True, False, True, False, True]),
        ("adopes", {"tie_tolerance": 0.5, "int_coef": 3.0}, [True, True, True, False, True]),
    ],
)
def test_conflicts_follow_the_clamp_s_own_weights_and_tolerance(method, settings, expected):
    shaper = METHODS[method].make(1, **settings)
    assert conflicts(shaper, EXT, INT).tolist() == expected
