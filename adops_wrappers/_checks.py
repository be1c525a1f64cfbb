"""Argument checks: each error says what was wrong, what is allowed and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any


def number(
    name: str, value: Any, allowed: str, accepted: Callable[[float], bool] = math.isfinite
) -> float:
    """Return `value` as a float, or raise if it is no finite real number that is `accepted`."""
    _require(Real, name, value, allowed)
    if not (math.isfinite(value) and accepted(value)):
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return float(value)


def discount(name: str, value: Any) -> float:
    """A discount factor in (0, 1]."""
    return number(name, value, "a discount in (0, 1], such as 0.99", lambda x: 0.0 < x <= 1.0)


def smoothing(name: str, value: Any) -> float:
    """A smoothing factor in (0, 1]."""
    allowed = "a smoothing factor in (0, 1], such as 0.05"
    return number(name, value, allowed, lambda x: 0.0 < x <= 1.0)


def positive(name: str, value: Any) -> float:
    """A number above 0."""
    return number(name, value, "a number greater than 0", lambda x: x > 0.0)


def non_negative(name: str, value: Any) -> float:
    """A number of at least 0."""
    return number(name, value, "a number of at least 0", lambda x: x >= 0.0)


def fraction(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    return number(name, value, "a number from 0 to 1", lambda x: 0.0 <= x <= 1.0)


def whole(name: str, value: Any, *, least: int) -> int:
    """A whole number of at least `least`."""
    allowed = f"a whole number of at least {least}"
    _require(Integral, name, value, allowed)
    if value < least:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return int(value)


def _require(kind: type, name: str, value: Any, allowed: str) -> None:
    # True is an Integral, but given for a number it is a mistake.
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{name} must be {allowed}, got {value!r} of type {type(value).__name__}.")
