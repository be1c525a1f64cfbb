"""The settings of an audit: the method with its discounts and ζ held still, and the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers.arrays import FloatArray
from adops_wrappers.shaping import Method, NoShaping, Shaper, find_method
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.graph import MAX_NODES
from adops_wrappers.tabular.mdp import FiniteMDP
from adops_wrappers.tabular.oracle import Form, check_form

Shaping = str | type[Shaper] | Callable[[FiniteMDP, FloatArray], npt.ArrayLike]
SHARED_SETTINGS = (
    *("form", "value_int", "sampled_advantage", "potential"),
    *("ext_coef", "int_coef", "gamma_int", "tie_tolerance", "max_nodes"),
)
"""The settings of an audit that do not belong to one method alone."""
_ALSO = "; a function (mdp, bonus) -> shaped bonus and a Shaper class are accepted too"


class AuditedMethod(NamedTuple):
    """A method, ready to be fed transitions."""

    declaration: Method
    make_shaper: Callable[[int], Shaper]
    zeta: float | None = None
    """ζ, or the guarded scale's β, where the method has one."""


def make_method(
    shaping: str | type[Shaper], gamma: float, settings: dict[str, Any]
) -> AuditedMethod:
    """Build the method for discount γ, taking what it knows out of `settings`."""
    if isinstance(shaping, type):
        method = Method(
            shaping.__name__,
            shaping.__name__,
            shaping,
            needs_critic=True,
            remembers_episode=True,
        )
        return AuditedMethod(method, partial(shaping, **_own_settings(method, settings, {})))
    method = find_method(shaping, _ALSO)
    streams = {
        "gamma": gamma,
        "gamma_ext": gamma,
        "gamma_int": gamma,
        "ext_coef": 1.0,
        "int_coef": 1.0,
        "tie_tolerance": 1e-9,
    }
    zeta = None
    if method.schedule:
        zeta = _checks.non_negative("zeta", settings.pop("zeta", 0.5))
        if zeta > 1.0:
            raise ValueError(f"zeta must lie in [0, 1], got {zeta}.")
    own = _own_settings(method, settings, streams)
    return AuditedMethod(method, partial(_make, method, zeta, own), zeta)


def _own_settings(
    method: Method, settings: dict[str, Any], defaults: dict[str, Any]
) -> dict[str, Any]:
    """Return what the method takes; what the audit knows too is left for it."""
    taken = {name for name in method.settings if name not in method.schedule}
    own = {name: value for name, value in defaults.items() if name in taken}
    for name in [name for name in settings if name in taken]:
        own[name] = settings[name] if name in SHARED_SETTINGS else settings.pop(name)
    return own


def _make(method: Method, zeta: float | None, settings: dict[str, Any], num_envs: int) -> Shaper:
    shaper: Any = method.make(num_envs, **settings)
    if zeta is not None:
        shaper.hold(zeta)
    return shaper  # type: ignore[no-any-return]


@dataclass(frozen=True)
class AuditSettings:
    """What `audit(**settings)` means; see there."""

    method: AuditedMethod
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
        name = getattr(shaping, "__name__", "own function")
        method = AuditedMethod(Method(name, name, NoShaping), NoShaping)
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
            f"{method.declaration.name} does not know the setting {next(iter(left))!r}: "
            "help(audit) lists the settings of each method."
        )
    if parsed.gamma_int != gamma and horizon is None:
        raise ValueError(
            f"gamma_int={parsed.gamma_int} differs from the MDP's gamma={gamma}: two discounts "
            "make the best policy depend on time. Give a horizon."
        )
    if method.declaration.needs_potential != (parsed.potential is not None):
        raise ValueError(
            "pbrs needs potential=, a table of shape (S,) or a function (states, times); the "
            "other methods take none."
        )
    return parsed
