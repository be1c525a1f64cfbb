"""How numbers and names are written for people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

TOO_FEW = "too few runs"


def shown(value: float, digits: int = 3) -> str:
    """Write a number for people; NaN is a dash."""
    if math.isnan(value):
        return "–"
    text = f"{value:.0f}" if abs(value) >= 100.0 else f"{value + 0.0:.{digits}g}"
    return text.replace("-", "−") if "e" not in text else text


def shown_p(p: float | None) -> str:
    """Write a p-value."""
    if p is None:
        return TOO_FEW
    return "< 1e-15" if p < 1e-15 else f"{p:.2g}"


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


def slug(env: str) -> str:
    """Return an env's name for file names."""
    return re.sub(r"[^\w.-]+", "-", env.removeprefix("adops/").removesuffix("-v0"))
