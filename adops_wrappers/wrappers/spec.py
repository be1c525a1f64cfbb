"""Lets `env.spec` rebuild a stack, and be written as JSON, despite its critics and sources."""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any, ClassVar

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


class RecordsSettings(RecordConstructorArgs):
    """Records the arguments that a wrapper is built with, for `RecordConstructorArgs`.

    `__new__` runs before every `__init__`, as `RecordConstructorArgs` requires, and no wrapper
    needs to list its arguments twice.
    """

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **options: Any) -> None:
        """Take the signature from `__init__`: Python 3.10 would take it from `__new__`."""
        super().__init_subclass__(**options)
        whole = inspect.signature(cls.__init__)
        cls.__signature__ = whole.replace(parameters=list(whole.parameters.values())[1:])

    def __new__(cls, *args: Any, **kwargs: Any) -> RecordsSettings:
        """Record all arguments but the env."""
        self = super().__new__(cls)
        try:
            given = dict(inspect.signature(cls).bind_partial(*args, **kwargs).arguments)
        except TypeError:
            return self  # __init__ is about to raise the same error
        given |= given.pop("settings", {})  # what a constructor takes as **settings
        settings: dict[str, Any] = {
            name: _recordable(value) for name, value in given.items() if name != "env"
        }
        RecordConstructorArgs.__init__(self, **settings)
        return self


def _recordable(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return SpecReference(value)
