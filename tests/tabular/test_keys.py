from __future__ import annotations

from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest

from adops_wrappers.tabular.keys import frozen, named_key


@pytest.mark.parametrize(
    "value",
    [3, "text", None, (1, [2, {"a": np.zeros(2)}]), np.array(["x", None], dtype=object), {1, 2}],
)
def test_equal_values_have_equal_keys(value):
    assert hash(frozen(value)) == hash(frozen(deepcopy(value)))
    assert frozen(value) == frozen(deepcopy(value))


def test_arrays_of_unequal_shapes_are_unequal():
    assert frozen(np.zeros((2, 3))) != frozen(np.zeros((3, 2)))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(TypeError, match="bytearray cannot tell states apart"):
        frozen(bytearray(2))


def test_attributes_and_the_observation():
    env = gym.make("FrozenLake-v1").unwrapped
    env.reset(seed=0)
    env.s = 7
    assert named_key("s, obs, nrow")(env, {"b": 1, "a": np.int64(2)}) == (
        7,
        (("a", 2), ("b", 1)),
        4,
    )
