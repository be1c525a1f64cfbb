"""Observations and arrays of any kind: copies, comparisons, rows, conversion to float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import concatenate, create_empty_array

from adops_wrappers.backends import HOST, Backend, backend_of, is_tensor, namespace
from adops_wrappers.shaper import BoolArray as BoolArray
from adops_wrappers.shaper import FloatArray as FloatArray


def to_numpy(values: Any) -> npt.NDArray[Any]:
    """Return a numpy array of a torch tensor on any device, or of anything array-like."""
    if type(values) is np.ndarray:
        return values
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def to_float64(values: Any) -> FloatArray:
    """Return a float64 copy in NumPy that shares no memory with `values`."""
    return HOST.floats("values", values)  # type: ignore[no-any-return]


def one_per_row(
    what: str,
    values: Any,
    rows: int,
    of: Literal["environments", "observations"],
    backend: Backend | None = HOST,
) -> FloatArray:
    """Return a float64 copy of shape (rows,), or raise unless there is one value for each row.

    It is in `backend`, or with None wherever the values are.
    """
    if type(values) is np.ndarray and values.shape == (rows,) and backend is HOST:
        return values.astype(np.float64)  # the usual case; always a copy
    array = (backend or backend_of(values)).floats(what, values)
    shape = tuple(array.shape)
    if math.prod(shape) != rows or shape not in ((), (1,), (rows,), (rows, 1)):
        raise ValueError(
            f"{what} must hold one value for each of {rows} {of}, of shape ({rows},) or "
            f"({rows}, 1); got shape {shape}."
        )
    return array.reshape(rows)  # type: ignore[no-any-return]


def copy_observation(obs: Any) -> Any:
    """Return an independent copy of an observation or a batch of them."""
    if isinstance(obs, np.ndarray):
        return obs.copy()
    if hasattr(obs, "detach"):
        return obs.detach().clone()
    if isinstance(obs, dict):
        return {key: copy_observation(value) for key, value in obs.items()}
    if type(obs) is tuple:
        return tuple(copy_observation(value) for value in obs)
    if is_tensor(obs):
        return obs  # an array of JAX never changes
    return deepcopy(obs)


def independent(*arrays: Any) -> list[Any]:
    """Return copies of arrays or scalars, which share no memory with what was given."""
    first = arrays[0] if arrays else None
    if type(first) is not np.ndarray and _all_alike(arrays):
        # One operation on the device for all of them.
        return list(namespace(first).stack(arrays).unbind())
    return [
        array.copy() if type(array) is np.ndarray else copy_observation(array) for array in arrays
    ]


def _all_alike(arrays: tuple[Any, ...]) -> bool:
    """Whether these are torch tensors of one shape and one dtype."""
    kinds = {(array.shape, array.dtype) if hasattr(array, "detach") else None for array in arrays}
    return len(kinds) == 1 and None not in kinds


def first_part(obs: Any) -> Any:
    """Return an array of an observation, or of a batch: the first, if it is made of several."""
    while isinstance(obs, Mapping | tuple):
        obs = next(iter(obs.values())) if isinstance(obs, Mapping) else obs[0]
    return obs


def to_host(obs: Any) -> Any:
    """Return an observation, or a batch of them, with its torch tensors as numpy arrays."""
    if hasattr(obs, "detach"):
        return to_numpy(obs)
    if isinstance(obs, dict):
        return {key: to_host(value) for key, value in obs.items()}
    if type(obs) is tuple:
        return tuple(map(to_host, obs))
    return obs


def columns_to_host(columns: Sequence[Any]) -> list[Any]:
    """Return columns with their tensors as numpy arrays: one copy for all of a shape and dtype."""
    found, alike = list(columns), dict[Any, list[int]]()
    for place, column in enumerate(columns):
        if is_tensor(column):
            alike.setdefault((column.shape, column.dtype, column.device), []).append(place)
    for places in alike.values():
        stacked = namespace(columns[places[0]]).stack([columns[place] for place in places])
        for place, column in zip(places, HOST.moved(stacked), strict=True):
            found[place] = column
    return found


def same_observation(first: Any, second: Any) -> bool:
    """Compare by content; a torch tensor equals the array that it was made from."""
    if isinstance(first, Mapping) or isinstance(second, Mapping):
        return (
            isinstance(first, Mapping)
            and isinstance(second, Mapping)
            and first.keys() == second.keys()
            and all(same_observation(first[key], second[key]) for key in first)
        )
    if isinstance(first, tuple) or isinstance(second, tuple):
        return (
            isinstance(first, tuple)
            and isinstance(second, tuple)
            and len(first) == len(second)
            and all(map(same_observation, first, second))
        )
    if hasattr(first, "detach") and hasattr(second, "detach"):
        return _same_tensors(first, second)
    left = first if type(first) is np.ndarray else to_numpy(first)
    right = second if type(second) is np.ndarray else to_numpy(second)
    if left.shape != right.shape:
        return False
    # Most observations already differ in their first row, which saves comparing the rest.
    parts = ((left[:1], right[:1]), (left, right)) if left.size > 4096 else ((left, right),)
    for one, other in parts:
        differ = np.asarray(one != other)
        if differ.any() and not _are_nan(one[differ], other[differ]):
            return False
    return True


def _same_tensors(first: Any, second: Any) -> bool:
    if first.shape != second.shape or first.device != second.device:
        return False
    if first.dtype != second.dtype or not first.is_floating_point():
        return bool((first == second).all())
    # Exact, but NaN equals NaN.
    xp = namespace(first)
    return bool(xp.equal(first, second) or xp.allclose(first, second, 0.0, 0.0, equal_nan=True))


def token_of(obs: Any) -> Any:
    """Return what tells a tensor on a device from others, and from itself after a change.

    Comparing contents would wait for the device. None for what lives on the host, the contents of
    which are cheap to compare. Whoever keeps a token keeps the tensor, too: its address could be
    given to another.
    """
    if type(obs) is np.ndarray:
        return None
    if isinstance(obs, Mapping):
        tokens = {key: token_of(part) for key, part in obs.items()}
        return tuple(tokens.items()) if any(t is not None for t in tokens.values()) else None
    if isinstance(obs, tuple):
        parts = tuple(map(token_of, obs))
        return parts if any(part is not None for part in parts) else None
    if not is_tensor(obs):
        return None
    if not hasattr(obs, "detach"):
        return id(obs)  # JAX
    if obs.device.type == "cpu":
        return None
    version = 0 if obs.is_inference() else obs._version  # tensors of inference mode count none
    return obs.data_ptr(), obs.dtype, obs.shape, obs.stride(), version


def _are_nan(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Whether all values are NaN on both sides, which counts as equal."""
    return bool(left[0] != left[0] and (left != left).all() and (right != right).all())


def select_rows(space: gym.Space[Any], batch: Any, rows: BoolArray) -> Any:
    """Return the batch of the observations in `rows`, given a batch of all of them."""
    if _is_array(batch):
        return batch[rows]
    return stack_rows(space, [_rows(space, batch)[i] for i in np.flatnonzero(rows)])


def stack_rows(space: gym.Space[Any], observations: Sequence[Any]) -> Any:
    """Return single observations of `space` as one batch."""
    empty: Any = create_empty_array(space, n=len(observations))
    return concatenate(space, [to_host(obs) for obs in observations], empty)


def replace_rows(space: gym.Space[Any], batch: Any, rows: BoolArray, replacement: Any) -> Any:
    """Return a copy of `batch` whose `rows` are those of the smaller batch `replacement`."""
    if _is_array(batch):
        result = copy_observation(batch)
        if not hasattr(batch, "detach"):
            replacement = to_numpy(replacement)
        elif not hasattr(replacement, "detach"):
            replacement = batch.new_tensor(replacement)
        result[rows] = replacement
        return result
    merged = _rows(space, batch)
    for row, observation in zip(np.flatnonzero(rows), _rows(space, replacement), strict=True):
        merged[row] = observation
    return stack_rows(space, merged)


def merge_rows(batch: Any, rows: Any, others: Any) -> Any:
    """Return a batch of tensors with other observations in `rows`, without looking at the mask.

    `others` is a batch of as many rows, or a sequence of single observations in which None stands
    for a row that has none.
    """
    if isinstance(batch, Mapping | tuple):
        keys = batch.keys() if isinstance(batch, Mapping) else range(len(batch))
        whole = isinstance(others, Mapping | tuple)
        parts = {
            key: merge_rows(
                batch[key],
                rows,
                others[key] if whole else [None if row is None else row[key] for row in others],
            )
            for key in keys
        }
        return parts if isinstance(batch, Mapping) else tuple(parts.values())
    xp = namespace(batch)
    if isinstance(others, list) or getattr(others, "dtype", None) == np.dtype(object):
        present = [batch[i] if row is None else row for i, row in enumerate(others)]
        others = xp.stack([backend_of(batch).alike(batch, row) for row in present])
    elif not is_tensor(others):
        others = backend_of(batch).alike(batch, others)
    return xp.where(rows.reshape(-1, *[1] * (batch.ndim - 1)), others, batch)


def batch_length(space: gym.Space[Any], batch: Any) -> int:
    """Return the number of observations of `space` in a batch."""
    if isinstance(space, gym.spaces.Dict):
        key, part = next(iter(space.spaces.items()))
        return batch_length(part, batch[key])
    if isinstance(space, gym.spaces.Tuple):
        return batch_length(space.spaces[0], batch[0])
    return len(batch)


def _is_array(batch: Any) -> bool:
    return hasattr(batch, "detach") or (isinstance(batch, np.ndarray) and batch.dtype != object)


def _rows(space: gym.Space[Any], batch: Any) -> list[Any]:
    if isinstance(batch, np.ndarray) or not isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        return list(batch)
    if isinstance(space, gym.spaces.Dict):
        parts = {key: _rows(part, batch[key]) for key, part in space.spaces.items()}
        length = len(next(iter(parts.values())))
        return [{key: column[i] for key, column in parts.items()} for i in range(length)]
    columns = [_rows(part, column) for part, column in zip(space.spaces, batch, strict=True)]
    return list(zip(*columns, strict=True))
