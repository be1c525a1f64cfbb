"""What is known about a batch of states: the critic's values and the potential."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray, copy_observation, one_per_row
from adops_wrappers.backends import HOST, Backend, namespace, with_rows
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
        """Return a copy with the values of `other` in `rows`; see `backends.with_rows`."""
        potential = self.potential
        if potential is not None:
            potential = with_rows(potential, rows, other.potential)
        return Estimates(
            with_rows(self.value_ext, rows, other.value_ext),
            with_rows(self.value_int, rows, other.value_int),
            None,
            potential,
        )

    def rows(self, rows: BoolArray) -> Estimates:
        """Return the estimates of some rows alone."""
        return Estimates._make(None if values is None else values[rows] for values in self)

    def moved_to(self, backend: Backend) -> Estimates:
        """Return these estimates where the rewards are, or raise if they cannot be there."""
        return Estimates._make(
            None if values is None else backend.floats(what, values)
            for what, values in zip(_NAMES, self, strict=True)
        )


_NAMES = (
    "The critic's value_ext",
    "The critic's value_int",
    "The critic's q_ext",
    "What potential(obs, t) returns",
)


def potential_values(
    potential: Potential | None,
    layout: EnvLayout,
    obs: Any,
    elapsed: Any,
    backend: Backend | None = HOST,
) -> FloatArray | None:
    """Return Φ(obs, t) of every row, checked; None without a potential."""
    if potential is None:
        return None
    time = copy_observation(elapsed) if layout.batched else int(elapsed[0])
    what, rows = "What potential(obs, t) returns", len(elapsed)
    values = one_per_row(what, potential(obs, time), rows, "observations", backend)
    if backend in (None, HOST) and not namespace(values).isfinite(values).all():
        raise ValueError(f"potential(obs, t) must be finite, got {values}.")
    return values


def chosen_advantage(
    now: Estimates,
    critic: CriticHandle | None,
    obs: Any,
    action: Any,
    valid: BoolArray,
    space: gym.Space[Any],
    backend: Backend,
) -> FloatArray | None:
    """Return Q_E(s, a) − V_E(s) of the chosen actions; None where the critic gives no Q values."""
    if now.q_ext is not None:
        return _column_of(now.q_ext, action, valid, space, backend) - now.value_ext
    chosen = None if critic is None else critic.q_ext_of(obs, action)
    if chosen is None:
        return None
    what = "What the critic's q_ext_of(obs, action) returns"
    values = one_per_row(what, chosen, len(valid), "observations", backend)
    if backend is HOST and not np.isfinite(values).all():
        raise ValueError(f"{what} must be finite, got {values}.")
    return values - now.value_ext


def _column_of(
    q_ext: FloatArray, action: Any, valid: BoolArray, space: gym.Space[Any], backend: Backend
) -> FloatArray:
    if not isinstance(space, gym.spaces.Discrete):
        raise TypeError(
            f"The critic returned q_ext, which is indexed by a Discrete action; this env has "
            f"{space}. Return (value_ext, value_int) alone, and give Q_E of the action taken by a "
            "method q_ext_of(obs, action) of what you register."
        )
    (rows, actions), xp = q_ext.shape, namespace(q_ext)
    column = backend.integers(action).reshape(rows) - int(space.start)
    column = xp.where(valid, column, 0)
    inside = (column >= 0) & (column < actions)
    if actions != space.n or (backend is HOST and not inside.all()):
        raise ValueError(
            f"The critic's q_ext has {actions} columns and the actions were {action}, but the "
            f"action space is {space}."
        )
    # On a device an action that does not exist is found with what is not finite.
    column = xp.where(inside, column, 0)[:, None]
    take = xp.take_along_dim if hasattr(xp, "take_along_dim") else xp.take_along_axis
    chosen: FloatArray = take(q_ext, column, 1)[:, 0]
    return chosen if backend is HOST else xp.where(inside, chosen, math.nan)
