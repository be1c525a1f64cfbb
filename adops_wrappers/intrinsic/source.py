"""Runs a source of intrinsic reward along the steps of an env, single or vector."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import BoolArray, FloatArray, copy_observation, one_per_row
from adops_wrappers.episodes import EnvLayout, EpisodeTracker
from adops_wrappers.intrinsic.normalizer import IntrinsicReturnNormalizer


class SourceRunner(KeepsSettings):
    """Asks a source for F of each true transition: (s, a, s′) with the s′ before any reset.

    Args:
        source: A function `source(obs, action, next_obs) -> F`, or an object with such a
            method `reward`. By keyword it may take `valid`, which is False on dummy resets, and
            `ended`, which is True where this step is the episode's last. A source that keeps
            something for each running episode offers `reset_episodes(mask)`, which is called
            with the rows whose episode is over, after its last step and at every reset.
        layout: The env's number of rows, spaces and autoreset mode.
        normalizer: Brings F to unit size.
        episodes: The tracker of a wrapper directly below, which advances it; None to make
            one.
        quiet_steps: The number of steps at the start in which F is 0.
    """

    state_depends_on = ("quiet_steps",)

    def __init__(
        self,
        source: Any,
        layout: EnvLayout,
        normalizer: IntrinsicReturnNormalizer | None,
        episodes: EpisodeTracker | None,
        quiet_steps: int = 0,
    ) -> None:
        self.source = source
        self.layout = layout
        self.normalizer = normalizer
        self.quiet_steps = _checks.whole("quiet_steps", quiet_steps, least=0)
        self.steps = 0
        """The number of steps so far; a step of a vector env counts once."""
        self.frozen = False
        """While True, steps are not counted (`evaluation_mode` sets it)."""
        self.episodes = EpisodeTracker(layout) if episodes is None else episodes
        self._moves_episodes = episodes is None
        self._reward = _reward_function(source)
        self._keywords = _keywords(self._reward)
        self._reset_episodes = getattr(source, "reset_episodes", None)
        if normalizer is not None and normalizer.num_envs != layout.num_envs:
            raise ValueError(
                f"The normalizer was made for num_envs={normalizer.num_envs}, the env has "
                f"{layout.num_envs}. Build IntrinsicReturnNormalizer({layout.num_envs})."
            )

    def reset(self, obs: Any, mask: BoolArray | None) -> None:
        """Start new episodes in the rows of `mask`, or in all."""
        if self._moves_episodes:
            self.episodes.reset(obs, mask)
        # Kept as a copy: envs with copy=False write the next observation into the same array.
        self.episodes.keep_observation()
        if self._reset_episodes is not None:
            rows = np.ones(self.layout.num_envs, dtype=np.bool_) if mask is None else mask.copy()
            self._reset_episodes(rows)

    def before_step(self) -> None:
        """Raise unless there is an observation to act on."""
        self.episodes.require_reset_done()
        self._acted_on = self.episodes.last_obs

    def after_step(
        self, action: Any, obs: Any, ended: BoolArray, info: dict[str, Any]
    ) -> tuple[FloatArray, BoolArray]:
        """Return F and the mask of the rows that made a real transition."""
        episodes = self.episodes
        if self._moves_episodes:
            episodes.advance(obs, ended, info)
        episodes.keep_observation()
        masks = {"valid": episodes.valid, "ended": ended & episodes.valid}
        answer = self._reward(
            self._acted_on,
            action,
            episodes.next_observations(),
            **{
                name: masks[name].copy() if self.layout.batched else bool(masks[name][0])
                for name in self._keywords
            },
        )
        intrinsic = np.where(episodes.valid, self._checked(answer), 0.0)
        if self.normalizer is not None:
            intrinsic = self.normalizer(intrinsic, episodes.valid)
        # Only now: the source and its scale learn in the quiet steps too.
        if self.steps < self.quiet_steps:
            intrinsic = np.zeros_like(intrinsic)
        if not self.frozen:
            self.steps += 1
        if self._reset_episodes is not None and masks["ended"].any():
            self._reset_episodes(masks["ended"])
        return intrinsic, episodes.valid.copy()

    def _checked(self, answer: Any) -> FloatArray:
        steps = self.episodes.steps
        try:
            intrinsic = one_per_row(
                "What the source returns", answer, self.layout.num_envs, "environments"
            )
        except ValueError as error:
            raise ValueError(f"{str(error)[:-1]} at step {steps[0]} of environment 0.") from error
        bad = ~np.isfinite(intrinsic) & self.episodes.valid
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"The source returned an intrinsic reward of {intrinsic[row]} for environment "
                f"{row} at step {steps[row]} of its episode; it must be finite."
            )
        return intrinsic

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the episodes and the state of source and normaliser."""
        return {
            **self.settings_state(),
            "episodes": self.episodes.state_dict(),
            "last_obs": copy_observation(self.episodes.last_obs),
            "source": self.source.state_dict() if hasattr(self.source, "state_dict") else None,
            "normalizer": None if self.normalizer is None else self.normalizer.state_dict(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.require_settings_of(state)
        if (state["normalizer"] is None) != (self.normalizer is None):
            raise ValueError(
                "Cannot load this state: the saved wrapper and this one must both have a "
                "normalizer, or neither."
            )
        if self.normalizer is not None:
            self.normalizer.load_state_dict(state["normalizer"])
        if state["source"] is not None:
            self.source.load_state_dict(state["source"])
        self.episodes.load_state_dict(state["episodes"], state["last_obs"])
        self.steps = int(state["steps"])


def _reward_function(source: Any) -> Callable[..., Any]:
    reward = getattr(source, "reward", None)
    if callable(reward):
        return reward  # type: ignore[no-any-return]
    if callable(source):
        return source  # type: ignore[no-any-return]
    raise TypeError(
        "source must be a function (obs, action, next_obs) -> F or an object with such a method "
        f"`reward`, got {source!r} of type {type(source).__name__}."
    )


def _keywords(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return []
    return [name for name in ("valid", "ended") if name in parameters]
