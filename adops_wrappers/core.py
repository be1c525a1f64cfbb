"""One transition's way from an env to F′: the rules that single and vector wrappers share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from multiprocessing import current_process
from typing import Any, Literal, NamedTuple, Protocol, get_args

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray, copy_observation, to_float64, to_numpy
from adops_wrappers.critic import CriticHandle, as_handle, value_estimates
from adops_wrappers.episodes import EnvLayout, EpisodeTracker
from adops_wrappers.shaping.base import Shaper, Transition

IntBootstrap = Literal["final", "reset", "none"]
Potential = Callable[[Any, Any], Any]

LARGE_REWARD = 1e8
"""Beyond this a float32 learner no longer sees an extrinsic reward of order 1 beside F′."""


class Estimates(NamedTuple):
    """What is known of a batch of states."""

    value_ext: FloatArray
    value_int: FloatArray
    q_ext: FloatArray | None
    potential: FloatArray | None


class Outcome(NamedTuple):
    """What a wrapper writes into `info` and the reward."""

    shaped: FloatArray
    valid: BoolArray
    final_values: tuple[FloatArray, FloatArray] | None
    """V_E and V_I of the final observations, zero in rows that did not end (SAME_STEP)."""


class Listener(Protocol):
    """Is told all that the core sees, for a recorder above."""

    def reset(self, mask: BoolArray | None) -> None:
        """New episodes begin in the rows of `mask`, or in all."""

    def record(self, transition: Transition) -> None:
        """Take in one step, with `shaped` and `action` set; the arrays are the core's own."""


class ShapingCore:
    """Assembles the `Transition` of each step, hands it to the shaper and checks what comes back.

    It alone knows about autoreset, masks, the true next observation and the critic.

    Args:
        shaper: The method.
        layout: The env's number of rows, spaces and autoreset mode.
        consults_critic: Whether the method needs V(s) and V(s′) at every step.
        critic: A `CriticHandle` or a callable. A method that does not consult it still reports
            the critic's values of final observations, which the learner needs at truncation.
        potential: Φ(obs, t), for potential-based shaping.
        int_bootstrap: V_I(s′) at an episode end.
        intrinsic_scale: F is multiplied by it before shaping.
    """

    def __init__(
        self,
        shaper: Shaper,
        layout: EnvLayout,
        *,
        consults_critic: bool = False,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
        potential: Potential | None = None,
        int_bootstrap: IntBootstrap = "final",
        intrinsic_scale: float = 1.0,
    ) -> None:
        self.shaper = shaper
        self.layout = layout
        self.episodes = EpisodeTracker(layout)
        self.consults_critic = consults_critic
        self.critic = as_handle(critic) if consults_critic or critic is not None else None
        self.potential = potential
        self.int_bootstrap = _checked_bootstrap(int_bootstrap, layout)
        self.intrinsic_scale = _checks.non_negative("intrinsic_scale", intrinsic_scale)
        self._zeros = np.zeros(layout.num_envs)
        self._now: Estimates | None = None
        self._seen_version = -1
        self._observation: Any = None
        self._warned_large = False
        self.listener: Listener | None = None
        if consults_critic and self.critic is not None:
            self.critic.attach(layout, shaper.discounts, self.int_bootstrap)

    def consult(
        self,
        critic: CriticHandle | Callable[[Any], Any] | None,
        *,
        int_bootstrap: IntBootstrap | None = None,
        potential: Potential | None = None,
    ) -> None:
        """Put values and potentials into every `Transition`, though the method needs none.

        F′ stays what it is: a method that asks for them has its own, which are kept.
        """
        if self.consults_critic:
            if critic is not None and not self._has_critic(critic):
                raise ValueError(
                    f"{self.shaper.name} below consults another critic than the one given here, so "
                    "the recorded values would not be those that it acted on. Give the same one, "
                    "or none."
                )
            if int_bootstrap not in (None, self.int_bootstrap):
                raise ValueError(
                    f"{self.shaper.name} below runs with int_bootstrap={self.int_bootstrap!r}, not "
                    f"{int_bootstrap!r}. Leave it out here: the method's own is recorded."
                )
        elif critic is not None:
            self.critic, self.consults_critic = as_handle(critic), True
            if int_bootstrap is not None:
                self.int_bootstrap = _checked_bootstrap(int_bootstrap, self.layout)
            self.critic.attach(self.layout, self.shaper.discounts, self.int_bootstrap)
        if self.potential is None:
            self.potential = potential
        self._now = None

    def _has_critic(self, critic: Any) -> bool:
        return self.critic is not None and (critic is self.critic or self.critic.wraps(critic))

    def reset(self, obs: Any, mask: BoolArray | None) -> None:
        """Start new episodes in the rows of `mask`, or in all."""
        # Raised here and not at construction: AsyncVectorEnv passes on what a reset raises.
        if self.critic is not None and current_process().name.startswith("Worker<"):
            raise RuntimeError(
                f"{self.shaper.name} with a critic runs inside an AsyncVectorEnv worker, "
                "where the agent's critic is a copy that never learns. Wrap the vector env "
                "instead: adops_wrappers.vector has the twin of this wrapper under the same name."
            )
        self.episodes.reset(obs, mask)
        self.shaper.reset(mask)
        self._now = None
        if self.listener is not None:
            self.listener.reset(mask)

    def before_step(self) -> None:
        """Look at s, while the env has not yet overwritten it."""
        self.episodes.require_reset_done()
        obs = self.episodes.last_obs
        if self._now is None or self._outdated():
            self._now = self._estimate(obs, self.episodes.elapsed)
        if self._observer() is not None:
            self._observation = copy_observation(obs)

    def after_step(
        self,
        action: Any,
        obs: Any,
        reward: FloatArray,
        intrinsic: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> Outcome:
        """Return F′ for the step that has just been made."""
        assert self._now is not None
        now, steps_before = self._now, self.episodes.elapsed
        ended = terminated | truncated
        valid = self.episodes.advance(obs, ended)
        self._check_intrinsic(intrinsic, valid, steps_before)
        # What stands in `obs` is s′, save in rows that have already been reset (SAME_STEP).
        after = self._estimate(obs, self.episodes.elapsed)
        next_values, final_values = after, None
        if self.episodes.same_step and self._looks_at_states() and ended.any():
            final = self._estimate_rows(
                self.episodes.final_observations(info, ended), steps_before[ended] + 1
            )
            next_values = self._with_final_rows(after, final, ended)
            if self.critic is not None:
                final_values = (self._zeros.copy(), self._zeros.copy())
                final_values[0][ended], final_values[1][ended] = final.value_ext, final.value_int
        next_value_int = next_values.value_int
        if self.int_bootstrap == "none":
            next_value_int = np.where(terminated, 0.0, next_value_int)
        transition = Transition(
            reward=reward,
            intrinsic=self.intrinsic_scale * intrinsic,
            value_ext=now.value_ext,
            value_int=now.value_int,
            next_value_ext=next_values.value_ext,
            next_value_int=next_value_int,
            advantage_ext=self._advantage(now, action, valid),
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            potential=now.potential,
            next_potential=next_values.potential,
        )
        shaped = self.shaper.step(transition)
        self._check_size(shaped, steps_before)
        self._now = after
        if self.listener is not None:
            self.listener.record(transition._replace(shaped=shaped, action=action))
        observe = self._observer()
        if observe is not None:
            next_observation = self.episodes.true_next_observations(obs, info, ended)
            observe(
                transition._replace(
                    shaped=shaped,
                    observation=self._observation,
                    action=action,
                    next_observation=copy_observation(next_observation),
                )
            )
        return Outcome(shaped, valid, final_values)

    def forget_episodes(self) -> None:
        """After an error: only a full reset makes the state of all rows consistent again."""
        self.episodes.last_obs = None
        self._now = None

    def _outdated(self) -> bool:
        return (
            self.consults_critic
            and self.critic is not None
            and (not self.critic.remembers or self.critic.version != self._seen_version)
        )

    def _observer(self) -> Callable[[Transition], None] | None:
        return self.critic.observe if self.consults_critic and self.critic else None

    def _looks_at_states(self) -> bool:
        return self.critic is not None or self.potential is not None

    def _estimate(self, obs: Any, elapsed: Any) -> Estimates:
        """Estimate all rows, through the handle's memory."""
        value_ext = value_int = self._zeros
        q_ext = None
        if self.consults_critic and self.critic is not None:
            self._seen_version = self.critic.version
            value_ext, value_int, q_ext = self.critic.estimate(obs, self.layout.num_envs)
        return Estimates(value_ext, value_int, q_ext, self._potential(obs, elapsed))

    def _estimate_rows(self, obs: Any, elapsed: Any) -> Estimates:
        """Estimate some rows alone, past the handle's memory, which keeps the full batch."""
        rows = len(elapsed)
        value_ext = value_int = np.zeros(rows)
        q_ext = None
        if self.critic is not None:
            value_ext, value_int, q_ext = value_estimates(self.critic.evaluate(obs), rows)
        return Estimates(value_ext, value_int, q_ext, self._potential(obs, elapsed))

    def _potential(self, obs: Any, elapsed: Any) -> FloatArray | None:
        if self.potential is None:
            return None
        time = elapsed.copy() if self.layout.batched else int(elapsed[0])
        values = to_float64(self.potential(obs, time))
        rows = len(elapsed)
        if values.size != rows:
            raise ValueError(
                f"potential(obs, t) must return one value for each of {rows} observations, got "
                f"shape {values.shape}."
            )
        if not np.isfinite(values).all():
            raise ValueError(f"potential(obs, t) must be finite, got {values}.")
        return values.reshape(rows)

    def _with_final_rows(self, after: Estimates, final: Estimates, ended: BoolArray) -> Estimates:
        value_ext, value_int = after.value_ext.copy(), after.value_int.copy()
        value_ext[ended] = final.value_ext
        if self.int_bootstrap != "reset":
            value_int[ended] = final.value_int
        potential = after.potential
        if potential is not None:
            potential = potential.copy()
            potential[ended] = final.potential
        return Estimates(value_ext, value_int, None, potential)

    def _advantage(self, now: Estimates, action: Any, valid: BoolArray) -> FloatArray | None:
        if now.q_ext is None:
            return None
        space = self.layout.action_space
        if not isinstance(space, gym.spaces.Discrete):
            raise TypeError(
                f"The critic returned q_ext, which is indexed by a Discrete action; this env has "
                f"{space}. Return (value_ext, value_int) alone."
            )
        column = to_numpy(action).reshape(self.layout.num_envs).astype(np.int64) - int(space.start)
        column = np.where(valid, column, 0)
        actions = now.q_ext.shape[1]
        if actions != space.n or not ((column >= 0) & (column < actions)).all():
            raise ValueError(
                f"The critic's q_ext has {actions} columns and the actions were {action}, but the "
                f"action space is {space}."
            )
        chosen: FloatArray = now.q_ext[np.arange(len(column)), column]
        return chosen - now.value_ext

    def _check_intrinsic(self, intrinsic: FloatArray, valid: BoolArray, steps: Any) -> None:
        bad = ~np.isfinite(intrinsic) & valid
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"The intrinsic reward of environment {row} is {intrinsic[row]} at step "
                f"{steps[row]} of its episode. Shaping needs finite values: check the source."
            )

    def _check_size(self, shaped: FloatArray, steps: Any) -> None:
        size = np.abs(shaped)
        if size.max() <= LARGE_REWARD:
            return
        row = int(np.argmax(size))
        facts = (
            f"{self.shaper.describe()} emitted F' = {shaped[row]:.3g} for environment {row}, "
            f"{steps[row] + 1} steps into its episode"
        )
        if not np.isfinite(size[row]):
            raise OverflowError(
                f"{facts}: the debt of an episode grows like gamma**-length and has left float64. "
                "Use a shorter episode, a larger gamma, or GRM with a small delay."
            )
        if not self._warned_large:
            self._warned_large = True
            warnings.warn(
                f"{facts}. Beyond {LARGE_REWARD:g} a float32 learner loses the extrinsic reward; "
                "debts grow like gamma**-length. Consider a shorter episode, a larger gamma, or "
                "GRM with a small delay. This is said once.",
                RuntimeWarning,
                stacklevel=4,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        return {
            "method": self.shaper.name,
            "shaper": self.shaper.state_dict(),
            "episodes": self.episodes.state_dict(),
            "last_obs": copy_observation(self.episodes.last_obs),
            "warned_large": self._warned_large,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        if state.get("method") != self.shaper.name:
            raise ValueError(
                f"Cannot load the state of method {state.get('method')!r} into a "
                f"{self.shaper.name!r} wrapper."
            )
        self.shaper.load_state_dict(state["shaper"])
        self.episodes.load_state_dict(state["episodes"])
        self.episodes.last_obs = copy_observation(state["last_obs"])
        self._warned_large = bool(state["warned_large"])
        self._now = None


def _checked_bootstrap(int_bootstrap: IntBootstrap, layout: EnvLayout) -> IntBootstrap:
    if int_bootstrap not in get_args(IntBootstrap):
        raise ValueError(
            f"int_bootstrap must be one of {get_args(IntBootstrap)}, got {int_bootstrap!r}."
        )
    if int_bootstrap == "reset" and layout.mode is not AutoresetMode.SAME_STEP:
        raise ValueError(
            "int_bootstrap='reset' needs the next episode's first observation at the step "
            f"that ends an episode, which only SAME_STEP gives; this env runs {_mode(layout)}. "
            "Build the vector env with autoreset_mode=AutoresetMode.SAME_STEP, or choose "
            "int_bootstrap='final' or 'none'."
        )
    return int_bootstrap


def _mode(layout: EnvLayout) -> str:
    return layout.mode.name if layout.batched else "one environment at a time"
