"""What every shaping method is: a streaming function from one `Transition` to F′."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers import _checks

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class Transition(NamedTuple):
    """One step of n environments, or with a leading time axis a rollout of shape (T, n).

    A row with `valid=False` is the dummy step on which a vector env resets itself: it is no
    transition, and no method emits anything for it or lets it move its state.
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
    truncated: BoolArray
    valid: BoolArray
    potential: FloatArray | None = None
    """Φ(s, t), for potential-based shaping."""
    next_potential: FloatArray | None = None
    """Φ(s′, t + 1)."""
    shaped: FloatArray | None = None
    """F′; this and the fields below are set for a critic's `observe` only."""
    observation: Any = None
    action: Any = None
    next_observation: Any = None
    """The true next observation, also where the env has already reset itself."""


class Shaper(ABC):
    """Turns F into F′ for `num_envs` environments side by side, one step at a time.

    A subclass keeps float64 state per environment, clears the rows whose episode ends by
    itself, and never looks at an environment: what it may know is in the `Transition`.
    """

    name: ClassVar[str]
    settles_debt: ClassVar[bool] = False
    """True if an episode's end, truncation included, pays back what was given before. The
    learner's intrinsic return must then not bootstrap over that end."""

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = _checks.whole("num_envs", num_envs, least=1)
        self.frozen = False
        """While True, what is learned across episodes (F̄, ζ's counter) stands still."""

    @property
    def zeta(self) -> float:
        """ζ, the weight of the method's scheduled part; 1 where there is no schedule."""
        return 1.0

    @property
    def discounts(self) -> tuple[float, float] | None:
        """γ_E and γ_I of the two streams, where the method knows both."""
        return None

    def reset(self, mask: BoolArray | None = None) -> None:  # noqa: B027
        """Forget the running episodes of the rows in `mask`, or of all rows."""

    @abstractmethod
    def step(self, transition: Transition) -> FloatArray:
        """Return F′ for one step of all environments: shape (n,), zero where not valid."""

    def rollout(self, transitions: Transition) -> FloatArray:
        """Return F′ for a recorded rollout: every field has shape (T, n), and so has the result."""
        shaped = np.empty(transitions.reward.shape, dtype=np.float64)
        for t in range(len(shaped)):
            fields: list[Any] = [None if field is None else field[t] for field in transitions]
            shaped[t] = self.step(Transition(*fields))
        return shaped

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Take over what `state_dict` returned."""

    def describe(self) -> str:
        """Name the method and its discounts, for messages."""
        return self.name


def restore_array(name: str, saved: Any, current: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of `saved` with the dtype of `current`, or raise if the shapes differ."""
    array = np.array(saved, dtype=current.dtype)
    if array.shape != current.shape:
        raise ValueError(
            f"Cannot load {name}: the saved shape is {array.shape}, this wrapper needs "
            f"{current.shape}. Build it with the num_envs and settings of the saved one."
        )
    return array
