"""Optional packages, imported where they are used, with an error that says how to get them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def scipy_sparse(purpose: str, *, required: bool) -> tuple[Any, Any] | None:
    """Return scipy.sparse and its `spsolve`, or None if scipy is missing and not required."""
    try:
        sparse, linalg = _extra("scipy.sparse", purpose), _extra("scipy.sparse.linalg", purpose)
    except ImportError:
        if required:
            raise
        return None
    return sparse, linalg.spsolve


def pyplot_figure(purpose: str) -> Any:
    """Return matplotlib's Figure class, which draws without a display."""
    return _extra("matplotlib.figure", purpose).Figure


def _extra(name: str, purpose: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise ImportError(
            f"{purpose[0].upper()}{purpose[1:]} needs {package}, which is not installed. Run: "
            "pip install adops-wrappers[analysis]"
        ) from error
