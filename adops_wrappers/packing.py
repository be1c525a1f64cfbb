"""Observations of any space as plain arrays, leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from adops_wrappers.arrays import to_numpy

WORD_BUCKETS = 64
"""A text becomes the set of its words, hashed into this many bits."""

Packed = list[npt.NDArray[Any]]
"""A batch of observations: one array of shape (rows, ...) for each leaf of the space."""


_NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class _Leaf(NamedTuple):
    """What `pack` asks of a leaf at every step."""

    path: tuple[Any, ...]
    space: gym.Space[Any]
    is_text: bool
    shape: tuple[int, ...]
    dimensions: int

    @classmethod
    def of(cls, path: tuple[Any, ...], space: gym.Space[Any]) -> _Leaf:
        text, shape = not isinstance(space, _NUMBERS), tuple(space.shape or ())
        return cls(path, space, text, shape, 0 if text else len(shape))


class ObservationPacker:
    """Turns observations of a space, one or a batch, into plain arrays, leaf by leaf.

    Box, Discrete, MultiDiscrete and MultiBinary leaves keep their dtype; texts (and leaves of
    unknown spaces whose observations are strings, such as MiniGrid's missions) become hashed words.

    Args:
        space: The space of one observation; Dict and Tuple may nest.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self.leaves = list(_leaves(space))
        if not self.leaves:
            raise ValueError(f"The observation space {space} holds nothing to learn from.")
        self._described = [_Leaf.of(path, leaf) for path, leaf in self.leaves]

    def pack(self, obs: Any, as_array: Callable[[Any], Any] = to_numpy) -> tuple[list[Any], bool]:
        """Return arrays with a leading axis of rows, and whether `obs` was a batch.

        `as_array` can leave tensors as they are.
        """
        parts = [_pick(obs, leaf.path) for leaf in self._described]
        first, leaf = parts[0], self._described[0]
        batched = not isinstance(first, str) and as_array(first).ndim > leaf.dimensions
        return [
            self._leaf_array(leaf, part, batched, as_array)
            for leaf, part in zip(self._described, parts, strict=True)
        ], batched

    def _leaf_array(
        self, leaf: _Leaf, part: Any, batched: bool, as_array: Callable[[Any], Any]
    ) -> Any:
        if leaf.is_text:
            texts = list(part) if batched else [part]
            return np.stack([_word_bits(text) for text in texts])
        array = as_array(part)
        array = array if batched else array[None]
        if array.shape[1:] != leaf.shape:
            raise ValueError(
                f"Got an observation of shape {tuple(np.shape(part))} for the space "
                f"{leaf.space}. Give the space of one observation: env.observation_space of an "
                "Env, env.single_observation_space of a VectorEnv."
            )
        return array


def _leaves(space: gym.Space[Any], path: tuple[Any, ...] = ()) -> Any:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, index))
    elif isinstance(space, spaces.Graph | spaces.Sequence | spaces.OneOf):
        raise TypeError(
            f"There is no encoder for {type(space).__name__} observations. Turn them into arrays "
            "of a fixed size first, for instance with gymnasium.wrappers.TransformObservation."
        )
    else:
        yield path, space


def _pick(obs: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        obs = obs[key]
    return obs


def _word_bits(text: Any) -> npt.NDArray[np.uint8]:
    if not isinstance(text, str):
        raise TypeError(
            f"There is no encoder for observations of type {type(text).__name__}. Numbers need a "
            "Box, Discrete, MultiDiscrete or MultiBinary space; other leaves must be strings."
        )
    bits = np.zeros(WORD_BUCKETS, dtype=np.uint8)
    for word in text.lower().split():
        bits[crc32(word.encode()) % WORD_BUCKETS] = 1
    return bits
