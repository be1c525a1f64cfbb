"""The one door between an agent and the env stack: the agent registers, the wrappers look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adops_wrappers.arrays import FloatArray, copy_observation, same_observation, to_float64
from adops_wrappers.episodes import EnvLayout
from adops_wrappers.shaping.base import Transition


class ValueEstimates(NamedTuple):
    """What a critic says of n observations: float64 arrays of length n."""

    value_ext: FloatArray
    """V_E, the value of the extrinsic stream."""
    value_int: FloatArray
    """V_I, the value of the shaped intrinsic stream F′."""
    q_ext: FloatArray | None = None
    """Q_E of shape (n, actions), where the critic has it."""


class CriticHandle:
    """Hands an agent's value estimates to the shaping wrappers, one network pass per observation.

    Make the handle first, wrap the env with it, then `register` the agent's function, which
    takes an observation as the env gives it (one, or a batch of n) and returns an object with
    `.value_ext` and `.value_int` (optionally `.q_ext`), or a tuple `(v_ext, v_int[, q_ext])`,
    of numpy arrays or torch tensors. `handle(obs)` returns that very object, logits included:
    if a wrapper has already looked at this observation, without another network pass.

    Call `updated()` after each phase of optimisation.

    Args:
        fn: The agent's function, if it is known already.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import CriticHandle
        >>> critic = CriticHandle()
        >>> critic.register(lambda obs: (obs.sum(-1), np.zeros(len(obs))))
        >>> critic.estimate(np.ones((2, 3)), num_envs=2).value_ext
        array([3., 3.])
    """

    remembers = True
    """False for a bare callable: nobody says when its parameters change."""

    def __init__(self, fn: Callable[[Any], Any] | None = None) -> None:
        self._fn: Callable[[Any], Any] | None = None
        self._seen: Any = None
        self._answer: Any = None
        self._has_answer = False
        self.version = 0
        """Grows with every `register` and `updated`."""
        if fn is not None:
            self.register(fn)

    def register(self, fn: Callable[[Any], Any]) -> None:
        """Bind the agent's function; a later call replaces an earlier one."""
        if not callable(fn):
            raise TypeError(
                f"CriticHandle.register takes a function of an observation, got {fn!r} of type "
                f"{type(fn).__name__}."
            )
        self._fn = fn
        self.updated()

    def updated(self) -> None:
        """Say that the agent's parameters have changed: forget every earlier estimate."""
        self.version += 1
        self._seen = self._answer = None
        self._has_answer = False

    def __call__(self, obs: Any) -> Any:
        """Return the agent's own output for `obs`, from memory if it is the last one seen."""
        if not (self._has_answer and same_observation(self._seen, obs)):
            answer = self.evaluate(obs)
            if not self.remembers:
                return answer
            # A copy: envs with copy=False write the next observation into the same array.
            self._seen, self._answer, self._has_answer = copy_observation(obs), answer, True
        return self._answer

    def attach(
        self, layout: EnvLayout, discounts: tuple[float, float] | None, int_bootstrap: str
    ) -> None:
        """Hear from a wrapper that is going to consult this critic what its streams are.

        A critic that learns by itself takes γ_E, γ_I and the rule at episode ends from here.
        """

    @property
    def observe(self) -> Callable[[Transition], None] | None:
        """The function's own `observe(transition)`, if it learns from what the wrapper sees."""
        return getattr(self._fn, "observe", None)

    def wraps(self, fn: Any) -> bool:
        """Whether `fn` is the registered function itself."""
        return self._fn is not None and fn is self._fn

    def evaluate(self, obs: Any) -> Any:
        """Run the agent's function on `obs`, whatever was seen before."""
        if self._fn is None:
            raise RuntimeError(
                "No agent is registered with this CriticHandle. Call critic.register(fn) with "
                "fn(obs) -> (value_ext, value_int) before stepping the env."
            )
        return self._fn(obs)

    def estimate(self, obs: Any, num_envs: int) -> ValueEstimates:
        """Return the checked estimates for `obs`, a batch of `num_envs` (1 for a single env)."""
        return value_estimates(self(obs), num_envs)


class _BareCritic(CriticHandle):
    remembers = False


def as_handle(critic: Any) -> CriticHandle:
    """Return `critic` as a handle; a bare callable is evaluated afresh each time."""
    if isinstance(critic, CriticHandle):
        return critic
    if critic is None:
        raise TypeError(
            "This method consults a critic, and critic=None was given. Pass a CriticHandle() and "
            "register the agent with it, or a function obs -> (value_ext, value_int)."
        )
    if not callable(critic):
        raise TypeError(
            f"critic must be a CriticHandle or a function obs -> (value_ext, value_int), got "
            f"{critic!r} of type {type(critic).__name__}."
        )
    return _BareCritic(critic)


def value_estimates(answer: Any, num_envs: int) -> ValueEstimates:
    """Convert and check what a critic returned for `num_envs` observations."""
    q_ext = None
    if hasattr(answer, "value_ext") and hasattr(answer, "value_int"):
        value_ext, value_int = answer.value_ext, answer.value_int
        q_ext = getattr(answer, "q_ext", None)
    elif isinstance(answer, tuple | list) and len(answer) in (2, 3):
        value_ext, value_int = answer[:2]
        q_ext = answer[2] if len(answer) == 3 else None
    else:
        raise TypeError(
            "The critic must return an object with .value_ext and .value_int, or a tuple "
            f"(value_ext, value_int[, q_ext]); it returned {_summary(answer)}."
        )
    return ValueEstimates(
        _values("value_ext", value_ext, num_envs),
        _values("value_int", value_int, num_envs),
        None if q_ext is None else _q_values(q_ext, num_envs),
    )


def _values(name: str, values: Any, num_envs: int) -> FloatArray:
    array = to_float64(values)
    if array.size != num_envs or array.shape not in ((), (1,), (num_envs,), (num_envs, 1)):
        raise ValueError(
            f"The critic's {name} must hold one value for each of {num_envs} observations, of "
            f"shape ({num_envs},) or ({num_envs}, 1); got shape {array.shape}."
        )
    return _finite(name, array.reshape(num_envs))


def _q_values(values: Any, num_envs: int) -> FloatArray:
    array = to_float64(values)
    if array.ndim == 1 and num_envs == 1:
        array = array[None]
    if array.ndim != 2 or len(array) != num_envs:
        raise ValueError(
            f"The critic's q_ext must have shape ({num_envs}, number of actions); got shape "
            f"{array.shape}."
        )
    return _finite("q_ext", array)


def _finite(name: str, array: FloatArray) -> FloatArray:
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(
            f"The critic's {name} is not finite for environment {row}: {array[row]}. Check the "
            "agent for diverged weights or unscaled inputs."
        )
    return array


def _summary(answer: Any) -> str:
    if isinstance(answer, tuple | list):
        return f"a {type(answer).__name__} of {len(answer)}"
    return f"a {type(answer).__name__}"
