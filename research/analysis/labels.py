"""Names of arms: the configurations whose runs differ only in their seeds."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from adops_wrappers.methods import METHODS

DEFAULTS: dict[str, Any] = {
    "env_id": "ALE/MontezumaRevenge-v5",
    "shaping": "none",
    "bonus": "rnd",
    "intrinsic_scale": 1.0,
    "epsilon": 1e-7,
    "delay": 1,
    "schedule_iterations": 0,
    "total_iterations": 30_000,
    "clamp_advantage": False,
    "normalize_intrinsic": "auto",
    "quiet_iterations": 0,
}
"""Of ppo_rnd.py, for the cells of a sweep, which list only what differs."""
NO_BONUS = "no bonus"
CLAMPED = "ADOPS on A"
"""ADOPS on the advantage: a part of the learner, which any method can be combined with."""
LATE = "late "
"""Before the name of a method whose bonus starts after quiet iterations."""
LATE_SHARE = 8
"""Quiet iterations are one of this many parts of training; another number stands after `LATE`."""
COLOURS = {
    NO_BONUS: "#8c8c8c",
    "raw": "#000000",
    "PIES": "#e69f00",
    "GRM": "#56b4e9",
    "GRM-norm": "#0057a8",
    "PBIM": "#d973b0",
    "PBIM-norm": "#8b1a5e",
    "ADOPS": "#009e73",
    "ADOPES": "#d55e00",
    "ADOPES F/2": "#7a3b00",
    "gated ADOPS": "#7f9f00",
    CLAMPED: "#d01c1f",
    "guarded": "#6a3fc1",
}
"""Methods in the order of tables and legends; others follow, in grey."""
PATTERN = re.compile(
    r"(?P<method>.*?)(\((?P<delay>\d+)\))?( ε=(?P<epsilon>\S+))?( ×(?P<scale>\S+))?"
    r"( \((?P<size>as is|std|rms)\))?(?P<rnd> \(RND\))?",
    re.DOTALL,
)


def usual_size(bonus: str) -> str:
    """Return what `normalize_intrinsic=auto` stands for with this bonus."""
    return "std" if bonus == "rnd" else "rms"


class Label(NamedTuple):
    """An arm's name in its parts; `str` writes it as the files and figures show it."""

    method: str
    delay: int | None = None
    """None for methods that have none."""
    epsilon: float = DEFAULTS["epsilon"]
    scale: float = 1.0
    size: str = ""
    """How F was brought to size, where it is not ppo_rnd.py's own choice for the bonus."""
    rnd: bool = False
    """Whether RND is the bonus of an env on which counts are the rule."""

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> Label:
        """Return the name of the configuration that a run's settings belong to.

        Args:
            args: Settings of ppo_rnd.py, as in config.json or as texts; absent ones are defaults.
        """
        args = {**DEFAULTS, **args}
        if args["bonus"] == "none":
            return cls(NO_BONUS)
        method = METHODS.get(args["shaping"])
        reads = method.settings if method else {}
        label = method.label if method else args["shaping"]
        schedule, half = int(args["schedule_iterations"]), int(args["total_iterations"]) // 2
        if {"ramp_updates", "decay_updates"} & reads.keys() and schedule not in (0, half):
            label = f"{label} C={schedule}"
        if str(args["clamp_advantage"]) == "True":
            label = CLAMPED if label == "raw" else f"{label} and {CLAMPED}"
        if quiet := int(args["quiet_iterations"]):
            eighth = int(args["total_iterations"]) // LATE_SHARE
            label = f"{LATE}{label}" if quiet == eighth else f"{LATE}{quiet} {label}"
        usual = usual_size(args["bonus"])
        size = {"auto": usual, "no": "as is"}.get(rule := args["normalize_intrinsic"], rule)
        return cls(
            label,
            int(args["delay"]) if "delay" in reads else None,
            float(args["epsilon"]) if "epsilon" in reads else DEFAULTS["epsilon"],
            float(args["intrinsic_scale"]),
            "" if size == usual else size,
            args["bonus"] == "rnd" and not args["env_id"].startswith("ALE/"),
        )

    @classmethod
    @functools.cache
    def parse(cls, text: str) -> Label:
        """Read what `str` wrote, as it stands in the compact files and in questions."""
        parts = PATTERN.fullmatch(text)
        assert parts is not None  # every text is a method
        return cls(
            parts["method"],
            int(parts["delay"]) if parts["delay"] else None,
            float(parts["epsilon"] or DEFAULTS["epsilon"]),
            float(parts["scale"] or 1.0),
            parts["size"] or "",
            parts["rnd"] is not None,
        )

    def __str__(self) -> str:
        delay = "" if self.delay is None else f"({self.delay})"
        epsilon = "" if self.epsilon == DEFAULTS["epsilon"] else f" ε={self.epsilon:g}"
        return f"{self.method}{delay}{epsilon}{self.group}"

    @property
    def group(self) -> str:
        """What an arm shares with those that it is compared to: scale, size and bonus."""
        scale = f" ×{self.scale:g}" if self.scale != 1.0 else ""
        size = f" ({self.size})" if self.size else ""
        return f"{scale}{size}{' (RND)' if self.rnd else ''}"

    @property
    def base(self) -> str:
        """The method without a schedule of its own and without quiet iterations."""
        return re.sub(rf"^{LATE}(\d+ )?", "", self.method).partition(" C=")[0]

    @property
    def has_other_quiet(self) -> bool:
        """Whether the bonus starts after another number of quiet iterations than usual."""
        return re.match(rf"{LATE}\d", self.method) is not None

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: without a bonus, then by bonus and falling scale, then by method."""
        place = [*COLOURS, self.base].index(self.base)
        settings = self.delay or 0, self.epsilon, self.method != self.base, self.method
        bonus = self.rnd, self.size, -self.scale
        return self.method != NO_BONUS, *bonus, place, *settings

    @property
    def reference(self) -> str:
        """The arm that an arm is tested against; empty for runs without a bonus."""
        if self.method == NO_BONUS:
            return ""
        return NO_BONUS if self.method == "raw" else f"raw{self.group}"
