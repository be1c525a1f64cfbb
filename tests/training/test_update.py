from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from adops_wrappers.training.update import clip_gradients, order_of_other_codes, upload


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


def test_minibatches_of_whole_envs():
    torch.manual_seed(0)
    args = SimpleNamespace(minibatch_rows="whole-envs", num_envs=6)
    order = order_of_other_codes(args, 5 * 6)
    envs = [set((part % 6).tolist()) for part in order.split(10)]
    assert [len(part) for part in envs] == [2, 2, 2]
    assert sorted(env for part in envs for env in part) == [*range(6)]
    assert sorted(order.tolist()) == [*range(30)]


def test_minibatches_with_replacement():
    torch.manual_seed(0)
    args = SimpleNamespace(minibatch_rows="with-replacement", num_envs=8)
    rows = order_of_other_codes(args, 4000)
    assert len(rows) == 4000
    # A row is missed with probability 1/e.
    assert 4000 * 0.60 < len(rows.unique()) < 4000 * 0.66


def test_groups_arrive_as_they_were_sent():
    groups = [(torch.arange(3), torch.arange(0)), (torch.arange(2), torch.arange(5, 9))]
    arrived = list(upload(groups, torch.device("cpu")))
    assert [len(group) for group in arrived] == [2, 2]
    for sent, came in zip(groups, arrived, strict=True):
        assert all(torch.equal(*pair) for pair in zip(sent, came, strict=True))
