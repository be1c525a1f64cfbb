"""Packages of the extra `analysis`, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def analysis_package(name: str, purpose: str) -> Any:
    """Return a module of a package that the core does without, or say how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{purpose[0].upper()}{purpose[1:]} needs {name.split('.')[0]}, which is not "
            "installed. Run: pip install adops-wrappers[analysis]"
        ) from error
