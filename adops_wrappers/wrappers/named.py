"""The name of a method's wrapper, as users type it, for one env and for a vector env."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, get_args, overload

import gymnasium as gym
from gymnasium.vector import AutoresetMode, VectorEnv
from typing_extensions import (
    TypedDict,
    get_original_bases,
    get_type_hints,
    is_typeddict,
)

from adops_wrappers.bootstrap import IntBootstrap
from adops_wrappers.critic import AnyCritic
from adops_wrappers.methods import METHODS, WRAPPER_NAMES, Method
from adops_wrappers.shaper import constructor_settings
from adops_wrappers.wrappers.either import EitherWrapper, Settings
from adops_wrappers.wrappers.shaping import (
    ComposesShaper,
    ShapingWrapper,
    VectorShapingWrapper,
)


@overload
def make_shaping(
    name: str | Method, env: VectorEnv, critic: AnyCritic | None = None, **settings: Any
) -> VectorShapingWrapper: ...


@overload
def make_shaping(
    name: str | Method, env: gym.Env[Any, Any], critic: AnyCritic | None = None, **settings: Any
) -> ShapingWrapper: ...


def make_shaping(
    name: str | Method, env: Any, critic: AnyCritic | None = None, **settings: Any
) -> Any:
    """Wrap `env` with the method called `name`, one of `SHAPINGS`.

    Args:
        name: `none` (or `raw`) keeps F; `adopes-half` is ADOPES on F/2; `pbim-norm` and
            `grm-norm` subtract the running mean of F; the others are the wrappers' defaults.
        env: An `Env` or a `VectorEnv` with a source of F.
        critic: Needed by `adops`, `adopes`, `adopes-half`, `adops-gated` and `bsrs`; the others
            only report its values of final observations.
        **settings: The wrapper's own settings.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper, make_shaping
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> make_shaping("grm", env, delay=2).shaper.describe()
        'GRM (delay=2, gamma=0.99)'
    """
    # A VectorEnv is tested for first: envpool's classes are both.
    kind = VectorShapingWrapper if isinstance(env, VectorEnv) else ShapingWrapper
    return kind(env, name, critic, **settings)


class CommonSettings(TypedDict, total=False):
    """What every shaping wrapper takes.

    Args:
        bonus: A source of F, such as `CountBonus()`, for an env that has none below. It is brought
            to unit size. For more control, put an `IntrinsicRewardWrapper` below instead.
        intrinsic_scale: F is multiplied by it before shaping.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R. None: R + F′, unless
            both discounts are given and differ, as for an agent with two value heads.
        autoreset_mode: When the env resets itself, if it does not declare it.
    """

    bonus: Any
    intrinsic_scale: float
    add_to_reward: bool | None
    autoreset_mode: AutoresetMode | str | None


class CriticSettings(CommonSettings, total=False):
    """What a wrapper takes whose method consults the critic.

    Args:
        gamma: For an agent with one critic, which values R + F′: its discount. It stands for
            both `gamma_ext` and `gamma_int`, and for the episode's end as that agent sees it.
        int_bootstrap: V_I(s′) at an episode's end: "final" takes the final observation's,
            "none" 0 where terminated; "reset" takes that of the next episode's first
            observation, as RND's learner does, and needs a SAME_STEP vector env. None: "none"
            with `gamma`, "final" otherwise.
    """

    gamma: float | None
    int_bootstrap: IntBootstrap | None


class PlainSettings(CommonSettings, total=False):
    """What a wrapper takes whose method does without a critic.

    Args:
        critic: Does not affect F′. At SAME_STEP ends its values of the final observations are
            written into `info`.
    """

    critic: AnyCritic | None


WRAPPERS: dict[str, MethodWrapper[Any]] = {}
"""The wrappers of all methods by the names that users type, in the order of their declaration."""


class MethodWrapper(EitherWrapper[Settings, ShapingWrapper, VectorShapingWrapper]):
    """The wrapper of one method: `make_shaping` with a signature and a docstring.

    Args:
        method: The method's name in `METHODS`.
        described: A function with the signature and the docstring.
    """

    def __init__(
        self, method: str, described: Callable[Concatenate[Any, Settings], object]
    ) -> None:
        self.method = METHODS[method]
        super().__init__(described, self._wrap, self._wrap)
        WRAPPERS[self.__name__] = self
        WRAPPER_NAMES[self.method.make_shaper] = self.__name__

    def _wrap(self, env: Any, *args: Any, **kwargs: Any) -> Any:
        if self.method.needs_critic and not args:
            kwargs.setdefault("critic", None)  # refused below, with the way out
        given = self.__signature__.bind(env, *args, **kwargs).arguments
        return make_shaping(self.method.name, **given)

    def _signature(self, described: Callable[..., object]) -> inspect.Signature:
        """Write out `**settings`, with the defaults of the shaper and of its wrapper."""
        signature = super()._signature(described)
        *named, last = signature.parameters.values()  # the last is **settings
        defaults = {
            "gamma": None,
            **constructor_settings(ComposesShaper),
            **constructor_settings(self.method.make_shaper),
        }
        for kind in _chain(_settings_of(described)):
            hints = get_type_hints(kind)
            named += [
                inspect.Parameter(name, last.KEYWORD_ONLY, default=defaults[name], annotation=hint)
                for name, hint in hints.items()
                if name not in _extended(kind)
            ]
        return signature.replace(parameters=named)

    def _documentation(self, described: Callable[..., object]) -> str:
        """Append the arguments of `**settings` to those of the docstring."""
        before, rest = super()._documentation(described).split("\n\nExample:")
        shared = [_arguments(kind) for kind in _chain(_settings_of(described))]
        return "\n".join([before, *shared]) + "\n\nExample:" + rest

    def __instancecheck__(self, instance: object) -> bool:
        return (
            isinstance(instance, ShapingWrapper | VectorShapingWrapper)
            and instance.method.make_shaper is self.method.make_shaper
        )

    @property
    def _to_subclass(self) -> str:
        return (
            f"Subclass adops_wrappers.ShapingWrapper for an Env, or VectorShapingWrapper for a "
            f"VectorEnv, whose constructors take {self.method.name!r} as the method."
        )


def wrapper_of(
    method: str,
) -> Callable[[Callable[Concatenate[Any, Settings], None]], MethodWrapper[Settings]]:
    """Make a function the wrapper of a declared method, by the function's name.

    Its arguments after `env` are settings of the shaper, or of the wrapper that the shaper goes
    into; `**settings` stands for those of a `TypedDict`. Type checkers and `help` read its
    signature and its docstring; its body is never run.
    """
    return lambda described: MethodWrapper(method, described)


def _settings_of(described: Callable[..., object]) -> Any:
    """Return the `TypedDict` of a function's `**settings`."""
    (kind,) = get_args(get_type_hints(described)["settings"])
    return kind


def _chain(kind: Any) -> Iterator[Any]:
    """Yield a `TypedDict`, the one that it extends, and so on."""
    while is_typeddict(kind):
        yield kind
        (kind,) = get_original_bases(kind)


def _extended(kind: Any) -> dict[str, Any]:
    """Return the settings that a `TypedDict` has from the one that it extends."""
    (base,) = get_original_bases(kind)
    return get_type_hints(base) if is_typeddict(base) else {}


def _arguments(kind: Any) -> str:
    """Return the lines about the arguments in a docstring."""
    return inspect.cleandoc(kind.__doc__).split("Args:\n")[1]
