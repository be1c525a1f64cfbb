"""Where a stack computes: in NumPy, or in tensors of torch or JAX on the device of the rewards.

The maths uses operators and functions that `numpy`, `torch` and `jax.numpy` spell alike: `where`,
`isfinite`, `stack`. `namespace` returns the one that takes an array. That is why no compatibility
layer is imported: it would add a dependency and a call to each operation.

On a device nobody looks at values, which would wait for it. So what NumPy code does to some rows
is done to all of them, under a mask; `may_hold` keeps the shortcut where it costs nothing.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt


def namespace(array: Any) -> Any:
    """Return `numpy`, `torch` or `jax.numpy`, whichever takes this array."""
    kind: Any = type(array)
    return np if kind is np.ndarray else _namespace_of(kind)


@cache
def _namespace_of(kind: Any) -> Any:
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package == "torch":
            return sys.modules["torch"]
        if package in ("jax", "jaxlib"):
            return sys.modules["jax.numpy"]
    return np


def as_array(values: Any) -> Any:
    """Return tensors as they are, and anything else as a NumPy array."""
    return values if is_tensor(values) else np.asarray(values)


def is_tensor(values: Any) -> bool:
    """Whether these are values of torch or JAX."""
    return namespace(values) is not np


def may_hold(mask: Any) -> bool:
    """Whether any row of a mask is True, as far as this is known without waiting for a device."""
    # Bytes are compared ten times as fast as `any` answers.
    return mask.tobytes() != bytes(mask.size) if type(mask) is np.ndarray else True


@cache
def all_rows(rows: int) -> npt.NDArray[np.bool_]:
    """Return the mask of all rows, which `kept` recognises. It cannot be written to."""
    mask = np.ones(rows, dtype=np.bool_)
    mask.flags.writeable = False
    return mask


def is_finite(values: npt.NDArray[np.float64]) -> bool:
    """Whether all values of a vector in NumPy are finite."""
    # Their squares tell it in a quarter of the time, unless they leave float64. `dot` would warn.
    return math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())


def kept(values: Any, rows: Any) -> Any:
    """Return `values` in `rows` and 0 elsewhere; `values` themselves if these are all rows."""
    if type(values) is np.ndarray:
        if rows is all_rows(len(rows)):
            return values
        # NumPy takes a quarter longer to mix floats with an integer.
        return np.where(rows, values, 0.0 if values.dtype.kind == "f" else 0)
    return namespace(values).where(rows, values, _constant(values, 0))


def cleared(array: Any, rows: Any, value: Any = 0) -> Any:
    """Return `array` with `value` in `rows`, or everywhere if `rows` is None."""
    if rows is None:
        return namespace(array).full_like(array, value)
    if type(array) is np.ndarray:
        return np.where(rows, value, array)
    return namespace(array).where(rows, _constant(array, value), array)


def _constant(like: Any, value: Any) -> Any:
    """Return a number to be mixed with an array: for torch a tensor, which is made once."""
    if not hasattr(like, "detach"):
        return value
    return _constant_tensor(value, like.dtype, like.device)


@cache
def _constant_tensor(value: Any, dtype: Any, device: Any) -> Any:
    torch = sys.modules["torch"]
    with torch.inference_mode(False):
        return torch.full((), value, dtype=dtype, device=device)


def with_rows(array: Any, rows: Any, values: Any) -> Any:
    """Return a copy of `array` with other values in `rows`.

    `values` has an entry for each of these rows, or in tensors, which are not selected from, for
    all rows.
    """
    if type(array) is not np.ndarray:
        return namespace(array).where(rows, values, array)
    result = array.copy()
    result[rows] = values
    return result


def with_entry(array: Any, index: Any, value: Any) -> Any:
    """Return `array` with entries along its first axis replaced: in place, but for JAX."""
    if hasattr(array, "at"):
        return array.at[index].set(value)
    array = _writable(array)
    array[index] = value
    return array


def with_added(array: Any, indices: Any, amounts: Any) -> Any:
    """Return `array` with amounts added at indices, which may repeat: in place, but for JAX."""
    if hasattr(array, "at"):
        return array.at[indices].add(amounts)
    if type(array) is np.ndarray:
        np.add.at(array, indices, amounts)
        return array
    return _writable(array).index_add_(0, indices, amounts)


def _writable(array: Any) -> Any:
    """Return the array, or a copy if torch does not let it be changed any more.

    That is so outside of `torch.inference_mode` with what was made in it.
    """
    if hasattr(array, "is_inference") and array.is_inference():
        torch = sys.modules["torch"]
        return array if torch.is_inference_mode_enabled() else array.clone()
    return array


def stable_order(keys: Any) -> Any:
    """Return the indices that sort keys, equal ones in the order in which they stand."""
    if type(keys) is np.ndarray:
        return keys.argsort(kind="stable")
    return namespace(keys).argsort(keys, stable=True)


def mean_over(values: Any, rows: Any) -> Any:
    """Return the mean of `values` in `rows`, of which there is one at least."""
    if type(values) is np.ndarray:
        return values[rows].mean()
    return kept(values, rows).sum() / rows.sum().clip(1)


def times(factor: float, values: Any) -> Any:
    """Return factor·values, without an operation where the factor is 1."""
    return values if factor == 1.0 else factor * values


def at_most(values: Any, limit: float) -> Any:
    """Return the smaller of each value and a limit."""
    # NumPy's own `clip` takes twice as long as `minimum`, which torch has for tensors only.
    return np.minimum(values, limit) if type(values) is np.ndarray else values.clip(max=limit)


def at_least(values: Any, limit: float) -> Any:
    """Return the larger of each value and a limit."""
    return np.maximum(values, limit) if type(values) is np.ndarray else values.clip(min=limit)


def root(x: Any) -> Any:
    """Return √x of a number or of an array of any backend."""
    return namespace(x).sqrt(x)


class Backend(ABC):
    """NumPy, or torch or JAX on one device."""

    xp: Any
    """The module of its functions."""
    device: Any = None

    @abstractmethod
    def floats(self, what: str, values: Any) -> Any:
        """Return values as a new array here, of the widest floats that there are: float64.

        Raises:
            TypeError: They are tensors of another device or library; `what` names them.
        """

    @abstractmethod
    def masks(self, values: Any) -> Any:
        """Return values as a boolean array here, in NumPy a new one."""

    @abstractmethod
    def integers(self, values: Any) -> Any:
        """Return values as an array of int64 here, or of the widest integers that there are."""

    @abstractmethod
    def moved(self, state: Any) -> Any:
        """Return an array of state here, with its kind of numbers; the array itself if it is."""

    @abstractmethod
    def alike(self, array: Any, values: Any) -> Any:
        """Return values with the dtype of an array that is here."""

    @abstractmethod
    def for_users(self, reward: Any, values: Any) -> Any:
        """Return values as users get them: on a device, in the dtype of the env's rewards."""

    def zeros(self, rows: int) -> Any:
        """Return zeros of the widest floats."""
        return self.moved(np.zeros(rows))


class _Host(Backend):
    xp = np

    def floats(self, what: str, values: Any) -> npt.NDArray[np.float64]:
        if type(values) is not np.ndarray and hasattr(values, "detach"):
            # numpy has no bfloat16: torch converts before numpy sees the tensor.
            values = values.detach().cpu().double().numpy()
        return np.array(values, dtype=np.float64)

    def masks(self, values: Any) -> npt.NDArray[np.bool_]:
        if type(values) is np.ndarray:
            return values.astype(np.bool_)
        return np.array(self.moved(values), dtype=np.bool_)

    def integers(self, values: Any) -> Any:
        return self.moved(values).astype(np.int64)

    def moved(self, state: Any) -> Any:
        if type(state) is np.ndarray:
            return state
        return np.asarray(state.detach().cpu().numpy() if hasattr(state, "detach") else state)

    def alike(self, array: Any, values: Any) -> Any:
        return np.asarray(values, dtype=array.dtype)

    def for_users(self, reward: Any, values: Any) -> Any:
        return values

    def __str__(self) -> str:
        return "NumPy"


HOST: Backend = _Host()
"""NumPy, where every stack begins and most stay."""


class _Torch(Backend):
    def __init__(self, device: Any) -> None:
        self.xp, self.device = sys.modules["torch"], device
        # Apple's GPUs have no float64.
        self._widest = self.xp.float32 if device.type == "mps" else self.xp.float64

    def floats(self, what: str, values: Any) -> Any:
        if not isinstance(values, self.xp.Tensor):
            if is_tensor(values):
                raise _elsewhere(what, values, self)
            return self.xp.tensor(np.asarray(values), dtype=self._widest, device=self.device)
        if values.device != self.device:
            raise _elsewhere(what, values, self)
        return values.detach().to(self._widest, copy=True)

    def masks(self, values: Any) -> Any:
        if isinstance(values, self.xp.Tensor):
            return values.to(self.device, self.xp.bool)
        return self.xp.tensor(np.asarray(values), dtype=self.xp.bool, device=self.device)

    def integers(self, values: Any) -> Any:
        return self.xp.as_tensor(values, device=self.device).long()

    def moved(self, state: Any) -> Any:
        tensor = self.xp.as_tensor(state, device=self.device)
        return tensor.to(self._widest) if tensor.is_floating_point() else tensor

    def alike(self, array: Any, values: Any) -> Any:
        return self.xp.as_tensor(values, dtype=array.dtype, device=self.device)

    def for_users(self, reward: Any, values: Any) -> Any:
        dtype = reward.dtype if reward.is_floating_point() else self.xp.get_default_dtype()
        return values.to(dtype)

    def __str__(self) -> str:
        return f"torch on {self.device}"


class _Jax(Backend):
    def __init__(self, device: Any) -> None:
        self.xp, self.device = sys.modules["jax.numpy"], device

    @property
    def _widest(self) -> Any:
        """float64 while jax_enable_x64 is set, which a process may change between two stacks."""
        return self.xp.result_type(float)

    def floats(self, what: str, values: Any) -> Any:
        if is_tensor(values) and (namespace(values) is not self.xp or values.device != self.device):
            raise _elsewhere(what, values, self)
        return self.xp.asarray(values, dtype=self._widest, device=self.device)

    def masks(self, values: Any) -> Any:
        return self.xp.asarray(values, dtype=bool, device=self.device)

    def integers(self, values: Any) -> Any:
        return self.xp.asarray(values, dtype=self.xp.result_type(int), device=self.device)

    def moved(self, state: Any) -> Any:
        array = self.xp.asarray(state, device=self.device)
        return array.astype(self._widest) if array.dtype.kind == "f" else array

    def alike(self, array: Any, values: Any) -> Any:
        return self.xp.asarray(values, dtype=array.dtype, device=self.device)

    def for_users(self, reward: Any, values: Any) -> Any:
        floating = self.xp.issubdtype(reward.dtype, self.xp.floating)
        return values.astype(reward.dtype if floating else self._widest)

    def __str__(self) -> str:
        return f"JAX on {self.device}"


def backend_of(values: Any) -> Backend:
    """Return where values live; whatever is no tensor lives in NumPy."""
    if type(values) is np.ndarray or not is_tensor(values):
        return HOST
    return _backend(namespace(values).__name__, values.device)


def backend_of_rewards(reward: Any) -> Backend:
    """Return where the env's rewards live, or raise if they carry gradients."""
    if type(reward) is np.ndarray:
        return HOST
    if getattr(reward, "requires_grad", False):
        raise TypeError(
            "The env's rewards require grad, and F' does not pass gradients on: R + F' would have "
            "wrong ones. Step the env under torch.no_grad(), or detach its rewards below this "
            "wrapper."
        )
    return backend_of(reward)


@cache
def _backend(name: str, device: Any) -> Backend:
    return _Torch(device) if name == "torch" else _Jax(device)


def _elsewhere(what: str, values: Any, here: Backend) -> TypeError:
    return TypeError(
        f"{what} must be where the env's rewards and the critic's other values are, but it is "
        f"{backend_of(values)} and they are {here}. Move one to the other: the network with "
        ".to(device), or the env with gymnasium's NumpyToTorch or JaxToTorch below the wrappers of "
        "this package."
    )
