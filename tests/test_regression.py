from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from adops_wrappers.networks import ValueNetwork  # noqa: E402
from adops_wrappers.packing import ObservationPacker  # noqa: E402
from adops_wrappers.q_networks import QOfAction  # noqa: E402
from adops_wrappers.regression import Regression  # noqa: E402

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(40, 3)).astype(np.float32)
TARGETS = RNG.normal(size=(40, 2)).astype(np.float32)
CLIP = 0.5


def network(hidden: list[int] | None = None) -> ValueNetwork:
    torch.manual_seed(0)
    packer = ObservationPacker(gym.spaces.Box(-5.0, 5.0, (3,)))
    found = ValueNetwork(packer, [5, 4] if hidden is None else hidden, 2)
    torch.nn.init.normal_(found.body[-1].weight)
    return found


def fitted(hidden: list[int] | None = None) -> Regression:
    return Regression(network(hidden), 0.01, CLIP)


def squares(outputs: Any) -> Any:
    return 2.0 * (outputs - TARGETS) / len(TARGETS)


def by_torch(hidden: list[int] | None, steps: int) -> tuple[Any, Any]:
    """The same by autograd and by torch's own Adam, one entry for each parameter."""
    plain = network(hidden)
    adam = torch.optim.Adam(plain.parameters(), lr=0.01)
    for _ in range(steps):
        error = plain([torch.from_numpy(INPUTS)]) - torch.from_numpy(TARGETS)
        adam.zero_grad()
        (error.square().sum() / len(TARGETS)).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), CLIP)
        adam.step()
    return plain, adam


@pytest.mark.parametrize("hidden", [[], [5], [5, 4]])
def test_numpy_takes_the_steps_that_torch_takes(hidden: list[int]) -> None:
    plain, _ = by_torch(hidden, 30)
    mine = fitted(hidden)
    assert mine.mlp is not None
    for _ in range(30):
        mine.step([INPUTS], squares)
    for ours, theirs in zip(mine.network.parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)
    answer = plain([torch.from_numpy(INPUTS)]).detach().numpy()
    np.testing.assert_allclose(mine.values([INPUTS]), answer, rtol=1e-4, atol=1e-5)


def test_autograd_takes_the_same_steps_where_numpy_cannot() -> None:
    one, other = fitted(), fitted()
    other.mlp = None  # as for a CNN, or on a GPU
    for _ in range(30):
        one.step([INPUTS], squares)
        other.step([torch.from_numpy(INPUTS)], squares)
    np.testing.assert_allclose(one.vector.detach(), other.vector.detach(), rtol=1e-4, atol=1e-6)


def test_more_rows_than_fit_at_once_have_the_same_values() -> None:
    mine, many = fitted(), RNG.normal(size=(700, 3)).astype(np.float32)
    parts = [mine.values([many[i : i + 1]]) for i in range(700)]
    np.testing.assert_allclose(mine.values([many]), np.concatenate(parts), rtol=1e-5, atol=1e-6)


def test_the_state_of_an_adam_of_many_parameters_goes_on() -> None:
    plain, adam = by_torch(None, 20)
    further, _ = by_torch(None, 30)
    mine = fitted()
    mine.network.load_state_dict(plain.state_dict())
    mine.load_state_dict(adam.state_dict())
    for _ in range(10):
        mine.step([INPUTS], squares)
    for ours, theirs in zip(mine.network.parameters(), further.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("copy", [deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_learns_on_its_own_as_the_original_does(copy: Any) -> None:
    mine = fitted()
    for _ in range(5):
        mine.step([INPUTS], squares)
    other = copy(mine)
    other.step([INPUTS], squares)
    assert not torch.equal(mine.vector, other.vector)
    mine.step([INPUTS], squares)
    assert torch.equal(mine.vector, other.vector)
    np.testing.assert_array_equal(mine.values([INPUTS]), other.values([INPUTS]))
    held = torch.cat([weight.detach().reshape(-1) for weight in other.network.parameters()])
    assert torch.equal(held, other.vector.detach())


def test_groups_are_clipped_apart() -> None:
    """Of three networks, the third's gradient does not shrink the others'."""
    torch.manual_seed(0)
    packer = ObservationPacker(gym.spaces.Box(-5.0, 5.0, (3,)))
    q = QOfAction(packer, 1, [4])
    mine = Regression(q, 0.01, CLIP, q.clipped_together())
    for mlp in (q.ext, q.twin, q.int):
        torch.nn.init.normal_(mlp[-1].weight)
    inputs = [torch.from_numpy(INPUTS), torch.zeros(40, 1, 1)]
    mine.step(inputs, lambda outputs: np.float32([1e-6, 1e-6, 1e6]) * np.ones_like(outputs))
    task, bonus = (mine.gradient[stretch].norm().item() for stretch in mine._stretches)
    assert bonus == pytest.approx(CLIP, rel=1e-5)
    assert 0.0 < task < 1e-3
