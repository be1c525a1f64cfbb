from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from adops_wrappers.training.gradients import clip_gradients


@pytest.mark.parametrize(
    ("gradient", "largest", "expected"),
    [
        ([3.0, 4.0], 0.5, [0.3, 0.4]),
        ([0.03, 0.04], 0.5, [0.03, 0.04]),
        # Squares that overflow float32: clipping by a float32 norm would turn them into zeros.
        ([3e30, 4e30], 0.5, [0.3, 0.4]),
        ([2e38, 2e38], 0.5, [0.5 / 2**0.5, 0.5 / 2**0.5]),
        ([3e30, 4e30], 0.0, [3e30, 4e30]),
        ([3.0, 4.0], 0.0, [3.0, 4.0]),
    ],
)
def test_gradients_of_any_size_are_clipped_not_lost(gradient, largest, expected):
    parameter, unused = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    parameter.grad = torch.tensor(gradient)
    norm = clip_gradients([parameter, unused], largest)
    np.testing.assert_allclose(parameter.grad, expected, rtol=1e-5)
    assert norm.dtype == torch.float32
    assert norm.item() == pytest.approx(math.hypot(*gradient), rel=1e-6)
    assert unused.grad is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_is_reported_as_it_is(value):
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([1.0, value])
    norm = clip_gradients([parameter], 0.5)
    assert not torch.isfinite(norm)
    assert math.isnan(norm) == math.isnan(value)
