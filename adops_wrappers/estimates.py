"""What is known about a batch of states: the critic's values and the potential."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray, one_per_row, to_numpy
from adops_wrappers.episodes import EnvLayout

Potential = Callable[[Any, Any], Any]


class Estimates(NamedTuple):
    """V_E, V_I, Q_E and Φ of a batch of states."""

    value_ext: FloatArray
    value_int: FloatArray
    q_ext: FloatArray | None
    potential: FloatArray | None

    def with_rows(self, rows: BoolArray, other: Estimates, *, keep_value_int: bool) -> Estimates:
        """Return a copy whose `rows` are those of the smaller batch `other`."""
        value_ext, value_int, potential = self.value_ext.copy(), self.value_int, self.potential
        value_ext[rows] = other.value_ext
        if not keep_value_int:
            value_int = value_int.copy()
            value_int[rows] = other.value_int
        if potential is not None:
            potential = potential.copy()
            potential[rows] = other.potential
        return Estimates(value_ext, value_int, None, potential)


def potential_values(
    potential: Potential | None, layout: EnvLayout, obs: Any, elapsed: Any
) -> FloatArray | None:
    """Return Φ(obs, t) of every row, checked; None without a potential."""
    if potential is None:
        return None
    time = elapsed.copy() if layout.batched else int(elapsed[0])
    values = one_per_row(
        "What potential(obs, t) returns", potential(obs, time), len(elapsed), "observations"
    )
    if not np.isfinite(values).all():
        raise ValueError(f"potential(obs, t) must be finite, got {values}.")
    return values


def chosen_advantage(
    now: Estimates, action: Any, valid: BoolArray, space: gym.Space[Any]
) -> FloatArray | None:
    """Return Q_E(s, a) − V_E(s) of the chosen actions; None where the critic gives no Q values."""
    if now.q_ext is None:
        return None
    if not isinstance(space, gym.spaces.Discrete):
        raise TypeError(
            f"The critic returned q_ext, which is indexed by a Discrete action; this env has "
            f"{space}. Return (value_ext, value_int) alone."
        )
    rows, actions = now.q_ext.shape
    column = to_numpy(action).reshape(rows).astype(np.int64) - int(space.start)
    column = np.where(valid, column, 0)
    if actions != space.n or not ((column >= 0) & (column < actions)).all():
        raise ValueError(
            f"The critic's q_ext has {actions} columns and the actions were {action}, but the "
            f"action space is {space}."
        )
    chosen: FloatArray = now.q_ext[np.arange(rows), column]
    return chosen - now.value_ext
