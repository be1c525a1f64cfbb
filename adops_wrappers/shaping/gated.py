"""Gated ADOPS: the clamp acts only where the critic's extrinsic advantage stands out from noise."""

from __future__ import annotations

from typing import Any

from adops_wrappers import _checks
from adops_wrappers.backends import kept, may_hold, mean_over, namespace, root
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
    keeps_state = True
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
        # Numbers, and where the rewards are tensors, tensors.
        self.rewarded: Any = False
        """Whether an extrinsic reward has been seen."""
        self.mean_square: Any = 0.0
        """σ²."""
        self.steps: Any = 0
        """The number of steps that were a transition in any row."""
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
        if not self.frozen and may_hold(t.valid):
            self._observe(t, advantage_ext)
        where = namespace(advantage_ext).where
        known = self.rewarded & (abs(advantage_ext) > self.gate * root(self.mean_square))
        shaped: FloatArray = where(known, super().step(t), kept(t.intrinsic, t.valid))
        return shaped

    def _observe(self, t: Transition, advantage_ext: FloatArray) -> None:
        self.rewarded = self.rewarded | ((t.reward != 0.0) & t.valid).any()
        self.steps = self.steps + t.valid.any()
        weight = (1.0 / self.steps).clip(self.smoothing)  # without a step yet: 1/0, unused below
        change = mean_over(advantage_ext * advantage_ext, t.valid) - self.mean_square
        self.mean_square = self.mean_square + kept(weight * change, t.valid.any())

    def state_dict(self) -> dict[str, Any]:
        """Return σ and whether there has been a reward."""
        state = {"rewarded": bool(self.rewarded), "mean_square": float(self.mean_square)}
        return {**super().state_dict(), **state, "steps": int(self.steps)}

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
