"""How numbers and names are written for people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

TOO_FEW = "too few runs"


def shown(value: float, digits: int = 2) -> str:
    """Write a number, large ones without decimals; NaN is a dash."""
    if math.isnan(value):
        return "–"
    digits = 0 if abs(value) >= 100.0 else digits
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def shown_p(p: float | None) -> str:
    """Write a p-value."""
    if p is None:
        return TOO_FEW
    return "< 1e-15" if p < 1e-15 else f"{p:.2g}".replace("e-0", "e-")


def equals_p(p: float | None) -> str:
    """Write a p-value behind its name."""
    text = shown_p(p)
    return text if text.startswith("<") else f"= {text}"


def ranges(numbers: Iterable[int]) -> str:
    """Write whole numbers with neighbours joined: 1–3, 7."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in spans)


def env_name(env: str) -> str:
    """Return an env's id without what all envs of adops share."""
    return re.sub(r"^adops/(.+)-v0$", r"\1", env)


def slug(env: str) -> str:
    """Return an env's name for file names."""
    return re.sub(r"[^\w.-]+", "-", env_name(env))
