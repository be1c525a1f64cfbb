"""PIES: explicit shaping that fades out (Behboudian et al. 2022)."""

from __future__ import annotations

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.shaping.base import FloatArray, Transition
from adops_wrappers.shaping.methods import Method, declare
from adops_wrappers.shaping.schedule import Scheduled, UpdateCounter, UpdateEvery


class PIES(Scheduled):
    """F′ = ζ_n·F with ζ_n = max(0, 1 − n/C), C = `decay_updates` (eq. pies_decay).

    The closed form, not the paper's recursion, which in floats reaches 0 one update late.
    """

    name = "PIES"
    state_depends_on = ("decay_updates", "update_every")

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

    def zeta_after(self, updates: int) -> float:
        """Return ζ_n, falling from 1 to 0."""
        return max(0.0, 1.0 - updates / self.decay_updates)

    def step(self, transition: Transition) -> FloatArray:
        """Return ζ·F, then count the step."""
        shaped = np.where(transition.valid, self.zeta * transition.intrinsic, 0.0)
        self.count(transition)
        return shaped


declare(Method("pies", "PIES", PIES, schedule=("decay_updates", "update_every")))
