"""What is known about a batch of states: the critic's values and the potential."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray, one_per_row, to_numpy
from adops_wrappers.critic import CriticHandle
from adops_wrappers.episodes import EnvLayout

Potential = Callable[[Any, Any], Any]


class Estimates(NamedTuple):
    """V_E, V_I, Q_E and Φ of a batch of states."""

    value_ext: FloatArray
    value_int: FloatArray
    q_ext: FloatArray | None
    potential: FloatArray | None

    def with_rows(self, rows: BoolArray, other: Estimates) -> Estimates:
        """Return a copy whose `rows` are those of the smaller batch `other`."""
        value_ext, value_int = self.value_ext.copy(), self.value_int.copy()
        value_ext[rows], value_int[rows] = other.value_ext, other.value_int
        potential = self.potential
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
    now: Estimates,
    critic: CriticHandle | None,
    obs: Any,
    action: Any,
    valid: BoolArray,
    space: gym.Space[Any],
) -> FloatArray | None:
    """Return Q_E(s, a) − V_E(s) of the chosen actions; None where the critic gives no Q values."""
    if now.q_ext is not None:
        return _column_of(now.q_ext, action, valid, space) - now.value_ext
    chosen = None if critic is None else critic.q_ext_of(obs, action)
    if chosen is None:
        return None
    what = "What the critic's q_ext_of(obs, action) returns"
    values = one_per_row(what, chosen, len(valid), "observations")
    if not np.isfinite(values).all():
        raise ValueError(f"{what} must be finite, got {values}.")
    return values - now.value_ext


def _column_of(
    q_ext: FloatArray, action: Any, valid: BoolArray, space: gym.Space[Any]
) -> FloatArray:
    if not isinstance(space, gym.spaces.Discrete):
        raise TypeError(
            f"The critic returned q_ext, which is indexed by a Discrete action; this env has "
            f"{space}. Return (value_ext, value_int) alone, and give Q_E of the action taken by a "
            "method q_ext_of(obs, action) of what you register."
        )
    rows, actions = q_ext.shape
    column = to_numpy(action).reshape(rows).astype(np.int64) - int(space.start)
    column = np.where(valid, column, 0)
    if actions != space.n or not ((column >= 0) & (column < actions)).all():
        raise ValueError(
            f"The critic's q_ext has {actions} columns and the actions were {action}, but the "
            f"action space is {space}."
        )
    chosen: FloatArray = q_ext[np.arange(rows), column]
    return chosen
