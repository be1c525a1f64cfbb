"""A conflict: the bonus flips the sign that the task gives to an action.

This is the only definition: the clamp of ADOPS, the training metrics, recordings and plots share
it. All functions take arrays of any shape.
"""

from __future__ import annotations

from typing import NamedTuple

from adops_wrappers.backends import cleared, namespace
from adops_wrappers.shaper import BoolArray, FloatArray, Transition

ROUNDING = 1e-9
"""For totals with F′: the rounding error of a correction that lifts the total to 0."""


class Advantages(NamedTuple):
    """What the task says about an action, and what the agent is told."""

    ext: FloatArray
    """A_E: Q_E(s, a) − V_E(s) where the critic gives Q values, else δ_E."""
    total: FloatArray
    """c_E·A_E + c_I·δ_I."""


def advantages(
    transition: Transition,
    *,
    gamma_ext: float,
    gamma_int: float,
    ext_coef: float = 1.0,
    int_coef: float = 1.0,
) -> Advantages:
    """Return A_E and the total advantage c_E·A_E + c_I·δ_I under the transition's F.

    A_E is Q_E(s, a) − V_E(s) where the critic gives Q values, else δ_E.

    - δ_E = R + γ_E·V_E(s′) − V_E(s), where V_E(s′) counts as 0 if the episode terminated.
    - δ_I = F + γ_I·V_I(s′) − V_I(s).
    """
    t = transition
    ext = t.advantage_ext
    if ext is None:
        next_value_ext = cleared(t.next_value_ext, t.terminated)
        ext = t.reward + gamma_ext * next_value_ext - t.value_ext
    delta_int = t.intrinsic + gamma_int * t.next_value_int - t.value_int
    # A coefficient of 1, the usual one, is no operation on a device.
    own = ext if ext_coef == 1.0 else ext_coef * ext
    return Advantages(ext, own + (delta_int if int_coef == 1.0 else int_coef * delta_int))


def is_bad(advantage_ext: FloatArray, tie_tolerance: float = 0.0) -> BoolArray:
    """Return where the task calls the action bad: A_E < −tie_tolerance."""
    bad: BoolArray = advantage_ext < -tie_tolerance
    return bad


def contradicts(
    advantage_ext: FloatArray,
    total: FloatArray,
    tie_tolerance: float = 0.0,
    *,
    rounding: float = 0.0,
) -> BoolArray:
    """Return where the total's sign is not the extrinsic advantage's: a conflict.

    Either a bad action (A_E < −tie_tolerance) has a total of at least 0, or another one has a
    negative total.

    Args:
        advantage_ext: A_E.
        total: c_E·A_E + c_I·δ_I.
        tie_tolerance: Extrinsic advantages above minus this count as not negative.
        rounding: A total below minus this share of 1 + |A_E| counts as negative; see `ROUNDING`.
    """
    least = -rounding * (1.0 + abs(advantage_ext)) if rounding else 0.0
    bad = is_bad(advantage_ext, tie_tolerance)
    contradicted: BoolArray = namespace(total).where(bad, total >= 0.0, total < least)
    return contradicted
