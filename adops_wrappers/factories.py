"""One name per wrapper for every kind of env, and one function for every method by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import gymnasium as gym
from gymnasium.vector import VectorEnv

from adops_wrappers import _checks, vector, wrappers
from adops_wrappers.critic import CriticHandle
from adops_wrappers.shaping import (
    ADOPES,
    ADOPS,
    METHODS,
    PBIM,
    PBRS,
    PIES,
    GuardedScale,
    Method,
    NoShaping,
    Shaper,
    find_method,
    make_grm,
)

Settings = ParamSpec("Settings")
Single = TypeVar("Single")
Vector = TypeVar("Vector")


class EitherWrapper(Generic[Settings, Single, Vector]):
    """A factory that wraps an `Env` with one class and a `VectorEnv` with its vector twin.

    `isinstance(env, ADOPSWrapper)` holds for both kinds.
    """

    def __init__(
        self,
        single: Callable[Concatenate[gym.Env[Any, Any], Settings], Single],
        vector: Callable[Concatenate[VectorEnv, Settings], Vector],
    ) -> None:
        self.__name__ = single.__name__
        self._single, self._vector = single, vector
        functools.update_wrapper(self, single, updated=())
        self.__signature__ = inspect.signature(single)

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
        raise TypeError(
            f"{self.__name__} wraps a gymnasium.Env or a gymnasium.vector.VectorEnv, got {env!r} "
            f"of type {type(env).__name__}. Make one with gymnasium.make or gymnasium.make_vec."
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise TypeError(
            f"{self.__name__} stands for two classes and cannot be subclassed. Subclass "
            f"adops_wrappers.wrappers.{self.__name__} for an Env, or from "
            f"adops_wrappers.vector.{self.__name__} for a VectorEnv."
        )

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, (self._single, self._vector))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{self.__name__} for Env and VectorEnv>"


ADOPSWrapper = EitherWrapper(wrappers.ADOPSWrapper, vector.ADOPSWrapper)
ADOPESWrapper = EitherWrapper(wrappers.ADOPESWrapper, vector.ADOPESWrapper)
PIESWrapper = EitherWrapper(wrappers.PIESWrapper, vector.PIESWrapper)
PBIMWrapper = EitherWrapper(wrappers.PBIMWrapper, vector.PBIMWrapper)
GRMWrapper = EitherWrapper(wrappers.GRMWrapper, vector.GRMWrapper)
GuardedScaleWrapper = EitherWrapper(wrappers.GuardedScaleWrapper, vector.GuardedScaleWrapper)
PBRSWrapper = EitherWrapper(wrappers.PBRSWrapper, vector.PBRSWrapper)
NoShapingWrapper = EitherWrapper(wrappers.NoShapingWrapper, vector.NoShapingWrapper)
IntrinsicRewardWrapper = EitherWrapper(
    wrappers.IntrinsicRewardWrapper, vector.IntrinsicRewardWrapper
)
ShapingWrapper: EitherWrapper[..., wrappers.ShapingWrapper, vector.ShapingWrapper] = EitherWrapper(
    wrappers.ShapingWrapper, vector.ShapingWrapper
)

_NAMED: dict[Callable[..., Shaper], EitherWrapper[Any, Any, Any]] = {
    NoShaping: NoShapingWrapper,
    ADOPS: ADOPSWrapper,
    ADOPES: ADOPESWrapper,
    PIES: PIESWrapper,
    PBIM: PBIMWrapper,
    make_grm: GRMWrapper,
    PBRS: PBRSWrapper,
    GuardedScale: GuardedScaleWrapper,
}
"""The shapers that have wrapper classes of their own; the others do without."""

SHAPINGS: tuple[str, ...] = tuple(METHODS)
"""The names that `make_shaping` takes; `raw` is an alias of `none`."""


@overload
def make_shaping(
    name: str,
    env: VectorEnv,
    critic: CriticHandle | Callable[[Any], Any] | None = None,
    **settings: Any,
) -> vector.ShapingWrapper: ...


@overload
def make_shaping(
    name: str,
    env: gym.Env[Any, Any],
    critic: CriticHandle | Callable[[Any], Any] | None = None,
    **settings: Any,
) -> wrappers.ShapingWrapper: ...


def make_shaping(
    name: str,
    env: Any,
    critic: CriticHandle | Callable[[Any], Any] | None = None,
    **settings: Any,
) -> Any:
    """Wrap `env` with the method called `name`, one of `SHAPINGS`.

    Args:
        name: `none` (or `raw`) keeps F; `adopes-half` is ADOPES on F/2; `pbim-norm` and
            `grm-norm` subtract the running mean of F; the others are the wrappers' defaults.
        env: An `Env` or a `VectorEnv` with a source of F.
        critic: Needed by `adops`, `adopes`, `adopes-half` and `adops-gated`; the others only
            report its values of final observations.
        **settings: The wrapper's own settings.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper, make_shaping
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> make_shaping("grm", env, delay=2).shaper.describe()
        'GRM (delay=2, gamma=0.99)'
    """
    method = find_method(name)
    scale = _checks.non_negative("intrinsic_scale", settings.pop("intrinsic_scale", 1.0))
    settings = {**method.presets, **settings, "intrinsic_scale": method.intrinsic_scale * scale}
    wrap = _NAMED.get(method.build or method.shaper) or partial(_wrap_undressed, method)
    shaped = wrap(env, critic=critic, **settings)
    shaped.shaper.built_as = method.name
    return shaped


def _wrap_undressed(method: Method, env: Any, critic: Any, **settings: Any) -> Any:
    """Wrap `env` with a method that has no wrapper classes of its own."""
    return ShapingWrapper(
        env,
        method.make,
        critic=critic,
        consults_critic=method.needs_critic,
        needs_intrinsic=not method.needs_potential,
        **settings,
    )
