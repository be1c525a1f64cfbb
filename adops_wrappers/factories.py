"""One name per wrapper for every kind of env, and one function for every method by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

import gymnasium as gym
from gymnasium.vector import VectorEnv

from adops_wrappers import _checks, vector, wrappers
from adops_wrappers.critic import CriticHandle

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


class _Method(NamedTuple):
    wrapper: EitherWrapper[Any, Any, Any]
    preset: dict[str, Any]
    """Settings that the name stands for; `intrinsic_scale` multiplies the user's."""


_METHODS = {
    "none": _Method(NoShapingWrapper, {}),
    "adops": _Method(ADOPSWrapper, {}),
    "adopes": _Method(ADOPESWrapper, {}),
    "adopes-half": _Method(ADOPESWrapper, {"intrinsic_scale": 0.5}),
    "pies": _Method(PIESWrapper, {}),
    "pbim": _Method(PBIMWrapper, {}),
    "pbim-norm": _Method(PBIMWrapper, {"normalize": True}),
    "grm": _Method(GRMWrapper, {}),
    "grm-norm": _Method(GRMWrapper, {"normalize": True}),
    "pbrs": _Method(PBRSWrapper, {}),
    "guarded": _Method(GuardedScaleWrapper, {}),
}
_ALIASES = {"raw": "none"}

SHAPINGS: tuple[str, ...] = tuple(_METHODS)
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
        critic: Needed by `adops`, `adopes` and `adopes-half`; others report its final values.
        **settings: The wrapper's own settings.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper, make_shaping
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> make_shaping("grm", env, delay=2).shaper.describe()
        'GRM (delay=2, gamma=0.99)'
    """
    method = _METHODS.get(_ALIASES.get(name, name)) if isinstance(name, str) else None
    if method is None:
        nearest = get_close_matches(str(name).lower(), [*SHAPINGS, *_ALIASES], n=1, cutoff=0.0)
        raise ValueError(
            f"There is no shaping method {name!r}. Did you mean {nearest[0]!r}? The names are: "
            f"{', '.join(SHAPINGS)}."
        )
    preset = dict(method.preset)
    if "intrinsic_scale" in settings and "intrinsic_scale" in preset:
        preset["intrinsic_scale"] *= _checks.non_negative(
            "intrinsic_scale", settings.pop("intrinsic_scale")
        )
    return method.wrapper(env, critic=critic, **{**preset, **settings})
