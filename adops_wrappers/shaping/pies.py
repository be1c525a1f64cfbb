"""PIES: explicit shaping that fades out (Behboudian et al. 2022)."""

from __future__ import annotations

from typing import Any

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.shaping.base import FloatArray, Shaper, Transition
from adops_wrappers.shaping.schedule import UpdateCounter, UpdateEvery


class PIES(Shaper):
    """F′ = ζ_n·F with ζ_n = max(0, 1 − n/C), C = `decay_updates` (eq. pies_decay).

    The closed form, not the paper's recursion, which in floats reaches 0 one update late.
    """

    name = "PIES"

    def __init__(
        self,
        num_envs: int = 1,
        *,
        decay_updates: int = 15000,
        update_every: UpdateEvery = 128,
    ) -> None:
        super().__init__(num_envs)
        self.decay_updates = _checks.whole("decay_updates", decay_updates, least=1)
        self.counter = UpdateCounter(update_every)

    @property
    def zeta(self) -> float:
        """ζ_n, falling from 1 to 0."""
        return max(0.0, 1.0 - self.counter.updates / self.decay_updates)

    def step(self, transition: Transition) -> FloatArray:
        """Return ζ·F, then count the step."""
        shaped = np.where(transition.valid, self.zeta * transition.intrinsic, 0.0)
        if not self.frozen:
            self.counter.advance(transition)
        return shaped

    def state_dict(self) -> dict[str, Any]:
        """Return ζ's counter."""
        return self.counter.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.counter.load_state_dict(state)
