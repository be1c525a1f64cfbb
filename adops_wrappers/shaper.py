"""What every shaping method is: a streaming function from one `Transition` to F′."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.backends import HOST, Backend, backend_of, namespace

if TYPE_CHECKING:
    from typing_extensions import Self

FloatArray = npt.NDArray[np.float64]
"""Float64 in NumPy; a tensor where the env's rewards are tensors, which has the same operators."""
BoolArray = npt.NDArray[np.bool_]

_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Transition(NamedTuple):
    """One step of n environments, or with a leading time axis a rollout of shape (T, n).

    A row with `valid=False` is the dummy step on which a vector env resets itself: it is not a
    transition, no method emits anything for it, and it changes no state.
    """

    reward: FloatArray
    """R, the extrinsic reward."""
    intrinsic: FloatArray
    """F, already multiplied by `intrinsic_scale`."""
    value_ext: FloatArray
    """V_E(s); zeros where no critic is consulted, as for the three fields below."""
    value_int: FloatArray
    """V_I(s)."""
    next_value_ext: FloatArray
    """V_E(s′) of the true next observation; methods mask it where `terminated`."""
    next_value_int: FloatArray
    """V_I(s′), at an episode end as `int_bootstrap` says."""
    advantage_ext: FloatArray | None
    """Q_E(s, a) − V_E(s) where the critic gives Q values, else None."""
    terminated: BoolArray
    """Whether the episode ended by the task's own rules."""
    truncated: BoolArray
    """Whether it was cut off, by a time limit for instance."""
    valid: BoolArray
    """False on dummy reset steps."""
    potential: FloatArray | None = None
    """Φ(s, t), for potential-based shaping."""
    next_potential: FloatArray | None = None
    """Φ(s′, t + 1)."""
    shaped: FloatArray | None = None
    """F′; this and the fields below are set for observers only."""
    observation: Any = None
    """The observation before the action."""
    action: Any = None
    """The action that was taken."""
    next_observation: Any = None
    """The true next observation, also where the env has already reset itself."""
    raw_intrinsic: FloatArray | None = None
    """F as the source gave it, before `intrinsic_scale` and any shaping wrapper below."""


class Shaper(KeepsSettings, ABC):
    """Turns F into F′ for `num_envs` environments side by side, one step at a time.

    A subclass keeps float64 state per environment, clears the rows whose episode ends, and
    never looks at an environment: all it may know is in the `Transition`. Where the rewards are
    tensors, so are the transition's fields and the state: use operators and functions of
    `backends.namespace`, and write into no array. A method that cannot sets `numpy_only`.
    """

    name: ClassVar[str]
    settles_debt: ClassVar[bool] = False
    """True if an episode's end, truncation included, pays back what was given before. The
    learner's intrinsic return must then not bootstrap over that end."""
    zeta_symbol: ClassVar[str] = "ζ"
    """What `zeta` is called."""
    row_state: ClassVar[tuple[str, ...]] = ()
    """The attributes that are arrays of state, which are moved to where the rewards are."""
    keeps_state: ClassVar[bool] = True
    """False if F′ of a step depends on this step alone: a rollout is then shaped at once."""
    numpy_only: ClassVar[bool] = False
    """True if the method needs NumPy, and cannot shape rewards that are tensors."""
    described: ClassVar[tuple[str, ...]] = ()
    """The settings that identify the method in a message, such as its discounts."""

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = _checks.whole("num_envs", num_envs, least=1)
        self.frozen = False
        """While True, what is learned across episodes (F̄, ζ's counter) does not change."""
        self.built_as: str | None = None
        """The name of the method as which it was built, if it was built by name."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that build this shaper again: each is an attribute of that name."""
        names = constructor_settings(type(self))
        missing = [name for name in names if not hasattr(self, name)]
        if missing:
            raise AttributeError(
                f"{type(self).__name__} takes {missing[0]!r} but does not keep it. A recording "
                f"needs every setting as an attribute of the same name: self.{missing[0]} = …"
            )
        return {name: getattr(self, name) for name in names}

    @property
    def zeta(self) -> float:
        """ζ, the weight of the method's scheduled part; 1 where there is no schedule."""
        return 1.0

    @property
    def discounts(self) -> tuple[float, float] | None:
        """γ_E and γ_I of the two streams, where the method knows both."""
        return None

    def move_to(self, backend: Backend) -> None:
        """Keep the state where the rewards are from now on."""
        for name in self.row_state:
            setattr(self, name, backend.moved(getattr(self, name)))

    def reset(self, mask: BoolArray | None = None) -> None:
        """Forget the running episodes of the rows in `mask`, or of all rows."""

    @abstractmethod
    def step(self, transition: Transition) -> FloatArray:
        """Return F′ for one step of all environments: shape (n,), zero where not valid."""

    def frozen_view(self, rows: int) -> Self:
        """Return a frozen copy for a batch of `rows` transitions that are not in their order.

        It has the schedule of this moment (ζ, β), and stepping it moves nothing here. A method
        that keeps arrays with one entry per environment gives the view arrays of its own.
        """
        view = object.__new__(type(self))  # `copy` does the same in several times the time
        vars(view).update(vars(self), num_envs=rows, frozen=True)
        return view

    def rollout(self, transitions: Transition) -> FloatArray:
        """Return F′ for a rollout: every field has shape (T, n), and so has the result."""
        if not self.keeps_state:
            return self.step(transitions)
        shaped = []
        for t in range(len(transitions.reward)):
            fields: list[Any] = [None if field is None else field[t] for field in transitions]
            shaped.append(self.step(Transition(*fields)))
        if not shaped:
            return transitions.reward
        stacked: FloatArray = namespace(shaped[0]).stack(shaped)
        return stacked

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs, and the settings behind them."""
        return self.settings_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()` that was saved under the same settings."""
        self.require_settings_of(state)

    def load_learned(self, state: dict[str, Any]) -> None:
        """Restore the part of a `state_dict()` learned across episodes, for any number of rows."""
        self.require_settings_of(state)

    def describe(self) -> str:
        """Name the method with its `described` settings, for messages."""
        settings = ", ".join(f"{name}={getattr(self, name)}" for name in self.described)
        return f"{self.name} ({settings})" if settings else self.name


def constructor_settings(make: Callable[..., Any]) -> dict[str, Any]:
    """Return the settings that a class or function takes, with their defaults.

    A constructor that passes on `**settings` has those of its base class too.
    """
    settings: dict[str, Any] = {}
    for owner in inspect.getmro(make) if isinstance(make, type) else (make,):
        if isinstance(make, type) and "__init__" not in vars(owner):
            continue
        parameters = inspect.signature(owner).parameters.values()
        for parameter in parameters:
            if parameter.name != "num_envs" and parameter.kind not in _STARRED:
                settings.setdefault(parameter.name, parameter.default)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return settings


def saved_array(array: Any) -> npt.NDArray[Any]:
    """Return a copy of an array of state for a `state_dict`: in NumPy, wherever it is now."""
    return array.copy() if type(array) is np.ndarray else np.array(HOST.moved(array))


def restore_array(name: str, saved: Any, current: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of `saved` like `current`, or raise if the shapes differ."""
    backend = backend_of(current)
    array = np.array(HOST.moved(saved))
    if array.shape != tuple(current.shape):
        raise ValueError(
            f"Cannot load {name}: the saved shape is {array.shape}, this wrapper needs "
            f"{tuple(current.shape)}. Build it with the num_envs and settings of the saved one."
        )
    if backend is HOST:
        return array.astype(current.dtype)
    moved: npt.NDArray[Any] = backend.moved(array)
    return moved
