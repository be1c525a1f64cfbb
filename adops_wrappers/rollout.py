"""F′ of whole rollouts, for learners that keep their own: arrays of shape (T, n) in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.backends import Backend, backend_of_rewards, cleared, namespace, times
from adops_wrappers.bootstrap import IntBootstrap, next_value_int
from adops_wrappers.methods import Method, as_method
from adops_wrappers.shaper import FloatArray, Shaper, Transition, saved_array
from adops_wrappers.wrappers.agents import settings_for_agent


class RolloutShaper(KeepsSettings):
    """Turns the bonuses F of one rollout after another into F′, as a wrapper would step by step.

    For learners whose rollouts are at hand, on whatever device: GAE follows as with any reward.
    NumPy arrays, or tensors of torch or JAX. Debts, ζ and all other state are carried from one
    rollout to the next. F′ is what the wrapper of the method gives, to the last bit in float64.

    Args:
        method: The name of a method, a `Method` or the class of a `Shaper`.
        num_envs: The number of environments, n.
        int_bootstrap: V_I(s′) at an episode's end, as in the wrappers.
        intrinsic_scale: F is multiplied by it before shaping.
        autoreset_mode: "SameStep" (also for envs that their user resets): row t + 1 holds the first
            observation of the next episode. "NextStep": it holds the last of this one, and the
            step after it is no transition.
        **settings: The method's own, and `gamma` for an agent with one critic.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import RolloutShaper
        >>> shape = RolloutShaper("pbim", num_envs=1, gamma=0.5)
        >>> no = np.zeros((2, 1), bool)
        >>> ends = np.array([[False], [True]])
        >>> shape(np.zeros((2, 1)), np.ones((2, 1)), terminated=no, truncated=no).tolist()
        [[1.0], [1.0]]
        >>> shape(np.zeros((2, 1)), np.ones((2, 1)), terminated=ends, truncated=no).tolist()
        [[1.0], [-14.0]]
    """

    state_depends_on = ("intrinsic_scale",)

    def __init__(
        self,
        method: str | Method | type[Shaper],
        num_envs: int,
        *,
        int_bootstrap: IntBootstrap | None = None,
        intrinsic_scale: float = 1.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        **settings: Any,
    ) -> None:
        self.method = as_method(method)
        agent = settings_for_agent(self.method, False, int_bootstrap, settings)
        self.shaper = self.method.make(num_envs, **agent.own)
        self.int_bootstrap = agent.int_bootstrap
        scale = _checks.non_negative("intrinsic_scale", intrinsic_scale)
        self.intrinsic_scale = self.method.intrinsic_scale * scale
        self._next_step = AutoresetMode(autoreset_mode) is AutoresetMode.NEXT_STEP
        if self._next_step and self.int_bootstrap == "reset":
            raise ValueError(
                "int_bootstrap='reset' needs the next episode's first observation at the step that "
                "ends an episode, which NEXT_STEP does not give. Choose 'final' or 'none'."
            )
        self._pending: Any = None
        self._backend: Backend | None = None

    def __call__(
        self,
        reward: Any,
        intrinsic: Any,
        *,
        terminated: Any,
        truncated: Any,
        values_ext: Any = None,
        values_int: Any = None,
        final_values_ext: Any = None,
        final_values_int: Any = None,
        advantages_ext: Any = None,
        potentials: Any = None,
        final_potentials: Any = None,
    ) -> FloatArray:
        """Return F′ of a rollout, with the shape and dtype of its rewards.

        Args:
            reward: R, of shape (T, n).
            intrinsic: F.
            terminated: Whether the episode ended by the task's own rules.
            truncated: Whether it was cut off.
            values_ext: V_E of each observation and of the one after the last step, of shape
                (T + 1, n); for methods that consult a critic.
            values_int: The same of V_I.
            final_values_ext: V_E of what a row saw last, of shape (T, n), read where an episode
                ended ("SameStep"). None: 0 where it terminated, and where it was cut off V_E of
                the observation before, as rsl_rl takes it.
            final_values_int: The same of V_I.
            advantages_ext: Q_E(s, a) − V_E(s), where the critic gives Q values.
            potentials: Φ(s, t) of each observation and of the one after, for PBRS.
            final_potentials: Φ of what a row saw last.
        """
        backend = backend_of_rewards(reward)
        if backend is not self._backend:
            self._backend = backend
            self.shaper.move_to(backend)
            if self._pending is not None:
                self._pending = backend.moved(self._pending)
        rollout = _Rollout(backend, tuple(reward.shape), self._next_step)
        rollout.require_columns(self.shaper.num_envs)
        self._require(values_ext=values_ext, values_int=values_int, potentials=potentials)
        ended = rollout.terminated, rollout.truncated = rollout.masks(terminated, truncated)
        rewards = rollout.floats("reward", reward)
        value_ext, next_ext, _ = rollout.pairs("values_ext", values_ext, final_values_ext)
        value_int, next_int, after = rollout.pairs("values_int", values_int, final_values_int)
        phi, next_phi = None, None
        if potentials is not None:
            phi, next_phi, _ = rollout.pairs("potentials", potentials, final_potentials)
        advantage_ext = advantages_ext
        if advantage_ext is not None:
            advantage_ext = rollout.floats("advantages_ext", advantage_ext)
        shaped = self.shaper.rollout(
            Transition(
                reward=rewards,
                intrinsic=times(self.intrinsic_scale, rollout.floats("intrinsic", intrinsic)),
                value_ext=value_ext,
                value_int=value_int,
                next_value_ext=next_ext,
                next_value_int=next_value_int(self.int_bootstrap, next_int, after, *ended),
                advantage_ext=advantage_ext,
                terminated=ended[0],
                truncated=ended[1],
                valid=self._valid(ended[0] | ended[1]),
                potential=phi,
                next_potential=next_phi,
            )
        )
        if not bool(namespace(shaped).isfinite(shaped).all()):
            raise ValueError(
                f"{self.shaper.describe()} emitted an F' that is not finite. Check R, F and the "
                "critic's values of this rollout; the debt of a long episode grows like "
                "gamma**-length."
            )
        return backend.for_users(reward, shaped)  # type: ignore[no-any-return]

    def _require(self, **given: Any) -> None:
        needed = ["values_ext", "values_int"] if self.method.needs_critic else []
        needed += ["potentials"] if self.method.needs_potential else []
        if missing := [name for name in needed if given[name] is None]:
            raise ValueError(
                f"{self.shaper.name} needs {' and '.join(missing)}, of shape (T + 1, n): of each "
                "observation, and of the one after the last step."
            )

    def _valid(self, ended: Any) -> Any:
        """Return where the steps were transitions, and keep what the next rollout begins with."""
        if not self._next_step:
            return ended | ~ended
        xp, pending, valid = namespace(ended), self._pending, []
        for row in ended:
            valid.append(row | ~row if pending is None else ~pending)
            pending = row & valid[-1]
        self._pending = pending
        return xp.stack(valid)

    def reset(self, mask: Any = None) -> None:
        """Forget the running episodes of the rows in `mask`, or of all: the user has reset them."""
        if mask is not None and self._backend is not None:
            mask = self._backend.masks(mask)
        self.shaper.reset(mask)
        if self._pending is not None:
            self._pending = cleared(self._pending, mask, False)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        pending = None if self._pending is None else saved_array(self._pending)
        return {
            **self.settings_state(),
            "method": self.method.name,
            "shaper": self.shaper.state_dict(),
            "pending_reset": pending,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        if state["method"] != self.method.name:
            raise ValueError(
                f"Cannot load the state of {state['method']!r} into a RolloutShaper of "
                f"{self.method.name!r}."
            )
        self.require_settings_of(state)
        self.shaper.load_state_dict(state["shaper"])
        self._pending, self._backend = state["pending_reset"], None


class _Rollout:
    """The arrays of one rollout: where they are, how large, and what follows what."""

    terminated: Any
    truncated: Any

    def __init__(self, backend: Backend, shape: tuple[int, ...], next_step: bool) -> None:
        self.backend, self.shape, self.next_step = backend, shape, next_step

    def require_columns(self, num_envs: int) -> None:
        if len(self.shape) != 2 or self.shape[1] != num_envs or self.shape[0] == 0:
            raise ValueError(
                f"The rewards of a rollout must have shape (T, {num_envs}), one row for each step; "
                f"got {self.shape}."
            )

    def floats(self, what: str, values: Any, more: int = 0) -> Any:
        """Return values as float64, with a row for each step and `more`."""
        array = self.backend.floats(what, values)
        expected = (self.shape[0] + more, self.shape[1])
        if tuple(array.shape) != expected:
            raise ValueError(f"{what} must have shape {expected}, got {tuple(array.shape)}.")
        return array

    def masks(self, terminated: Any, truncated: Any) -> tuple[Any, Any]:
        both = self.backend.masks(terminated), self.backend.masks(truncated)
        for name, mask in zip(("terminated", "truncated"), both, strict=True):
            if tuple(mask.shape) != self.shape:
                raise ValueError(f"{name} must have shape {self.shape}, got {tuple(mask.shape)}.")
        return both

    def pairs(self, name: str, values: Any, final: Any) -> tuple[Any, Any, Any]:
        """Return the values of s, of s′ before any reset, and of the observation that came next."""
        if values is None:
            zeros = self.backend.moved(np.zeros(self.shape))
            return zeros, zeros, zeros
        values = self.floats(name, values, more=1)
        now, after = values[:-1], values[1:]
        if self.next_step:
            return now, after, after
        where = namespace(now).where
        if final is None:
            last = where(self.truncated & ~self.terminated, now, 0.0)
        else:
            last = self.floats(f"final_{name}", final)
        return now, where(self.terminated | self.truncated, last, after), after
