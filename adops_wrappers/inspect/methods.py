"""Shapers by the names of `SHAPINGS`, and a shaper's name and settings for the file."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NamedTuple

from adops_wrappers.shaping import (
    ADOPES,
    ADOPS,
    GRM,
    PBIM,
    PBRS,
    PIES,
    GuardedScale,
    NoShaping,
    Shaper,
    make_grm,
)

STREAMS = ("gamma_ext", "gamma_int", "ext_coef", "int_coef")
"""Discounts and weights of the two streams, which a recording knows."""
CLAMP = (*STREAMS, "epsilon", "tie_tolerance")
GUARD = (
    *(*STREAMS, "balance", "tolerance", "shrink"),
    *("regrow", "floor", "smoothing", "forgetting"),
)


class Method(NamedTuple):
    """How one name is built."""

    make: Callable[..., Shaper]
    preset: dict[str, Any]
    needs_critic: bool = False
    needs_potential: bool = False


METHODS = {
    "none": Method(NoShaping, {}),
    "adops": Method(ADOPS, {}, needs_critic=True),
    "adopes": Method(ADOPES, {}, needs_critic=True),
    "adopes-half": Method(ADOPES, {"intrinsic_scale": 0.5}, needs_critic=True),
    "pies": Method(PIES, {}),
    "pbim": Method(PBIM, {}),
    "pbim-norm": Method(PBIM, {"normalize": True}),
    "grm": Method(make_grm, {}),
    "grm-norm": Method(make_grm, {"normalize": True}),
    "pbrs": Method(PBRS, {}, needs_potential=True),
    "guarded": Method(GuardedScale, {}, needs_critic=True),
}


def find_method(name: Any) -> Method:
    """Return the method called `name`, or raise with the nearest name."""
    canonical = "none" if name == "raw" else name
    if canonical not in METHODS:
        nearest = get_close_matches(str(name).lower(), METHODS, n=1, cutoff=0.0)
        raise ValueError(
            f"There is no shaping method {name!r}. Did you mean {nearest[0]!r}? The names are: "
            f"{', '.join(METHODS)}."
        )
    return METHODS[canonical]


def identify(shaper: Shaper, intrinsic_scale: float) -> tuple[str, dict[str, Any] | None]:
    """Return a shaper's name and the settings that build it again; None for functions of a user."""
    kind = type(shaper)
    if isinstance(shaper, ADOPS) and kind in (ADOPS, ADOPES):
        settings: dict[str, Any] = {**shaper.clamp, "allow_gamma_int_above_ext": True}
        if not isinstance(shaper, ADOPES):
            return "adops", settings
        settings.update(ramp_updates=shaper.ramp_updates, update_every=_every(shaper))
        return ("adopes-half" if intrinsic_scale == 0.5 else "adopes"), settings
    if isinstance(shaper, PIES) and kind is PIES:
        return "pies", {"decay_updates": shaper.decay_updates, "update_every": _every(shaper)}
    if isinstance(shaper, PBIM | GRM) and kind in (PBIM, GRM):
        name = "pbim" if isinstance(shaper, PBIM) else "grm"
        settings = {"gamma": shaper.gamma, "alpha": shaper.alpha}
        if isinstance(shaper, GRM):
            settings["delay"] = shaper.delay
        return (f"{name}-norm" if shaper.normalize else name), settings
    if isinstance(shaper, PBRS) and kind is PBRS:
        return "pbrs", {"gamma": shaper.gamma}
    if isinstance(shaper, GuardedScale) and kind is GuardedScale:
        settings = {name: getattr(shaper, name) for name in GUARD}
        return "guarded", settings | {"update_every": _every(shaper)}
    if kind is NoShaping:
        return "none", {}
    return shaper.name, None


def _every(shaper: ADOPES | PIES | GuardedScale) -> int | str:
    return "episode" if shaper.counter.per_episode else shaper.counter.update_every
