"""Lets `env.spec` rebuild a stack, and be written as JSON, despite its critics and sources."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
from gymnasium.utils import RecordConstructorArgs


class SpecReference(str):
    """Stands for an object in a spec that JSON cannot hold; JSON gets only its name.

    A spec in memory still rebuilds the wrapper with the object itself, as
    `gymnasium.utils.env_checker.check_env` does. A spec read from JSON has lost it, and the
    wrapper's constructor says so.
    """

    value: Any

    def __new__(cls, value: Any) -> SpecReference:
        """Name the object and keep it."""
        self = super().__new__(cls, f"<{getattr(value, '__name__', type(value).__name__)}>")
        self.value = value
        return self

    def __deepcopy__(self, memo: Any) -> SpecReference:
        return self


def from_spec(value: Any) -> Any:
    """Return the object that a `SpecReference` stands for, or `value` itself."""
    return value.value if isinstance(value, SpecReference) else value


def record_arguments(
    wrapper: RecordConstructorArgs, constructor: Callable[..., None], given: dict[str, Any]
) -> None:
    """Record for `wrapper.spec` what was given to a constructor and is not its default.

    The constructor calls this, with its own `locals()`, before Gymnasium's. Where a subclass has
    recorded its own arguments already, by `RecordConstructorArgs.__init__`, those count. A `bonus`
    or `knowledge` is not recorded: it has become a wrapper below.
    """
    changed = {name: _recordable(value) for name, value in given.get("settings", {}).items()}
    for parameter in inspect.signature(constructor).parameters.values():
        name = parameter.name
        if name not in ("self", "env", "settings", "knowledge", "bonus"):
            value = _recordable(given[name])
            if value != parameter.default:
                changed[name] = value
    RecordConstructorArgs.__init__(wrapper, **changed)


def _recordable(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return SpecReference(value)
