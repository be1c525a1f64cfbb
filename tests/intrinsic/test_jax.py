"""Bonuses and the normaliser where observations and rewards are arrays of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

pytest.importorskip("torch")
jnp = pytest.importorskip("jax.numpy")

from adops_wrappers import (  # noqa: E402
    CountBonus,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    SimHashCount,
)
from adops_wrappers.intrinsic.rnd import RND  # noqa: E402
from tests.tensors import TensorWalk, play  # noqa: E402


class JaxWalk(TensorWalk):
    """The walk of NumPy, in arrays of JAX."""

    def __init__(self, mode: AutoresetMode) -> None:
        super().__init__(None, mode)

    def shown(self, tensor: Any) -> Any:
        return jnp.asarray(super().shown(tensor))


SOURCES: dict[str, Callable[[gym.Space[Any]], Any]] = {
    "RND": lambda space: RND(space, seed=0, batch_size=8),
    "SimHash": lambda space: SimHashCount(bits=6, seed=0),
    "SimHash, hashed again": lambda space: SimHashCount(bits=12, table_bits=5, seed=0),
    "counts": lambda space: CountBonus(key=lambda obs: tuple((np.asarray(obs) > 0).tolist())),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("update", ["step", "manual"])
def test_arrays_of_jax_are_paid_what_those_of_numpy_are(
    update: Any, mode: AutoresetMode, source: str
) -> None:
    found, states = [], []
    for env in (JaxWalk(mode), TensorWalk(None, mode)):
        normalizer = IntrinsicReturnNormalizer(4, update=update, warm_up=5)
        stack = IntrinsicRewardWrapper(
            env, SOURCES[source](env.single_observation_space), normalizer=normalizer
        )
        stack.reset(seed=0)
        columns = play(stack, 20)
        normalizer.update()
        columns += play(stack, 20)
        assert all(isinstance(column, type(env.no_action())) for column in columns)
        found.append(np.array(columns))
        states.append(stack.state_dict()["normalizer"]["moments"])
    assert found[1].std() > 0.0
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(*states, rtol=1e-4)
