"""Counts of continuous observations, by a hash of their direction, where the observations are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.backends import (
    HOST,
    Backend,
    backend_of,
    cleared,
    is_tensor,
    kept,
    namespace,
    root,
    stable_order,
    with_added,
    with_entry,
)
from adops_wrappers.shaper import restore_array, saved_array


class SimHashCount(KeepsSettings):
    """F = scale/√n where the hash of s′ is met for the n-th time (Tang et al. 2017).

    The hash is the signs of `bits` random projections of the observation. Two observations at an
    angle θ share it with probability (1 − θ/π)^bits: similar ones are counted as one, and more
    bits tell more apart. With `bits` above `table_bits` the hash is hashed again, so that any two
    of them share a counter with probability 2^−table_bits. The counts take 8·2^min(bits,
    table_bits) bytes, whatever is visited.

    Counts are shared by all environments; within one vector step the rows count in order. They are
    kept where the observations are: in NumPy, or in a tensor on their device, which nobody waits
    for. Dict and Tuple observations are flattened.

    A source for `IntrinsicRewardWrapper`, for single and vector envs alike.

    Args:
        bits: The number of projections.
        table_bits: The binary logarithm of the largest number of counters.
        scale: The bonus of a first visit.
        features: Maps a batch of observations to the numbers to be hashed, a row for each, for
            instance to centre or to weigh them: angles are seen from the origin. By default the
            observations themselves.
        seed: Seeds the projections.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import SimHashCount
        >>> bonus = SimHashCount(seed=0)
        >>> reached = np.array([[1.0, 0.5], [-0.5, 2.0], [2.0, 1.0]])  # the last is like the first
        >>> bonus(None, None, reached, valid=np.ones(3, dtype=np.bool_)).round(3)
        array([1.   , 1.   , 0.707])
    """

    state_depends_on = ("bits", "table_bits", "has_features")

    def __init__(
        self,
        *,
        bits: int = 32,
        table_bits: int = 20,
        scale: float = 1.0,
        features: Callable[[Any], Any] | None = None,
        seed: int | None = None,
    ) -> None:
        if features is not None and not callable(features):
            raise TypeError(f"features must be a function of observations, got {features!r}.")
        self.bits = _checks.whole("bits", bits, least=1)
        self.table_bits = _checks.whole("table_bits", table_bits, least=1)
        if self.table_bits > _MOST_TABLE_BITS:
            raise ValueError(
                f"table_bits must be at most {_MOST_TABLE_BITS}, got {table_bits}: the counts "
                f"would take {8 * 2**table_bits:.3g} bytes. More `bits` need no larger table."
            )
        self.scale = _checks.positive("scale", scale)
        self.features = features
        self.frozen = False
        """While True visits are rewarded like the next visit, but not counted."""
        for_projection, for_spread = np.random.SeedSequence(seed).spawn(2)
        self._generator = np.random.default_rng(for_projection)
        cells = min(self.bits, self.table_bits)
        self._backend = HOST
        self.projection: Any = None
        """What observations are multiplied with, of shape (numbers of one, bits); None before the
        first one."""
        self._spread: Any = None
        """The bits over whose sum, modulo 2, each bit of a counter's number is taken."""
        if self.bits > cells:
            spread = np.random.default_rng(for_spread).integers(0, 2, (self.bits, cells))
            self._spread = spread.astype(np.float64)
        self._powers: Any = 2.0 ** np.arange(cells)
        self.counts: Any = np.zeros(2**cells, dtype=np.int64)
        """The number of visits under each hash."""

    @property
    def has_features(self) -> bool:
        """Whether a function of the user makes the numbers, which cannot be compared."""
        return self.features is not None

    def __call__(
        self, obs: Any, action: Any, next_obs: Any, valid: bool | BoolArray = True
    ) -> float | FloatArray:
        """Return the bonus of one observation, or of a batch where `valid` is a mask."""
        if isinstance(valid, bool | np.bool_):
            if not valid:
                return 0.0
            return float(self._bonus(_batch_of_one(next_obs), np.ones(1, dtype=np.bool_))[0])
        return self._bonus(next_obs, valid)

    def _bonus(self, batch: Any, valid: Any) -> FloatArray:
        values = batch if self.features is None else self.features(batch)
        parts = _parts(values)
        self._settle(_backend_of(parts))
        backend = self._backend
        valid = backend.masks(valid)
        cells = self._cells(parts, len(valid))
        visits = self.counts[cells] + 1
        if not self.frozen:
            # A group of their own for rows that do not count.
            visits = visits + _earlier_alike(cleared(cells, ~valid, len(self.counts)))
            self.counts = with_added(self.counts, cells, backend.integers(valid))
        bonus: FloatArray = kept(self.scale / root(backend.floats("n", visits)), valid)
        return bonus

    def _cells(self, parts: list[Any], rows: int) -> Any:
        """Return the number of the counter of each row."""
        backend = self._backend
        flat = [backend.floats("s'", part).reshape(rows, -1) for part in parts]
        numbers = flat[0] if len(flat) == 1 else backend.xp.concatenate(flat, 1)
        self._project(numbers.shape[1])
        signs = backend.floats("signs", numbers @ self.projection >= 0.0)
        if self._spread is not None:
            signs = signs @ self._spread % 2.0
        return backend.integers(signs @ self._powers)

    def _project(self, numbers: int) -> None:
        """Draw the projection for the first observation, and compare the others with it."""
        if self.projection is None:
            if numbers == 1:
                raise ValueError(
                    "SimHashCount tells directions apart, and an observation of one number has two "
                    "of them. Count Discrete observations with CountBonus, or pass features=, a "
                    "function that makes several numbers of each."
                )
            drawn = self._generator.standard_normal((numbers, self.bits))
            self.projection = self._backend.moved(drawn)
        if len(self.projection) != numbers:
            raise ValueError(
                f"This SimHashCount counts observations of {len(self.projection)} numbers, got one "
                f"of {numbers}. Use one SimHashCount for each kind of observation."
            )

    def _settle(self, backend: Backend) -> None:
        if backend is not self._backend:
            self._backend = backend
            for name in ("projection", "_spread", "_powers", "counts"):
                if (array := getattr(self, name)) is not None:
                    setattr(self, name, backend.moved(HOST.moved(array)))

    def state_dict(self) -> dict[str, Any]:
        """Return the counts and the projections."""
        arrays = {"projection": self.projection, "spread": self._spread, "counts": self.counts}
        saved = {k: None if array is None else saved_array(array) for k, array in arrays.items()}
        return {**self.settings_state(), **saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`, wherever it was saved."""
        self.require_settings_of(state)
        self.counts = restore_array("the counts", state["counts"], self.counts)
        for name, key in (("projection", "projection"), ("_spread", "spread")):
            saved = state[key]
            setattr(self, name, None if saved is None else self._backend.moved(saved.copy()))


_MOST_TABLE_BITS = 30
"""Counters beyond this take more memory than a device has to spare."""


def _earlier_alike(keys: Any) -> Any:
    """Return how many earlier rows have the same key, for each row."""
    xp, order = namespace(keys), stable_order(keys)
    ordered = keys[order]
    places = xp.cumsum(xp.ones_like(ordered), 0) - 1
    return with_entry(xp.zeros_like(keys), order, places - xp.searchsorted(ordered, ordered))


def _parts(obs: Any) -> list[Any]:
    """Return the arrays of a batch of observations, those of a Dict by the order of their keys."""
    if isinstance(obs, Mapping):
        return [part for key in sorted(obs) for part in _parts(obs[key])]
    if isinstance(obs, tuple) and not all(isinstance(part, str) for part in obs):
        return [part for each in obs for part in _parts(each)]
    if is_tensor(obs):
        return [obs]
    array = np.asarray(obs)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"SimHashCount hashes numbers, and the observation, or a part of it, has dtype "
            f"{array.dtype}. Pass features=, a function from a batch of observations to an array "
            "of numbers, or count with CountBonus."
        )
    return [array]


def _backend_of(parts: list[Any]) -> Backend:
    """Return where the tensors among the parts are, or NumPy if there are none."""
    found = {str(b): b for b in (backend_of(part) for part in parts if is_tensor(part))}
    if len(found) > 1:
        raise TypeError(
            f"The parts of an observation are in {' and '.join(sorted(found))}; SimHashCount needs "
            "all of them in one place."
        )
    return next(iter(found.values()), HOST)


def _batch_of_one(obs: Any) -> Any:
    if isinstance(obs, Mapping):
        return {key: _batch_of_one(part) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(map(_batch_of_one, obs))
    return obs[None] if is_tensor(obs) else np.asarray(obs)[None]
