"""One name that wraps an `Env` and a `VectorEnv` alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import gymnasium as gym
from gymnasium.vector import VectorEnv

from adops_wrappers.batched import require_one_row

Settings = ParamSpec("Settings")
Single = TypeVar("Single")
Vector = TypeVar("Vector")


class EitherWrapper(Generic[Settings, Single, Vector]):
    """A factory that wraps an `Env` with one class and a `VectorEnv` with another.

    `isinstance(env, TheName)` holds for what it returns, of either kind.

    Args:
        described: What the name's signature and docstring are taken from.
        single: Makes the wrapper of an `Env`.
        vector: Makes the wrapper of a `VectorEnv`.
        name: The name; None for that of `described`.
    """

    __name__: str
    __signature__: inspect.Signature

    def __init__(
        self,
        described: Callable[Concatenate[Any, Settings], object],
        single: Callable[..., Single],
        vector: Callable[..., Vector],
        name: str | None = None,
    ) -> None:
        self._single, self._vector = single, vector
        self.__name__ = self.__qualname__ = name or described.__name__
        self.__module__ = described.__module__
        self.__wrapped__ = described  # doctest runs the example of what wraps a function
        self.__signature__ = self._signature(described)
        # `help` shows no signature of an object, so the docstring begins with it.
        self.__doc__ = f"{self.__name__}{self._shown()}\n\n{self._documentation(described)}"

    def _signature(self, described: Callable[..., object]) -> inspect.Signature:
        signature = inspect.signature(described, eval_str=True)
        return signature.replace(return_annotation=inspect.Signature.empty)

    def _documentation(self, described: Callable[..., object]) -> str:
        return inspect.cleandoc(described.__doc__ or "")

    def _shown(self) -> str:
        bare = [p.replace(annotation=p.empty) for p in self.__signature__.parameters.values()]
        return str(self.__signature__.replace(parameters=bare))

    @overload
    def __call__(
        self, env: VectorEnv, *args: Settings.args, **kwargs: Settings.kwargs
    ) -> Vector: ...

    @overload
    def __call__(
        self, env: gym.Env[Any, Any], *args: Settings.args, **kwargs: Settings.kwargs
    ) -> Single: ...

    def __call__(self, env: Any, *args: Settings.args, **kwargs: Settings.kwargs) -> Any:
        """Wrap `env`. A VectorEnv is tested for first: envpool's classes are both."""
        if isinstance(env, VectorEnv):
            return self._vector(env, *args, **kwargs)
        if isinstance(env, gym.Env):
            return self._single(env, *args, **kwargs)
        require_one_row(env)
        raise TypeError(
            f"{self.__name__} wraps a gymnasium.Env or a gymnasium.vector.VectorEnv, got {env!r} "
            f"of type {type(env).__name__}. Make one with gymnasium.make or gymnasium.make_vec."
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise TypeError(
            f"{self.__name__} stands for two classes and cannot be subclassed. {self._to_subclass}"
        )

    @property
    def _to_subclass(self) -> str:
        single, vector = (
            f"{kind.__module__}.{kind.__name__}"
            for kind in (self._single, self._vector)
            if isinstance(kind, type)
        )
        return f"Subclass {single} for an Env, or {vector} for a VectorEnv."

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, (self._single, self._vector))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{self.__name__} for Env and VectorEnv>"
