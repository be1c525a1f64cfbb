"""The settings of an audit, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers.arrays import FloatArray
from adops_wrappers.shaping import NoShaping, Shaper
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.graph import MAX_NODES
from adops_wrappers.tabular.ideal import Form, check_form
from adops_wrappers.tabular.mdp import FiniteMDP
from adops_wrappers.tabular.methods import Method, make_method

Shaping = str | type[Shaper] | Callable[[FiniteMDP, FloatArray], npt.ArrayLike]


@dataclass(frozen=True)
class AuditSettings:
    """What `audit(**settings)` means; see there."""

    method: Method
    form: Form
    value_int: Any
    sampled_advantage: bool
    potential: Any
    ext_coef: float
    int_coef: float
    gamma_int: float
    tie_tolerance: float
    max_nodes: int


def parse_settings(
    shaping: Shaping, gamma: float, horizon: int | None, settings: dict[str, Any]
) -> AuditSettings:
    """Return checked settings, or raise on one that the method does not know."""
    left = dict(settings)
    if isinstance(shaping, str | type) or not callable(shaping):
        method = make_method(shaping, gamma, left)
    else:
        method = Method(getattr(shaping, "__name__", "own function"), NoShaping, False)
    form = left.pop("form", "expected")
    check_form(form)
    parsed = AuditSettings(
        method=method,
        form=form,
        value_int=left.pop("value_int", None),
        sampled_advantage=bool(left.pop("sampled_advantage", False)),
        potential=left.pop("potential", None),
        ext_coef=_checks.positive("ext_coef", left.pop("ext_coef", 1.0)),
        int_coef=_checks.positive("int_coef", left.pop("int_coef", 1.0)),
        gamma_int=_checks.discount("gamma_int", left.pop("gamma_int", gamma)),
        tie_tolerance=_checks.non_negative(
            "tie_tolerance", left.pop("tie_tolerance", solver.TIE_TOLERANCE)
        ),
        max_nodes=_checks.whole("max_nodes", left.pop("max_nodes", MAX_NODES), least=1),
    )
    if left:
        raise TypeError(
            f"{method.name} does not know the setting {next(iter(left))!r}: help(audit) lists the "
            "settings of each method."
        )
    if parsed.gamma_int != gamma and horizon is None:
        raise ValueError(
            f"gamma_int={parsed.gamma_int} differs from the MDP's gamma={gamma}: two discounts "
            "make the best policy depend on time. Give a horizon."
        )
    if (method.name == "pbrs") != (parsed.potential is not None):
        raise ValueError(
            "pbrs needs potential=, a table of shape (S,) or a function (states, times); the "
            "other methods take none."
        )
    return parsed
