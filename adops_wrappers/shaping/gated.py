"""Gated ADOPS: the clamp acts only where the critic's extrinsic advantage stands out from noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import FloatArray, Transition
from adops_wrappers.shaping.adops import ADOPS
from adops_wrappers.shaping.conflict import advantages


class GatedADOPS(ADOPS):
    """ADOPS where the critic knows something, the raw bonus elsewhere.

    F₂ = 0 until the first extrinsic reward, and after it wherever |A_E| ≤ `gate`·σ, σ being the
    root mean square of A_E over the last 1/`smoothing` steps of all rows. ADOPS itself acts on
    every sign of A_E, and most of these are the critic's noise while it learns.

    With `gate=0` and a reward behind it this is ADOPS. With a larger gate it has no guarantee:
    actions that are bad by less than the noise keep their bonus.
    """

    name = "gated ADOPS"
    state_depends_on = ("gamma_ext", "smoothing")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        gate: float = 1.0,
        smoothing: float = 0.01,
        **adops: Any,
    ) -> None:
        super().__init__(num_envs, **adops)
        self.gate = _checks.non_negative("gate", gate)
        self.smoothing = _checks.smoothing("smoothing", smoothing)
        self.rewarded = False
        """Whether an extrinsic reward has been seen."""
        self.mean_square = 0.0
        """σ²."""
        self.steps = 0
        self.held: float | None = None

    @property
    def zeta(self) -> float:
        """The weight of F₂: 1, unless an audit holds it."""
        return 1.0 if self.held is None else self.held

    def hold(self, zeta: float) -> None:
        """Open the gate and keep the weight of F₂ at this value, for an audit."""
        self.held, self.frozen = zeta, True

    def step(self, transition: Transition) -> FloatArray:
        """Return F + F₂ where the gate is open and F elsewhere."""
        t = transition
        if self.held is not None:
            return super().step(t)
        streams = {"gamma_ext": self.gamma_ext, "gamma_int": self.gamma_int}
        advantage_ext = advantages(t, **streams).ext
        if not self.frozen and t.valid.any():
            self.rewarded |= bool((t.reward[t.valid] != 0.0).any())
            self.steps += 1
            weight = max(self.smoothing, 1.0 / self.steps)
            self.mean_square += weight * (
                float(np.square(advantage_ext[t.valid]).mean()) - self.mean_square
            )
        known = self.rewarded & (np.abs(advantage_ext) > self.gate * np.sqrt(self.mean_square))
        raw = np.where(t.valid, t.intrinsic, 0.0)
        return np.where(known, super().step(t), raw)

    def state_dict(self) -> dict[str, Any]:
        """Return σ and whether there has been a reward."""
        names = ("rewarded", "mean_square", "steps")
        return {**super().state_dict(), **{name: getattr(self, name) for name in names}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        super().load_state_dict(state)
        self.rewarded = bool(state["rewarded"])
        self.mean_square, self.steps = float(state["mean_square"]), int(state["steps"])

    load_learned = load_state_dict


declare(
    Method(
        "adops-gated",
        "gated ADOPS",
        GatedADOPS,
        schedule=("gate", "smoothing"),
        needs_critic=True,
        clamps=True,
        one_process_only=True,
    )
)
