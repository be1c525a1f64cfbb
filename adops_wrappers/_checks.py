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
    return _above_zero_up_to_one(name, value, "a discount in (0, 1], such as 0.99")


def smoothing(name: str, value: Any) -> float:
    """A smoothing factor in (0, 1]."""
    return _above_zero_up_to_one(name, value, "a smoothing factor in (0, 1], such as 0.05")


def positive(name: str, value: Any) -> float:
    """A number above 0."""
    allowed = "a number greater than 0"
    return _accepted(name, value, allowed, number(name, value, allowed) > 0.0)


def non_negative(name: str, value: Any) -> float:
    """A number of at least 0."""
    allowed = "a number of at least 0"
    return _accepted(name, value, allowed, number(name, value, allowed) >= 0.0)


def fraction(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    allowed = "a number from 0 to 1"
    return _accepted(name, value, allowed, 0.0 <= number(name, value, allowed) <= 1.0)


def _above_zero_up_to_one(name: str, value: Any, allowed: str) -> float:
    return _accepted(name, value, allowed, 0.0 < number(name, value, allowed) <= 1.0)


def _accepted(name: str, value: Any, allowed: str, accepted: bool) -> float:
    if not accepted:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return float(value)


def whole(name: str, value: Any, *, least: int) -> int:
    """A whole number of at least `least`."""
    allowed = f"a whole number of at least {least}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be {allowed}, got {value!r} of type {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be {allowed}, got {value!r}.")
    return int(value)
