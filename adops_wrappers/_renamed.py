"""Names of version 0.2 that work until 0.4, with a warning that says what to type instead."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def moved(module: str, name: str, renamed: Mapping[str, str]) -> Any:
    """Return what `module.name` is in `adops_wrappers` now, and warn.

    Args:
        module: The module that is asked, for its `__getattr__`.
        name: The name that it is asked for.
        renamed: New names by old ones, where they differ.

    Raises:
        AttributeError: There was no such name.
    """
    package = import_module("adops_wrappers")
    now = renamed.get(name, name)
    if name.startswith("_") or now not in package.__all__:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(
        f"{module}.{name} is deprecated and goes with version 0.4: use adops_wrappers.{now}.",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(package, now)
