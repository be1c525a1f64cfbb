"""Test cases for all declared methods, also for those that no list of cases mentions."""

from __future__ import annotations

from typing import Any

from adops_wrappers.methods import METHODS
from tests import toolkit as tk

Cases = dict[str, tuple[str, dict[str, Any]]]
"""The name and the settings of a method, by case."""

GIVEN = {
    "gamma": tk.GAMMA_INT,
    "gamma_ext": tk.GAMMA_EXT,
    "gamma_int": tk.GAMMA_INT,
    "potential": tk.potential,
}
"""What a method that asks for it is given. Everything else has its default."""


def with_declared(cases: Cases, given: dict[str, Any] = GIVEN) -> Cases:
    """Return the cases, and one for each declared method that none of them is about."""
    covered = {name for name, _ in cases.values()}
    return cases | {
        name: (name, {setting: given[setting] for setting in method.settings if setting in given})
        for name, method in METHODS.items()
        if name not in covered
    }
