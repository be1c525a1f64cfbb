"""Checks of the arrays that make an MDP: each error says what was wrong and what is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray, FloatArray

_SUM_TOLERANCE = 1e-8


def state_index(state: Any, num_states: int) -> int:
    """Return `state` as an index, or raise if there is no such state."""
    try:
        index = int(state)
    except (TypeError, ValueError):
        index = -1
    if index != state or not 0 <= index < num_states:
        raise ValueError(f"Unknown state {state!r}: the states are 0 … {num_states - 1}.")
    return index


def terminal_mask(terminal: npt.ArrayLike | None, num_states: int) -> BoolArray:
    """Return a mask of terminal states, given as a mask or as a list of states."""
    mask = np.zeros(num_states, dtype=np.bool_)
    if terminal is None:
        return mask
    given = np.asarray(terminal)
    if given.dtype == np.bool_:
        if given.shape != mask.shape:
            raise ValueError(
                f"terminal must be a mask of shape {mask.shape} or a list of states, got a mask "
                f"of shape {given.shape}."
            )
        return np.array(given, dtype=np.bool_)
    for state in given.reshape(-1).tolist():
        mask[state_index(state, num_states)] = True
    return mask


def start_distribution(start: npt.ArrayLike, num_states: int) -> FloatArray:
    """Return a start distribution, given as one or as the only start state."""
    given = np.asarray(start)
    if given.ndim == 0:
        distribution = np.zeros(num_states)
        distribution[state_index(given.item(), num_states)] = 1.0
        return distribution
    array = floats("start", given)
    if array.shape != (num_states,) or not distributions(array):
        raise ValueError(
            f"start must be a state or a distribution of shape ({num_states},) that sums to 1, "
            f"got shape {array.shape} and sum {array.sum():.9g}."
        )
    return array


def check_transition(transition: FloatArray, terminal: BoolArray) -> None:
    """Raise unless every state that is not terminal has a distribution for every action."""
    wrong = ~distributions(transition) & ~terminal[:, None]
    if wrong.any():
        state, action = (int(i) for i in np.argwhere(wrong)[0])
        row = transition[state, action]
        raise ValueError(
            f"transition[{state}, {action}] is no probability distribution: it sums to "
            f"{row.sum():.9g} and its least entry is {row.min():.9g}. The entries of every "
            "state and action must be at least 0 and sum to 1; only terminal states may have "
            "other rows."
        )


def floats(name: str, values: npt.ArrayLike) -> FloatArray:
    """Return a finite float64 copy of `values`."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}.") from error
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, but {name}{list(where)} is {array[where]}.")
    return array


def distributions(array: FloatArray) -> BoolArray:
    """Return which rows of the last axis are probability distributions."""
    sums_to_one = np.abs(array.sum(axis=-1) - 1.0) <= _SUM_TOLERANCE
    ok: BoolArray = sums_to_one & (array >= 0.0).all(axis=-1)
    return ok
