"""Argument checks: each error says what was wrong, what is allowed and what to do."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def number(name: str, value: Any, allowed: str) -> float:
    """Return `value` as a float, or raise if it is not a finite real number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {allowed}, got {value!r} of type {type(value).__name__}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return float(value)


def discount(name: str, value: Any) -> float:
    """A discount factor in (0, 1]."""
    allowed = "a discount in (0, 1], such as 0.99"
    result = number(name, value, allowed)
    if not 0.0 < result <= 1.0:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return result


def positive(name: str, value: Any) -> float:
    """A number above 0."""
    allowed = "a number greater than 0"
    result = number(name, value, allowed)
    if result <= 0.0:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return result


def non_negative(name: str, value: Any) -> float:
    """A number of at least 0."""
    allowed = "a number of at least 0"
    result = number(name, value, allowed)
    if result < 0.0:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return result


def fraction(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    allowed = "a number from 0 to 1"
    result = number(name, value, allowed)
    if not 0.0 <= result <= 1.0:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return result


def smoothing(name: str, value: Any) -> float:
    """A smoothing factor in (0, 1]."""
    allowed = "a smoothing factor in (0, 1], such as 0.05"
    result = number(name, value, allowed)
    if not 0.0 < result <= 1.0:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return result


def whole(name: str, value: Any, *, least: int) -> int:
    """A whole number of at least `least`."""
    allowed = f"a whole number of at least {least}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be {allowed}, got {value!r} of type {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return int(value)
