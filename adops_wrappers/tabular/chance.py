"""Copies of an env with new random numbers, from every generator that can be found in it."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np

_GENERATORS = (np.random.BitGenerator, np.random.Generator, np.random.RandomState, random.Random)


class Branch:
    """A copy of an env, every generator in it seeded anew.

    Attributes:
        env: The copy.
    """

    def __init__(self, env: Any, seed: int) -> None:
        # What deepcopy has copied stands in its memo, however deep in the env it is.
        memo: dict[int, Any] = {}
        self.env = deepcopy(env, memo)
        self._generators = [part for part in memo.values() if isinstance(part, _GENERATORS)]
        for number, generator in enumerate(self._generators):
            _seed(generator, seed, number)

    def numbers(self) -> bytes:
        """Return the state of these generators and of the global ones, which are not copied."""
        own = [_state(generator) for generator in self._generators]
        return pickle.dumps((own, random.getstate(), np.random.get_state()))  # noqa: NPY002


def check_copies(env: Any) -> None:
    """Raise if copies of the env do not carry its state."""
    try:
        deepcopy(env)
    except Exception as error:
        raise _no_copy(f"copy.deepcopy of it fails: {error}") from error
    if getattr(type(env), "__getstate__", None) is gym.utils.EzPickle.__getstate__:
        raise _no_copy("a copy of a gymnasium.utils.EzPickle begins anew, without its state")


def _no_copy(reason: str) -> ValueError:
    return ValueError(
        f"The env cannot be enumerated, because {reason}. Pass arrays to FiniteMDP, or give the "
        "env a method to_mdp(gamma)."
    )


@contextmanager
def seeded_globals() -> Iterator[None]:
    """Seed the global generators of Python and numpy, and put them back in the end."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _bits(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator
    return getattr(generator, "_bit_generator", generator)


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    return _bits(generator).state


def _seed(generator: Any, seed: int, number: int) -> None:
    if isinstance(generator, random.Random):
        generator.seed(f"{seed} {number}")
    else:
        bits = _bits(generator)
        bits.state = _fresh_state(bits.__class__, seed, number)


@lru_cache(maxsize=20_000)
def _fresh_state(kind: Any, seed: int, number: int) -> Any:
    # Every pair of state and action is tried with the same seeds.
    return kind([seed, number]).state
