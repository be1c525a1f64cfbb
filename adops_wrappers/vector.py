"""Old home of the wrappers for vector envs, until 0.4: their names are in `adops_wrappers`."""

from typing import Any

from adops_wrappers._renamed import moved


def __getattr__(name: str) -> Any:
    return moved(__name__, name, {"ShapingWrapper": "VectorShapingWrapper"})
