"""ADOPS and ADOPES: a bonus that may not contradict the critic's extrinsic advantage."""

from __future__ import annotations

from typing import Any

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.shaping.base import FloatArray, Shaper, Transition
from adops_wrappers.shaping.schedule import UpdateCounter, UpdateEvery


def adops_correction(
    transition: Transition,
    *,
    gamma_ext: float,
    gamma_int: float,
    ext_coef: float,
    int_coef: float,
    epsilon: float,
    tie_tolerance: float,
) -> FloatArray:
    """Return F₂ of eq. f_2_weak as a clamp of the total advantage.

    total = c_E·A_E + c_I·δ_I with δ_I = F + γ_I·V_I(s′) − V_I(s), and A_E = δ_E unless the
    critic gives Q values. Ω of eq. o_eq is −total. Adding c_I·F₂ moves the total to at most
    −ε where A_E < −tie_tolerance, and to at least 0 elsewhere; otherwise F₂ = 0.
    """
    t = transition
    advantage_ext = t.advantage_ext
    if advantage_ext is None:
        next_value_ext = np.where(t.terminated, 0.0, t.next_value_ext)
        advantage_ext = t.reward + gamma_ext * next_value_ext - t.value_ext
    advantage_int = t.intrinsic + gamma_int * t.next_value_int - t.value_int
    omega = -(ext_coef * advantage_ext + int_coef * advantage_int)
    return (
        np.where(
            advantage_ext < -tie_tolerance,
            np.minimum(0.0, omega - epsilon),
            np.maximum(0.0, omega),
        )
        / int_coef
    )


class ADOPS(Shaper):
    """F′ = F + F₂, F₂ being the least change that keeps the sign of the extrinsic advantage.

    With a critic of the current policy this is eq. f_2_weak; with an oracle critic and
    `tie_tolerance=1e-9` it is the ideal form, eq. f_2_strong.
    """

    name = "ADOPS"

    def __init__(
        self,
        num_envs: int = 1,
        *,
        gamma_ext: float = 0.999,
        gamma_int: float = 0.99,
        ext_coef: float = 1.0,
        int_coef: float = 1.0,
        epsilon: float = 1e-7,
        tie_tolerance: float = 0.0,
        allow_gamma_int_above_ext: bool = False,
    ) -> None:
        super().__init__(num_envs)
        self.clamp = {
            "gamma_ext": _checks.discount("gamma_ext", gamma_ext),
            "gamma_int": _checks.discount("gamma_int", gamma_int),
            "ext_coef": _checks.positive("ext_coef", ext_coef),
            "int_coef": _checks.positive("int_coef", int_coef),
            "epsilon": _checks.non_negative("epsilon", epsilon),
            "tie_tolerance": _checks.non_negative("tie_tolerance", tie_tolerance),
        }
        if gamma_int > gamma_ext and not allow_gamma_int_above_ext:
            raise ValueError(
                f"gamma_int={gamma_int} is above gamma_ext={gamma_ext}: the shaped task can then "
                "have other optimal policies from the start state. Choose gamma_int <= gamma_ext, "
                "or insist with allow_gamma_int_above_ext=True."
            )

    @property
    def discounts(self) -> tuple[float, float]:
        """γ_E and γ_I."""
        return self.clamp["gamma_ext"], self.clamp["gamma_int"]

    def step(self, transition: Transition) -> FloatArray:
        """Return F + ζ·F₂ with ζ = 1."""
        correction = adops_correction(transition, **self.clamp)
        return np.where(transition.valid, transition.intrinsic + self.zeta * correction, 0.0)

    def describe(self) -> str:
        """Name the method and its discounts."""
        gamma_ext, gamma_int = self.clamp["gamma_ext"], self.clamp["gamma_int"]
        return f"{self.name} (gamma_ext={gamma_ext}, gamma_int={gamma_int})"


class ADOPES(ADOPS):
    """F′ = F + ζ_n·F₂, ζ_n = min(1, n/C) rising from 0 to 1 over C = `ramp_updates`.

    ζ = 0 is the raw bonus and ζ = 1 is ADOPS, exactly.
    """

    name = "ADOPES"

    def __init__(
        self,
        num_envs: int = 1,
        *,
        ramp_updates: int = 15000,
        update_every: UpdateEvery = 128,
        **adops: Any,
    ) -> None:
        super().__init__(num_envs, **adops)
        self.ramp_updates = _checks.whole("ramp_updates", ramp_updates, least=1)
        self.counter = UpdateCounter(update_every)

    @property
    def zeta(self) -> float:
        """ζ_n, rising from 0 to 1."""
        return min(1.0, self.counter.updates / self.ramp_updates)

    def step(self, transition: Transition) -> FloatArray:
        """Return F + ζ·F₂, then count the step."""
        shaped = super().step(transition)
        if not self.frozen:
            self.counter.advance(transition)
        return shaped

    def state_dict(self) -> dict[str, Any]:
        """Return ζ's counter."""
        return self.counter.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.counter.load_state_dict(state)
