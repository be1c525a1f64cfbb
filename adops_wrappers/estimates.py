"""What is known about a batch of states: the critic's values and the potential."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray, copy_observation, first_part, one_per_row
from adops_wrappers.backends import HOST, Backend, backend_of, is_finite, kept, namespace, with_rows
from adops_wrappers.episodes import EnvLayout

if TYPE_CHECKING:
    from adops_wrappers.critic import CriticHandle

Potential = Callable[[Any, Any], Any]


class ValueEstimates(NamedTuple):
    """A critic's estimates for n observations: float64 arrays of length n."""

    value_ext: FloatArray
    """V_E, the value of the extrinsic stream."""
    value_int: FloatArray
    """V_I, the value of the shaped intrinsic stream F′."""
    q_ext: FloatArray | None = None
    """Q_E of shape (n, actions), where the critic has it."""


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

    def where(self, rows: BoolArray) -> Estimates:
        """Return these estimates in some rows and 0 elsewhere, without Q values."""
        return Estimates._make(
            None if values is None else kept(values, rows) for values in self._replace(q_ext=None)
        )

    def rows(self, rows: BoolArray) -> Estimates:
        """Return the estimates of some rows alone."""
        return Estimates._make(None if values is None else values[rows] for values in self)


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
    if backend is None:  # before the first step
        elapsed = backend_of(first_part(obs)).moved(elapsed)
    time = copy_observation(elapsed) if layout.batched else int(elapsed[0])
    what, rows = "What potential(obs, t) returns", len(elapsed)
    values = one_per_row(what, potential(obs, time), rows, "observations", backend)
    if type(values) is np.ndarray and not np.isfinite(values).all():
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


def value_estimates(answer: Any, num_envs: int, backend: Backend | None = HOST) -> ValueEstimates:
    """Convert and check what a critic returned for `num_envs` observations.

    On a device nobody looks for values that are not finite: they show in F′, which is checked.
    """
    q_ext = None
    if hasattr(answer, "value_ext") and hasattr(answer, "value_int"):
        value_ext, value_int = answer.value_ext, answer.value_int
        q_ext = getattr(answer, "q_ext", None)
    elif isinstance(answer, tuple | list) and len(answer) in (2, 3):
        value_ext, value_int = answer[:2]
        q_ext = answer[2] if len(answer) == 3 else None
    else:
        raise TypeError(
            "The critic must return an object with .value_ext and .value_int, or a tuple "
            f"(value_ext, value_int[, q_ext]); it returned {_summary(answer)}."
        )
    if backend is None:
        backend = backend_of(value_ext)
    of: Literal["observations"] = "observations"
    value_ext = one_per_row("The critic's value_ext", value_ext, num_envs, of, backend)
    value_int = one_per_row("The critic's value_int", value_int, num_envs, of, backend)
    if backend is HOST and not is_finite(value_ext + value_int):
        _finite("value_ext", value_ext)
        _finite("value_int", value_int)
    return ValueEstimates(
        value_ext, value_int, None if q_ext is None else _q_values(q_ext, num_envs, backend)
    )


def _q_values(values: Any, num_envs: int, backend: Backend) -> FloatArray:
    array: FloatArray = backend.floats("The critic's q_ext", values)
    if array.ndim == 1 and num_envs == 1:
        array = array[None]
    if array.ndim != 2 or len(array) != num_envs:
        raise ValueError(
            f"The critic's q_ext must have shape ({num_envs}, number of actions); got shape "
            f"{tuple(array.shape)}."
        )
    return _finite("q_ext", array) if backend is HOST else array


def _finite(name: str, array: FloatArray) -> FloatArray:
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(
            f"The critic's {name} is not finite for environment {row}: {array[row]}. Check the "
            "agent for diverged weights or unscaled inputs."
        )
    return array


def _summary(answer: Any) -> str:
    if isinstance(answer, tuple | list):
        return f"a {type(answer).__name__} of {len(answer)}"
    return f"a {type(answer).__name__}"
