"""The settings of an audit: the method with its discounts and ζ held still, and the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers.arrays import FloatArray
from adops_wrappers.shaping import Method, NoShaping, Shaper, find_method
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.graph import MAX_NODES
from adops_wrappers.tabular.mdp import FiniteMDP
from adops_wrappers.tabular.oracle import Form, check_form

Shaping = str | type[Shaper] | Callable[[FiniteMDP, FloatArray], npt.ArrayLike]
_ALSO = "; a function (mdp, bonus) -> shaped bonus and a Shaper class are accepted too"


@dataclass(frozen=True)
class AuditSettings:
    """What `audit(**settings)` means; see there."""

    method: Method
    make_shaper: Callable[[int], Shaper]
    zeta: float | None
    """The ζ, or β of the guarded scale, at which the method is held; None if it has neither."""
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
    """Return checked settings; raise if the method does not take one of them."""
    left = dict(settings)
    method = _declaration(shaping)
    zeta = None
    if method.schedule:
        zeta = _checks.fraction("zeta", left.pop("zeta", 0.5))
    streams = {"gamma": gamma, "gamma_ext": gamma, "gamma_int": gamma, "ext_coef": 1.0}
    streams |= {"int_coef": 1.0, "tie_tolerance": solver.TIE_TOLERANCE}
    taken = method.settings.keys() - set(method.schedule)
    own = {name: left[name] for name in taken & left.keys()}
    if isinstance(shaping, str):
        own = {name: streams[name] for name in taken & streams.keys()} | own
    form = left.pop("form", "expected")
    check_form(form)
    parsed = AuditSettings(
        method=method,
        make_shaper=partial(_make, method, zeta, own),
        zeta=zeta,
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
    unknown = left.keys() - taken
    if unknown:
        raise TypeError(
            f"{method.name} does not take the setting {min(unknown)!r}: help(audit) lists the "
            "settings of each method."
        )
    if parsed.gamma_int != gamma and horizon is None:
        raise ValueError(
            f"gamma_int={parsed.gamma_int} differs from the MDP's gamma={gamma}: with two "
            "discounts the best policy depends on time. Give a horizon."
        )
    if method.needs_potential != (parsed.potential is not None):
        raise ValueError(
            "pbrs needs potential=, a table of shape (S,) or a function (states, times); the "
            "other methods take none."
        )
    return parsed


def _declaration(shaping: Shaping) -> Method:
    if isinstance(shaping, type):
        name = shaping.__name__
        return Method(name, name, shaping, needs_critic=True, remembers_episode=True)
    if callable(shaping):
        name = getattr(shaping, "__name__", "own function")
        return Method(name, name, NoShaping)
    return find_method(shaping, _ALSO)


def _make(method: Method, zeta: float | None, settings: dict[str, Any], num_envs: int) -> Shaper:
    shaper: Any = method.make(num_envs, **settings)
    if zeta is not None:
        shaper.hold(zeta)
    return shaper  # type: ignore[no-any-return]
