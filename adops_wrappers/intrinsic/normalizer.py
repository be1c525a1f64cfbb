"""Scales F by the spread of intrinsic returns, as RND does (Burda et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray, to_float64
from adops_wrappers.shaping.base import restore_array

Update = Literal["step", "manual"]


class IntrinsicReturnNormalizer:
    """Divides F by the running standard deviation of the discounted intrinsic return.

    Per environment a filter runs forward in time, G ← γ·G + F, without a stop at episode ends.
    G feeds the variance alone; what comes out is F / std(G).

    Args:
        num_envs: The number of environments side by side.
        gamma: The filter's discount.
        update: "step" takes every G into the variance at once; "manual" collects them until
            `update()` is called, so that the scale stands still within a rollout, as in RND.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import IntrinsicReturnNormalizer
        >>> normalizer = IntrinsicReturnNormalizer(num_envs=2, gamma=0.5)
        >>> normalizer(np.array([1.0, 3.0]))  # G = (1, 3), std 1
        array([1., 3.])
    """

    def __init__(self, num_envs: int = 1, *, gamma: float = 0.99, update: Update = "step") -> None:
        if update not in get_args(Update):
            raise ValueError(f"update must be one of {get_args(Update)}, got {update!r}.")
        self.num_envs = _checks.whole("num_envs", num_envs, least=1)
        self.gamma = _checks.discount("gamma", gamma)
        self.update_mode = update
        self.frozen = False
        """While True neither the filter nor the variance moves."""
        self.returns = np.zeros(self.num_envs)
        self._moments = _Moments()
        self._collected = _Moments()
        self._provisional = False

    @property
    def std(self) -> float:
        """The current divisor; 1 until returns have been seen to differ."""
        variance = self._moments.variance
        return math.sqrt(variance) if variance > 0.0 else 1.0

    def __call__(self, intrinsic: Any, valid: BoolArray | None = None) -> FloatArray:
        """Return F / std for one step of all environments; rows not `valid` leave no trace."""
        values = to_float64(intrinsic).reshape(-1)
        if len(values) != self.num_envs:
            raise ValueError(
                f"Expected {self.num_envs} intrinsic rewards, one for each environment, got "
                f"{len(values)}."
            )
        if not self.frozen:
            rows = np.ones(self.num_envs, dtype=np.bool_) if valid is None else valid
            self.returns = np.where(rows, self.gamma * self.returns + values, self.returns)
            self._collected.add(self.returns[rows])
            if self.update_mode == "step":
                self.update()
        return values / self.std

    @property
    def collected(self) -> list[float]:
        """Count, mean and sum of squared deviations of the returns since the last update."""
        return self._collected.as_list()

    def update(self, collected: Iterable[Sequence[float]] | None = None) -> None:
        """Take the returns collected since the last update into the variance.

        Args:
            collected: What to take instead of this object's own `collected`. Processes that
                share a run give `collected` of all of them, in one order, and so scale alike.
        """
        new = _Moments()
        for moments in [self.collected] if collected is None else collected:
            new.merge(_Moments(*moments))
        if self._provisional and new.count:
            self._moments, self._provisional = _Moments(), False
        self._moments.merge(new)
        self._collected = _Moments()

    def restart(self) -> None:
        """Begin anew, but divide by the present scale until the next `update()`.

        For a scale that random actions have started: as soon as there are returns of the agent,
        those alone count.
        """
        self.returns = np.zeros(self.num_envs)
        self._collected, self._provisional = _Moments(), True

    def state_dict(self) -> dict[str, Any]:
        """Return the filter and the moments."""
        return {
            "returns": self.returns.copy(),
            "moments": self._moments.as_list(),
            "collected": self._collected.as_list(),
            "provisional": self._provisional,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.returns = restore_array("the filtered returns", state["returns"], self.returns)
        self.load_learned(state)

    def load_learned(self, state: dict[str, Any]) -> None:
        """Restore the scale of a `state_dict()`, which may be of another number of envs."""
        self._moments = _Moments(*state["moments"])
        self._collected = _Moments(*state["collected"])
        self._provisional = bool(state.get("provisional", False))


class _Moments:
    """Count, mean and sum of squared deviations, merged pairwise (Chan et al. 1979)."""

    def __init__(self, count: float = 0.0, mean: float = 0.0, deviation: float = 0.0) -> None:
        self.count, self.mean, self.deviation = count, mean, deviation

    @property
    def variance(self) -> float:
        return self.deviation / self.count if self.count else 0.0

    def add(self, values: FloatArray) -> None:
        if len(values):
            mean = float(values.mean())
            self.merge(_Moments(len(values), mean, float(((values - mean) ** 2).sum())))

    def merge(self, other: _Moments) -> None:
        count = self.count + other.count
        if count == 0.0:
            return
        gap = other.mean - self.mean
        self.deviation += other.deviation + gap * gap * self.count * other.count / count
        self.mean += gap * other.count / count
        self.count = count

    def as_list(self) -> list[float]:
        return [self.count, self.mean, self.deviation]
