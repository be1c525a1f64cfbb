"""Measures of knowledge for BAMPF: each is 0 at first, never falls and has a bound."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import numpy as np

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import BoolArray, FloatArray, to_float64, to_numpy
from adops_wrappers.intrinsic.counts import CountBonus


def of_every_row(phi: float, valid: bool | BoolArray) -> float | FloatArray:
    """Return φ, which all envs share, in the shape of `valid`."""
    return phi if isinstance(valid, bool | np.bool_) else np.full(len(valid), phi)


class StatesSeen(CountBonus):
    """φ = scale·min(number of distinct observations seen, most).

    All environments share what has been seen; an episode's first observation is counted with its
    first step. A measure of knowledge for `BAMPFWrapper`, for single and vector envs alike.

    Args:
        most: The number at which φ stops growing; it bounds the memory too.
        scale: What each observation is worth.
        key: Maps one observation to what is counted, for instance a coarser cell. By default
            the observation's bytes, which fits discrete and symbolic observations.

    Example:
        >>> from adops_wrappers import StatesSeen
        >>> seen = StatesSeen(most=3)
        >>> [seen(s, 0, next_s) for s, next_s in ((5, 5), (5, 7), (7, 5), (5, 8), (8, 9))]
        [1.0, 2.0, 2.0, 3.0, 3.0]
    """

    state_depends_on: ClassVar[tuple[str, ...]] = ("has_key", "most")

    def __init__(
        self, most: int, *, scale: float = 1.0, key: Callable[[Any], Hashable] | None = None
    ) -> None:
        super().__init__(scale=scale, key=key)
        self.most = _checks.whole("most", most, least=1)

    def __call__(
        self, obs: Any, action: Any, next_obs: Any, valid: bool | BoolArray = True
    ) -> float | FloatArray:
        """Return φ after these transitions, the same for every row."""
        for reached in (obs, next_obs):
            if len(self.counts) < self.most:
                super().__call__(None, None, reached, valid)
        return of_every_row(self.scale * min(len(self.counts), self.most), valid)


class LargestDisplacement(KeepsSettings):
    """φ = scale·min(largest distance from an episode's first position so far, most).

    The largest of all episodes and environments. A measure of knowledge for `BAMPFWrapper`, for
    single and vector envs alike.

    Args:
        most: The distance at which φ stops growing.
        scale: What a unit of distance is worth.
        position: Maps an observation, or a batch of them, to the coordinates whose Euclidean
            distance counts. By default the observation itself.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import LargestDisplacement
        >>> furthest = LargestDisplacement(most=2.0, position=lambda obs: obs[..., 0])
        >>> walk = np.array([[0.5, 9.0], [1.0, 9.0], [-0.25, 0.0], [9.0, 0.0]])
        >>> [furthest(s, 0, next_s) for s, next_s in zip(walk[:-1], walk[1:])]
        [0.5, 0.75, 2.0]
    """

    state_depends_on = ("most",)

    def __init__(
        self, most: float, *, scale: float = 1.0, position: Callable[[Any], Any] | None = None
    ) -> None:
        if position is not None and not callable(position):
            raise TypeError(f"position must be a function of observations, got {position!r}.")
        self.most = _checks.positive("most", most)
        self.scale = _checks.positive("scale", scale)
        self.position = position
        self.largest = 0.0
        self.frozen = False
        """While True nothing new is known (`evaluation_mode` sets it)."""
        self.origin = np.zeros((0, 0))
        """The first position of each row's episode."""
        self.begun = np.zeros(0, dtype=np.bool_)
        """The rows whose first position is known."""

    def __call__(
        self, obs: Any, action: Any, next_obs: Any, valid: bool | BoolArray = True
    ) -> float | FloatArray:
        """Return φ after these transitions, the same for every row."""
        mask = np.atleast_1d(to_numpy(valid))
        here, there = (self._positions(batch, len(mask)) for batch in (obs, next_obs))
        if len(self.begun) != len(mask):
            self.origin, self.begun = here.copy(), np.zeros(len(mask), dtype=np.bool_)
        first = mask & ~self.begun
        self.origin[first], self.begun = here[first], self.begun | mask
        if not self.frozen and mask.any():
            away = np.linalg.norm(there - self.origin, axis=1)[mask].max()
            self.largest = min(max(self.largest, float(away)), self.most)
        return of_every_row(self.scale * self.largest, valid)

    def reset_episodes(self, mask: BoolArray) -> None:
        """Begin new episodes in the rows of `mask`."""
        if len(self.begun) == len(mask):
            self.begun &= ~to_numpy(mask)

    def _positions(self, batch: Any, rows: int) -> FloatArray:
        positions = batch if self.position is None else self.position(batch)
        array = to_float64(positions)
        if array.size % rows:
            raise ValueError(
                f"position must return as many coordinates for each of {rows} observations, got "
                f"shape {array.shape}."
            )
        return array.reshape(rows, -1)

    def state_dict(self) -> dict[str, Any]:
        """Return the largest displacement, and where the running episodes began."""
        places = {"origin": self.origin.copy(), "begun": self.begun.copy()}
        return {**self.settings_state(), "largest": self.largest, **places}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.require_settings_of(state)
        self.largest = float(state["largest"])
        self.origin = np.array(state["origin"], dtype=np.float64)
        self.begun = np.array(state["begun"], dtype=np.bool_)
