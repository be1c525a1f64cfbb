"""The shaping methods by name, as the shapers of the wrappers with ζ held still."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

from adops_wrappers import _checks
from adops_wrappers.shaping import ADOPES, ADOPS, PBIM, PBRS, PIES, NoShaping, Shaper, make_grm

# ζ = n/C with C = 2⁴⁰ reaches any ζ to within 1e-12, and the usual ones exactly.
_ZETA_STEPS = 2**40

SHARED_SETTINGS = (
    *("form", "value_int", "sampled_advantage", "potential"),
    *("ext_coef", "int_coef", "gamma_int", "tie_tolerance", "max_nodes"),
)
"""The settings of an audit that do not belong to one method alone."""
ADOPS_FAMILY = ("adops", "adopes", "adopes-half")
METHODS = (
    "none",
    *ADOPS_FAMILY,
    "pies",
    "pbim",
    "pbim-norm",
    "grm",
    "grm-norm",
    "pbrs",
)
"""The names that `audit` takes; `raw` is an alias of `none`."""


class Method(NamedTuple):
    """One shaping method, ready to be fed transitions."""

    name: str
    make_shaper: Callable[[int], Shaper]
    remembers: bool
    """Whether F′ depends on the episode so far."""
    bonus_scale: float = 1.0
    consults_critic: bool = False


def method_name(name: Any) -> str:
    """Return the canonical name, or raise with the nearest one."""
    canonical = "none" if name == "raw" else name
    if canonical not in METHODS:
        nearest = get_close_matches(str(name).lower(), [*METHODS, "raw"], n=1, cutoff=0.0)
        raise ValueError(
            f"There is no shaping method {name!r}. Did you mean {nearest[0]!r}? The names are: "
            f"{', '.join(METHODS)}; a function (mdp, bonus) -> shaped bonus and a Shaper class "
            "are accepted too."
        )
    return str(canonical)


def make_method(shaping: str | type[Shaper], gamma: float, settings: dict[str, Any]) -> Method:
    """Build the method for discount γ, taking what it knows out of `settings`."""
    if isinstance(shaping, type):
        own = _own_settings(shaping, settings)
        return Method(
            shaping.__name__, partial(shaping, **own), remembers=True, consults_critic=True
        )
    name = method_name(shaping)
    scale = 0.5 if name == "adopes-half" else 1.0
    if name == "none":
        return Method(name, NoShaping, False)
    if name in ADOPS_FAMILY:
        clamp = {
            "gamma_ext": gamma,
            "gamma_int": settings.get("gamma_int", gamma),
            "ext_coef": settings.get("ext_coef", 1.0),
            "int_coef": settings.get("int_coef", 1.0),
            "tie_tolerance": settings.get("tie_tolerance", 1e-9),
            "epsilon": settings.pop("epsilon", 1e-7),
            "allow_gamma_int_above_ext": settings.pop("allow_gamma_int_above_ext", False),
        }
        if name == "adops":
            return Method(name, partial(ADOPS, **clamp), False, scale, True)
        zeta = _zeta(settings)
        return Method(name, partial(_adopes, zeta, clamp), False, scale, True)
    if name == "pies":
        return Method(name, partial(_pies, _zeta(settings)), False)
    if name == "pbrs":
        return Method(name, partial(PBRS, gamma=settings.pop("gamma", gamma)), False)
    common = {
        "gamma": settings.pop("gamma", gamma),
        "normalize": name.endswith("-norm"),
        "alpha": settings.pop("alpha", 0.05),
    }
    if name.startswith("pbim"):
        return Method(name, partial(PBIM, **common), True)
    delay, matching = settings.pop("delay", 1), settings.pop("matching", None)
    return Method(name, partial(make_grm, delay=delay, matching=matching, **common), True)


def _own_settings(shaper: type[Shaper], settings: dict[str, Any]) -> dict[str, Any]:
    """Return what the constructor takes; what the audit knows too is left for it."""
    parameters = inspect.signature(shaper).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    own = {}
    for key in list(settings):
        if key in parameters or (takes_all and key not in SHARED_SETTINGS):
            own[key] = settings[key] if key in SHARED_SETTINGS else settings.pop(key)
    return own


def _zeta(settings: dict[str, Any]) -> float:
    zeta = _checks.non_negative("zeta", settings.pop("zeta", 0.5))
    if zeta > 1.0:
        raise ValueError(f"zeta must lie in [0, 1], got {zeta}.")
    return zeta


def _adopes(zeta: float, clamp: dict[str, Any], num_envs: int) -> Shaper:
    shaper = ADOPES(num_envs, ramp_updates=_ZETA_STEPS, update_every=1, **clamp)
    return _hold(shaper, round(zeta * _ZETA_STEPS))


def _pies(zeta: float, num_envs: int) -> Shaper:
    shaper = PIES(num_envs, decay_updates=_ZETA_STEPS, update_every=1)
    return _hold(shaper, round((1.0 - zeta) * _ZETA_STEPS))


def _hold(shaper: Shaper, ticks: int) -> Shaper:
    shaper.load_state_dict({"ticks": ticks})
    shaper.frozen = True
    return shaper
