"""Names of version 0.2 that work until 0.4, with a warning that says what to type instead."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

MODULES = {
    "factories": "adops_wrappers",
    "inspect.single": "adops_wrappers",
    "inspect.vector": "adops_wrappers",
    "intrinsic.source": "adops_wrappers.wrappers.bonus",
    "shaping.base": "adops_wrappers.shaper",
    "shaping.methods": "adops_wrappers.methods",
    "vector": "adops_wrappers",
    "wrappers": "adops_wrappers",
}
"""Where the names of a module are now. `wrappers` still exists, and asks for its old names."""
NAMES = {("vector", "ShapingWrapper"): "VectorShapingWrapper"}
"""Names that have changed, by their old module."""


def moved(module: str, name: str) -> Any:
    """Return what `adops_wrappers.module.name` is now, and warn whoever asks `module` for it.

    Raises:
        AttributeError: There was no such name.
    """
    home, now = MODULES[module], NAMES.get((module, name), name)
    if name.startswith("__") or not hasattr(import_module(home), now):
        raise AttributeError(f"module 'adops_wrappers.{module}' has no attribute {name!r}")
    warnings.warn(
        f"adops_wrappers.{module}.{name} is deprecated and goes with version 0.4: use "
        f"{home}.{now}.",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(import_module(home), now)


def keep_old_modules() -> None:
    """Let the modules that are gone be imported, empty but for their names' new homes."""
    for module in MODULES:
        path = f"adops_wrappers.{module}"
        if module != "wrappers":
            old: Any = ModuleType(path, "Old home of names that have moved; goes with 0.4.")
            old.__getattr__ = lambda name, module=module: moved(module, name)
            sys.modules[path] = old
