"""What the package knows about each method: one declaration, which everything reads.

A method is declared next to its shaper. The wrappers, `make_shaping`, the audit, the reshaping of
recordings and the training scripts read the declaration, and mention no method by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from adops_wrappers.shaper import Shaper, constructor_settings

REQUIRED = inspect.Parameter.empty
"""Stands in `Method.settings` for the default of a setting that has none."""


@dataclass(frozen=True, eq=False)
class Method:
    """One shaping method under one name."""

    name: str
    """What `make_shaping`, `audit` and `--shaping` take."""
    label: str
    """What tables and figures print."""
    shaper: type[Shaper]
    """The maths. Each setting of its constructor is also an attribute."""
    build: Callable[..., Shaper] | None = None
    """Builds the shaper instead of its constructor, where a setting decides on the class."""
    presets: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the name stands for."""
    intrinsic_scale: float = 1.0
    """The factor on F that the name stands for, on top of the user's `intrinsic_scale`."""
    inactive: tuple[str, ...] = ()
    """Settings of the shaper that change nothing under this name."""
    schedule: tuple[str, ...] = ()
    """Settings that only move a factor ζ (or β) on F or its correction during training. The
    shaper then has `hold(zeta)`, for an audit."""
    needs_critic: bool = False
    """Whether it acts on V_E and V_I of every step."""
    needs_potential: bool = False
    """Whether it acts on Φ(s, t)."""
    needs_knowledge: bool = False
    """Whether its F is no bonus but φ(h), a measure of all knowledge so far."""
    does_without_bonus: bool = False
    """Whether it works where nothing below writes an F."""
    clamps: bool = False
    """Whether it keeps the sign of the total advantage, with a clamp's own c_E and c_I."""
    remembers_episode: bool = False
    """Whether F′ depends on the episode so far."""
    one_process_only: bool = False
    """Whether it learns from all envs together, so that they cannot be split over processes."""

    def __post_init__(self) -> None:
        taken = constructor_settings(self.make_shaper)
        for name in (*self.presets, *self.inactive, *self.schedule):
            if name not in taken:
                raise ValueError(
                    f"The declaration of {self.name!r} names the setting {name!r}, which "
                    f"{self.shaper.__name__} does not take: it takes {', '.join(taken) or 'none'}."
                )
        if self.schedule and not hasattr(self.shaper, "hold"):
            raise TypeError(
                f"The declaration of {self.name!r} names a schedule, so an audit must be able to "
                f"stop it: give {self.shaper.__name__} a method hold(zeta)."
            )

    @property
    def make_shaper(self) -> Callable[..., Shaper]:
        """What builds the shaper."""
        return self.build or self.shaper

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it reads, with their defaults; `REQUIRED` where there is none."""
        taken = constructor_settings(self.make_shaper)
        silent = {*self.presets, *self.inactive}
        return {name: default for name, default in taken.items() if name not in silent}

    @property
    def settles_debt(self) -> bool:
        """Whether an episode's end pays back what was given; nothing bootstraps over it then."""
        return self.shaper.settles_debt

    @property
    def offered_in_training(self) -> bool:
        """Whether a training script can build it: it shapes the bonus of that script."""
        return not (self.does_without_bonus or self.needs_knowledge)

    def make(self, num_envs: int = 1, **settings: Any) -> Shaper:
        """Build the shaper; a setting given here overrides the preset of that name."""
        shaper = self.make_shaper(num_envs, **{**self.presets, **settings})
        shaper.built_as = self.name
        return shaper

    def fits(self, shaper: Shaper) -> bool:
        """Whether this declaration describes `shaper`."""
        return type(shaper) is self.shaper and all(
            getattr(shaper, name) == value for name, value in self.presets.items()
        )


METHODS: dict[str, Method] = {}
"""All methods by name, in the order of their declaration."""
ALIASES = {"raw": "none"}
WRAPPER_NAMES: dict[Callable[..., Shaper], str] = {}
"""The name of the wrapper that users type, by what builds the shaper."""


def declare(method: Method) -> Method:
    """Make a method known by its name, to `make_shaping`, `audit` and `reshape` alike.

    Raises:
        ValueError: The name is taken by another shaper.
    """
    taken = METHODS.get(method.name)
    # The same class again: a notebook's cell was run a second time.
    if method.name in ALIASES or (taken and _path(taken.shaper) != _path(method.shaper)):
        raise ValueError(f"There is already a shaping method {method.name!r}: choose another name.")
    METHODS[method.name] = method
    return method


def find_method(name: Any, also: str = "") -> Method:
    """Return the method called `name`.

    Args:
        name: One of `METHODS`, or an alias.
        also: What else the caller takes, for the error.

    Raises:
        ValueError: There is none; the nearest name is suggested.
    """
    method = METHODS.get(ALIASES.get(name, name)) if isinstance(name, str) else None
    if method is None:
        nearest = get_close_matches(str(name).lower(), [*METHODS, *ALIASES], n=1, cutoff=0.0)
        raise ValueError(
            f"There is no shaping method {name!r}. Did you mean {nearest[0]!r}? The names are: "
            f"{', '.join(METHODS)}{also}."
        )
    return method


def as_method(method: str | Method | type[Shaper]) -> Method:
    """Return what a name, a declaration or the class of a shaper stands for."""
    if isinstance(method, Method):
        return method
    if isinstance(method, type) and issubclass(method, Shaper):
        return Method(method.name, method.name, method)
    return find_method(method)


def trainable_methods() -> tuple[str, ...]:
    """Return the names that a training script takes."""
    return tuple(name for name, method in METHODS.items() if method.offered_in_training)


def methods_with(*settings: str) -> tuple[str, ...]:
    """Return the names of the methods that have one of these settings."""
    return tuple(name for name in METHODS if METHODS[name].settings.keys() & set(settings))


def method_of(shaper: Shaper) -> Method | None:
    """Return the declaration of a shaper; where several fit, the one it was built by."""
    fitting = [method for method in METHODS.values() if method.fits(shaper)]
    # Most presets first: a normalised GRM fits `grm` too, which has none.
    return max(
        fitting,
        key=lambda method: (
            len(method.presets),
            method.name == shaper.built_as,
            method.intrinsic_scale == 1.0,
        ),
        default=None,
    )


def _path(kind: type[Shaper]) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
