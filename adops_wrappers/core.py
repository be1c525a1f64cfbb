"""One transition's way from an env to F′: the rules that single and vector wrappers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import BoolArray, FloatArray, columns_to_host, copy_observation, to_host
from adops_wrappers.backends import HOST, Backend, backend_of, is_finite, times, with_rows
from adops_wrappers.bootstrap import IntBootstrap, next_value_int
from adops_wrappers.critic import CriticHandle, as_handle, value_estimates
from adops_wrappers.episodes import EnvLayout, EpisodeTracker
from adops_wrappers.estimates import Estimates, Potential, chosen_advantage, potential_values
from adops_wrappers.reward_checks import LARGE_REWARD, RewardChecks
from adops_wrappers.shaper import Shaper, Transition


class Outcome(NamedTuple):
    """What a wrapper writes into `info` and the reward."""

    shaped: FloatArray
    final_values: list[FloatArray] | None
    """V_E and V_I of the final observations, zero in rows that did not end (SAME_STEP)."""


class Observer(Protocol):
    """A recorder or a learning critic: it is shown every transition that a core has shaped."""

    @property
    def needs_observations(self) -> bool:
        """Whether it needs `observation` and `next_observation`, which costs a copy of each."""

    def reset(self, mask: BoolArray | None) -> None:
        """New episodes begin in the rows of `mask`, or in all."""

    def observe(self, transition: Transition) -> None:
        """Look at one step, with `shaped`, `action` and `raw_intrinsic` set.

        The arrays belong to the core: copy what you keep, and change nothing.
        """


class ShapingCore(KeepsSettings):
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
        episodes: The tracker of a wrapper directly below, which advances it; None to make
            one.
        base: The env at the bottom, by which the wrappers of one stack know each other.
    """

    state_depends_on = ("intrinsic_scale",)

    def __init__(
        self,
        shaper: Shaper,
        layout: EnvLayout,
        *,
        episodes: EpisodeTracker | None = None,
        consults_critic: bool = False,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
        potential: Potential | None = None,
        int_bootstrap: IntBootstrap = "final",
        intrinsic_scale: float = 1.0,
        base: Any = None,
    ) -> None:
        self.shaper = shaper
        self.base = object() if base is None else base
        self.layout = layout
        self.episodes = EpisodeTracker(layout) if episodes is None else episodes
        self._moves_episodes = episodes is None
        self.consults_critic = consults_critic
        self.critic = as_handle(critic) if consults_critic or critic is not None else None
        self.potential = potential
        self.int_bootstrap = _checked_bootstrap(int_bootstrap, layout)
        self.intrinsic_scale = _checks.non_negative("intrinsic_scale", intrinsic_scale)
        self.checks = RewardChecks(shaper.describe, self.episodes)
        self._backend: Backend | None = None
        self.zeros = np.zeros(layout.num_envs)
        self._now: Estimates | None = None
        self._seen_version = -1
        self._acted_on: Any = None
        self._time = self.episodes.elapsed
        self.observers: list[Observer] = []
        """Whoever is shown the transitions, by `join`."""
        if self.critic is not None or potential is not None:
            self.episodes.keep_observation()
        if consults_critic and self.critic is not None:
            self.critic.attach(layout, shaper.discounts, self.int_bootstrap)

    @property
    def backend(self) -> Backend:
        """Where the env's rewards are: NumPy before the first step."""
        return self._backend or HOST

    def consult(
        self,
        critic: CriticHandle | Callable[[Any], Any] | None,
        *,
        int_bootstrap: IntBootstrap | None = None,
        potential: Potential | None = None,
    ) -> None:
        """Put values and potentials into every `Transition`, though the method needs none.

        F′ does not change: a method that needs them has its own, which are kept.
        """
        if self.consults_critic:
            if critic is not None and not self._has_critic(critic):
                raise ValueError(
                    f"{self.shaper.name} below consults a different critic from the one given "
                    "here, so the recorded values would not be the ones it acted on. Pass the same "
                    "critic, or none."
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
        if self.critic is not None or self.potential is not None:
            self.episodes.keep_observation()
        self._now = None

    def _has_critic(self, critic: Any) -> bool:
        return self.critic is not None and (critic is self.critic or self.critic.wraps(critic))

    def reset(self, obs: Any, mask: BoolArray | None) -> None:
        """Start new episodes in the rows of `mask`, or in all."""
        # Raised here and not at construction: AsyncVectorEnv passes on what a reset raises.
        if self.critic is not None:
            self.critic.require_agent_in_this_process()
        self.checks.report()
        if mask is not None and self._backend is not None:
            mask = self._backend.masks(mask)
        if self._moves_episodes:
            self.episodes.reset(obs, mask)
        if self.critic is not None:
            self.critic.follow(self, self.episodes, anew=mask is None)
        self.shaper.reset(mask)
        self._now = None
        for observer in self.observers:
            observer.reset(mask if mask is None else to_host(mask))

    def before_step(self) -> None:
        """Look at s before the env overwrites it."""
        episodes, critic = self.episodes, self.critic
        if episodes.last_obs is None:
            episodes.require_reset_done()
        self._acted_on, self._time = episodes.last_obs, episodes.elapsed
        if self.consults_critic and critic is not None:
            # Asked at every step: the agent's function may be registered at any time.
            if critic.needs_observations:
                self._let_learn(critic)
            if critic.parameters:
                critic.notice_update()
            if not critic.remembers or critic.version != self._seen_version:
                self._now = None
        if self._now is None:
            self._now = self._estimate(self._acted_on, episodes.elapsed)
        if critic is not None:
            critic.observations_change()

    def _let_learn(self, critic: CriticHandle) -> None:
        critic.learn_from(self)
        if critic not in self.observers:
            self.join(critic)

    def join(self, observer: Observer) -> None:
        """Show an observer all transitions from now on; `observers.remove` ends it."""
        self.observers.append(observer)
        if observer.needs_observations:
            self.episodes.keep_observation()

    def settle(self, backend: Backend) -> None:
        """Compute where the env's rewards are; asked at every step, in case they move."""
        if self._moves_episodes:
            self.episodes.settle(backend)
        if backend is self._backend:
            return
        if self.shaper.numpy_only and backend is not HOST:
            raise TypeError(
                f"{self.shaper.describe()} computes in NumPy, and the env's rewards are tensors "
                f"({backend}). Put gymnasium's ArrayConversion to NumPy below the wrappers of this "
                "package, or choose another method."
            )
        self._backend, self.zeros = backend, backend.zeros(self.layout.num_envs)
        self.shaper.move_to(backend)
        if self.critic is not None:
            self.critic.report_with(self.checks)
        if self._now is not None and backend_of(self._now.value_ext) is not backend:
            self._now = self._estimate(self._acted_on, backend.moved(self._time))

    def advance(self, obs: Any, ended: BoolArray, info: dict[str, Any]) -> BoolArray:
        """Follow what the env did; return the rows for which it was a real transition."""
        episodes = self.episodes
        if self._moves_episodes:
            episodes.advance(obs, ended, info)
        if self.critic is not None and self.critic.has_hidden_state:
            self.critic.follow(self, episodes, acted_on=self._acted_on)
        return episodes.valid

    def shape(
        self,
        action: Any,
        reward: FloatArray,
        intrinsic: FloatArray,
        raw_intrinsic: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
    ) -> Outcome:
        """Return F′ for the step that `advance` has just followed."""
        assert self._now is not None
        now, episodes = self._now, self.episodes
        on_host = self._backend is HOST
        if on_host and not is_finite(reward + intrinsic):
            self.checks.refuse_what_is_not_finite(reward, intrinsic)
        # `last_obs` comes last: the agent asks about it next, and a network with preallocated
        # outputs keeps one answer only. It is s′, except in rows already reset (SAME_STEP).
        advantage_ext = final = final_values = None
        if now.q_ext is not None or (self.critic is not None and self.critic.gives_q_of_actions):
            advantage_ext = self._advantage_ext(now, action)
        if episodes.resets_within_step and (self.critic or self.potential) is not None:
            final = self._look_at_final_rows(now, terminated, truncated)
        after = next_values = self._estimate(episodes.last_obs, episodes.elapsed)
        if final is not None:
            next_values, final_values = self._put_in_place(after, final)
        transition = Transition(
            reward=reward,
            intrinsic=times(self.intrinsic_scale, intrinsic),
            value_ext=now.value_ext,
            value_int=now.value_int,
            next_value_ext=next_values.value_ext,
            next_value_int=next_value_int(
                self.int_bootstrap, next_values.value_int, after.value_int, terminated, truncated
            ),
            advantage_ext=advantage_ext,
            terminated=terminated,
            truncated=truncated,
            valid=episodes.valid,
            potential=now.potential,
            next_potential=next_values.potential,
        )
        shaped = self.shaper.step(transition)
        # The sum of squares bounds the largest, and NaN is not below anything.
        if on_host and not np.vdot(shaped, shaped) <= LARGE_REWARD**2:
            self.checks.judge_size(shaped)
        self._now = after
        if self.observers:
            self._show(
                transition._replace(shaped=shaped, action=action, raw_intrinsic=raw_intrinsic)
            )
        return Outcome(shaped, final_values)

    def _show(self, transition: Transition) -> None:
        if self._backend is not HOST:
            transition = Transition._make(columns_to_host(transition))
        if any(observer.needs_observations for observer in self.observers):
            transition = transition._replace(
                observation=to_host(self._acted_on),
                next_observation=to_host(self.episodes.next_observations()),
            )
        # A copy of the list: an observer may remove itself.
        for observer in list(self.observers):
            if observer is not self.critic or self.critic.learner is self:
                observer.observe(transition)

    def close(self) -> None:
        """Let a critic that has learned from this stack learn from another."""
        self.checks.report()
        if self.critic is not None:
            self.critic.leave(self)

    def forget_episodes(self) -> None:
        """After an error: only a full reset makes the state of all rows consistent again."""
        self.episodes.forget()
        self._now = None

    def _estimate(self, obs: Any, elapsed: Any) -> Estimates:
        """Return the estimates of all rows, from the handle's memory where it has them."""
        value_ext, value_int, q_ext = self.zeros, self.zeros, None
        if self.consults_critic and self.critic is not None:
            self._seen_version, rows = self.critic.version, self.layout.num_envs
            value_ext, value_int, q_ext = self.critic.estimate(
                obs, rows, unchanging=True, given=self.episodes.seen_obs, backend=self._backend
            )
        if self.potential is None:
            return Estimates(value_ext, value_int, q_ext, None)
        potential = potential_values(self.potential, self.layout, obs, elapsed, self._backend)
        return Estimates(value_ext, value_int, q_ext, potential)

    def _advantage_ext(self, now: Estimates, action: Any) -> FloatArray | None:
        critic = self.critic if self.consults_critic else None
        space, valid = self.layout.action_space, self.episodes.valid
        acted_on, backend = self._acted_on, self.backend
        return chosen_advantage(now, critic, acted_on, action, valid, space, backend)

    def _look_at_final_rows(
        self, now: Estimates, terminated: BoolArray, truncated: BoolArray
    ) -> Estimates:
        """Return the estimates of the last observations of the rows that were reset (SAME_STEP).

        There is one for each of these rows; on a device one for each row (`with_rows`).
        """
        episodes, on_host, rows = self.episodes, self._backend is HOST, self.layout.num_envs
        ended = episodes.ended
        if not episodes.knows_final_obs:
            episodes.note_unknown_ends()
            last = now.where(truncated & ~terminated)
            return last.rows(ended) if on_host else last
        everything = not on_host or (self.critic is not None and self.critic.fixed_batch)
        rows = rows if everything else int(ended.sum())
        obs = episodes.next_observations() if everything else episodes.final_observations()
        value_ext = value_int = self.zeros[:rows]
        if self.critic is not None:
            # Not through the handle's memory, which holds the full batch.
            answer = self.critic.evaluate(obs)
            value_ext, value_int, _ = value_estimates(answer, rows, self._backend)
        potential = None
        if self.potential is not None:
            time = (episodes.steps if everything else episodes.steps[ended]) + 1
            potential = potential_values(self.potential, self.layout, obs, time, self._backend)
        found = Estimates(value_ext, value_int, None, potential)
        return found.rows(ended) if everything and on_host else found

    def _put_in_place(
        self, after: Estimates, final: Estimates
    ) -> tuple[Estimates, list[FloatArray] | None]:
        """Return the estimates of the true s′ of all rows, and the final values for `info`."""
        ended, final_values = self.episodes.ended, None
        if self.critic is not None:
            values = (final.value_ext, final.value_int)
            final_values = [with_rows(self.zeros, ended, value) for value in values]
        return after.with_rows(ended, final), final_values

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        self.checks.report()
        return {
            **self.settings_state(),
            "method": self.shaper.name,
            "shaper": self.shaper.state_dict(),
            "episodes": self.episodes.state_dict(),
            "last_obs": copy_observation(self.episodes.last_obs),
            "warned_large": self.checks.warned_large,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        if state.get("method") != self.shaper.name:
            raise ValueError(
                f"Cannot load the state of method {state.get('method')!r} into a "
                f"{self.shaper.name!r} wrapper."
            )
        self.require_settings_of(state)
        self.shaper.load_state_dict(state["shaper"])
        self.episodes.load_state_dict(state["episodes"], state["last_obs"])
        self.checks.warned_large = bool(state["warned_large"])
        self._now = None
        if self.critic is not None:
            self.critic.follow(self, self.episodes, anew=True)


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
