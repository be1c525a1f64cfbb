"""Names of arms: the configurations whose runs differ in their seed alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

DEFAULTS: dict[str, Any] = {
    "env_id": "ALE/MontezumaRevenge-v5",
    "shaping": "none",
    "bonus": "rnd",
    "intrinsic_scale": 1.0,
    "epsilon": 1e-7,
    "delay": 1,
    "balance": 0.1,
}
"""Of ppo_rnd.py, for the cells of a sweep: they name only what differs."""
SHAPINGS = {
    "none": "raw",
    "pies": "PIES",
    "grm": "GRM",
    "grm-norm": "GRM-norm",
    "pbim": "PBIM",
    "pbim-norm": "PBIM-norm",
    "adops": "ADOPS",
    "adopes": "ADOPES",
    "adopes-half": "ADOPES F/2",
    "guarded": "guarded",
}
NO_BONUS = "no bonus"
SWITCHED_OFF = "off at first reward"
ORDER = (NO_BONUS, *SHAPINGS.values(), SWITCHED_OFF)


def suffix(scale: float, rnd: bool) -> str:
    """Return the end of the labels with this scale and bonus."""
    return (f" ×{scale:g}" if scale != 1.0 else "") + (" (RND)" if rnd else "")


def arm_label(args: Mapping[str, Any]) -> str:
    """Return the name of the configuration that a run's settings belong to.

    Args:
        args: Settings of ppo_rnd.py, as in config.json or as texts; absent ones are its defaults.
    """
    args = {**DEFAULTS, **args}
    if args["bonus"] == "none":
        return NO_BONUS
    shaping = args["shaping"]
    label = SHAPINGS.get(shaping, shaping)
    if shaping in ("grm", "grm-norm"):
        label += f"({int(args['delay'])})"
    if shaping == "guarded" and float(args["balance"]) == 0.0:
        label = SWITCHED_OFF
    epsilon = float(args["epsilon"])
    if shaping in ("adops", "adopes", "adopes-half") and epsilon != DEFAULTS["epsilon"]:
        label += f" ε={epsilon:g}"
    rnd = args["bonus"] == "rnd" and not args["env_id"].startswith("ALE/")
    return label + suffix(float(args["intrinsic_scale"]), rnd)


class Label(NamedTuple):
    """The parts of an arm's label."""

    method: str
    delay: int
    epsilon: float
    scale: float
    rnd: bool

    @property
    def group(self) -> str:
        """What an arm shares with those that it is compared to."""
        return suffix(self.scale, self.rnd)


LABEL = re.compile(
    r"(?P<method>.*?)(\((?P<delay>\d+)\))?( ε=(?P<epsilon>\S+))?( ×(?P<scale>\S+))?"
    r"(?P<rnd> \(RND\))?",
    re.DOTALL,
)


def parse_label(label: str) -> Label:
    """Split what `arm_label` has made."""
    parts = LABEL.fullmatch(label)
    return Label(
        parts["method"],
        int(parts["delay"] or DEFAULTS["delay"]),
        float(parts["epsilon"] or DEFAULTS["epsilon"]),
        float(parts["scale"] or DEFAULTS["intrinsic_scale"]),
        parts["rnd"] is not None,
    )


def arm_order(label: str) -> tuple[Any, ...]:
    """Sort key: without a bonus, then by bonus and falling scale, then by method."""
    parts = parse_label(label)
    place = ORDER.index(parts.method) if parts.method in ORDER else len(ORDER)
    return parts.method != NO_BONUS, parts.rnd, -parts.scale, place, *parts[1:3], label


def reference_of(label: str) -> str:
    """Return the arm that an arm is tested against; empty for runs without a bonus."""
    parts = parse_label(label)
    if parts.method == NO_BONUS:
        return ""
    return NO_BONUS if parts.method == "raw" else f"raw{parts.group}"
