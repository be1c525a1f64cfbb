"""The two wrappers that ask a source for F: one for an env, one for a vector env."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import (
    BoolArray,
    FloatArray,
    copy_observation,
    independent,
    one_per_row,
)
from adops_wrappers.backends import (
    HOST,
    Backend,
    backend_of_rewards,
    cleared,
    is_finite,
    kept,
    may_hold,
)
from adops_wrappers.episodes import EnvLayout, EpisodeTracker, split_reset_mask, tracker_below
from adops_wrappers.intrinsic.normalizer import IntrinsicReturnNormalizer, Rule
from adops_wrappers.methods import Method
from adops_wrappers.stack import find_layer
from adops_wrappers.wrappers.base import Layer, SingleEnvWrapper, VectorEnvWrapper
from adops_wrappers.wrappers.either import EitherWrapper
from adops_wrappers.wrappers.spec import from_spec


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
        self.episodes.keep_observation()
        self._reward = _reward_function(source)
        keywords = _keywords(self._reward)
        self._takes_valid, self._takes_ended = "valid" in keywords, "ended" in keywords
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
        if self._reset_episodes is not None:
            rows = np.ones(self.layout.num_envs, dtype=np.bool_)
            self._reset_episodes(rows if mask is None else copy_observation(mask))

    def after_step(
        self,
        acted_on: Any,
        action: Any,
        obs: Any,
        ended: BoolArray,
        info: dict[str, Any],
        backend: Backend = HOST,
    ) -> tuple[FloatArray, BoolArray]:
        """Return F and the mask of the rows that made a real transition."""
        episodes = self.episodes
        if self._moves_episodes:
            episodes.settle(backend)
            episodes.advance(obs, ended, info)
        valid, ended = episodes.valid, ended & episodes.valid
        paid = valid if episodes.knows_final_obs else valid & ~ended  # s′ is unknown where it ended
        masks: dict[str, Any] = {}
        if self._takes_valid:
            masks["valid"] = copy_observation(paid) if self.layout.batched else bool(paid[0])
        if self._takes_ended:
            masks["ended"] = copy_observation(ended) if self.layout.batched else bool(ended[0])
        answer = self._reward(acted_on, action, episodes.next_observations(), **masks)
        intrinsic = kept(self._checked(answer, backend), paid)
        if self.normalizer is not None:
            intrinsic = self.normalizer(intrinsic, valid)
        # Only now: the source and its scale learn in the quiet steps too.
        if self.steps < self.quiet_steps:
            intrinsic = cleared(intrinsic, None)
        if not self.frozen:
            self.steps += 1
        if self._reset_episodes is not None and may_hold(ended):
            self._reset_episodes(ended)
        return intrinsic, copy_observation(valid)

    def _checked(self, answer: Any, backend: Backend) -> FloatArray:
        steps, what = self.episodes.steps, "What the source returns"
        try:
            intrinsic = one_per_row(what, answer, self.layout.num_envs, "environments", backend)
        except ValueError as error:
            raise ValueError(f"{str(error)[:-1]} at step {steps[0]} of environment 0.") from error
        if backend is not HOST:
            return intrinsic  # the shaping wrapper above checks it with F′
        if (
            not is_finite(intrinsic)
            and (bad := ~np.isfinite(intrinsic) & self.episodes.valid).any()
        ):
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


def _keywords(function: Callable[..., Any]) -> Container[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return ()


class AsksSource(Layer):
    """Writes F = source(obs, action, next_obs) into `info["intrinsic_reward"]`.

    `next_obs` is the true next observation, also where a vector env has already reset itself.
    The reward is left as it is; a shaping wrapper above turns F into F′ and adds it.

    Args:
        env: The env.
        source: A function of (obs, action, next_obs), or an object with such a method `reward`.
            From a vector env it gets batches, and returns one value for each row. It must not
            write into what it is given. It may take `valid`, which is False on a dummy reset
            step, and `ended`, which is True at an episode's last step; `reset_episodes(mask)`, if
            it has such a method, is called for the rows whose episode is over.
        normalizer: Brings F to unit size. "rms" divides it by the running root mean square of
            its discounted return (γ = 0.99), "std" by the standard deviation, as RND does; F = 0
            for the first 100 steps, until the size is known. Pass an `IntrinsicReturnNormalizer`
            for another discount, or to update it by rollouts. None: F as the source gives it.
        quiet_steps: The number of steps at the start in which F is 0, so that the agent first
            learns what the task pays without a bonus; a step of a vector env counts once. The
            source and the normaliser learn meanwhile. Ten rollouts did well in the study.
        autoreset_mode: When the env resets itself, if it does not declare it.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> _ = env.reset(seed=0)
        >>> [round(float(env.step(action)[4]["intrinsic_reward"]), 3) for action in (0, 0, 0, 0)]
        [1.0, 1.0, 1.0, 0.707]
    """

    layer_name = "IntrinsicRewardWrapper"

    def __init__(
        self,
        env: Any,
        source: Any,
        *,
        normalizer: IntrinsicReturnNormalizer | Rule | None = None,
        quiet_steps: int = 0,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        given = dict(locals())
        layout, scale = self.layout_of(env, autoreset_mode), from_spec(normalizer)
        if isinstance(scale, str):
            rule: Any = scale
            scale = IntrinsicReturnNormalizer(layout.num_envs, rule=rule)
        self.runner = SourceRunner(
            from_spec(source), layout, scale, tracker_below(env), quiet_steps
        )
        self._wrap(env, layout, AsksSource.__init__, given)

    @property
    def episodes(self) -> EpisodeTracker:
        """The position within the episodes."""
        return self.runner.episodes

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        return self.runner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.runner.load_state_dict(state)


class SingleIntrinsicReward(AsksSource, SingleEnvWrapper):
    """Writes F into `info`, for one env; `AsksSource` explains the arguments."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env and keep its first observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.runner.reset(obs, None)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env and ask the source for F."""
        episodes = self.runner.episodes
        if (acted_on := episodes.last_obs) is None:
            episodes.require_reset_done()
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            ended = np.array([bool(terminated or truncated)])
            intrinsic, valid = self.runner.after_step(acted_on, action, obs, ended, info)
        except BaseException:
            self.episodes.forget()
            raise
        if valid[0]:
            info = {**info, "intrinsic_reward": intrinsic[0]}
        # Copies: the env may return arrays, and write its next answer into the same ones.
        return obs, *independent(reward, terminated, truncated), info


class VectorIntrinsicReward(AsksSource, VectorEnvWrapper):
    """Writes F of every row into `info`; `AsksSource` explains the arguments.

    The source takes batches. On dummy reset steps (NEXT_STEP) the mask `_intrinsic_reward` is
    False.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make_vec("CliffWalking-v1", num_envs=2), CountBonus())
        >>> _ = env.reset(seed=0)
        >>> env.step(env.action_space.sample() * 0)[4]["intrinsic_reward"].round(3)
        array([1.   , 0.707])
    """

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env, or the rows in `options["reset_mask"]`."""
        mask, options = split_reset_mask(options, self.num_envs)
        obs, info = self.env.reset(seed=seed, options=options)
        self.runner.reset(obs, mask)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, FloatArray, Any, Any, dict[str, Any]]:
        """Step the env and ask the source for F."""
        episodes = self.runner.episodes
        if (acted_on := episodes.last_obs) is None:
            episodes.require_reset_done()
        try:
            obs, reward, terminated, truncated, info = self.env.step(actions)
            backend = backend_of_rewards(reward)
            ends = backend.moved(terminated), backend.moved(truncated)
            ended = backend.xp.logical_or(*ends)
            intrinsic, valid = self.runner.after_step(acted_on, actions, obs, ended, info, backend)
        except BaseException:
            self.episodes.forget()
            raise
        intrinsic = backend.for_users(reward, intrinsic)
        info = {**info, "intrinsic_reward": intrinsic, "_intrinsic_reward": valid}
        # Copies: the env may write its next answer into the same arrays.
        return obs, *independent(reward, terminated, truncated), info


IntrinsicRewardWrapper = EitherWrapper(
    AsksSource, SingleIntrinsicReward, VectorIntrinsicReward, "IntrinsicRewardWrapper"
)


def with_source(
    env: Any,
    method: Method,
    bonus: Any,
    knowledge: Any,
    autoreset_mode: AutoresetMode | str | None,
) -> Any:
    """Return `env` above the source that a shaping wrapper was given, or as it is without one.

    A bonus is brought to unit size; a measure of knowledge is no bonus, and is not scaled.
    """
    wanted = "knowledge" if method.needs_knowledge else "bonus"
    for name, source in (("knowledge", knowledge), ("bonus", bonus)):
        if source is None:
            continue
        if name != wanted:
            raise ValueError(
                f"{method.name} was given {name}={source!r}, but what it shapes is a "
                f"{wanted}. Give {wanted}= in its place, or choose another method."
            )
        if find_layer(env, AsksSource) is not None:
            raise ValueError(
                f"{name}={source!r} was given, but {env} already has a source of F. Leave "
                f"{name}= out, or the IntrinsicRewardWrapper below."
            )
        rule: Rule | None = "rms" if name == "bonus" else None
        env = IntrinsicRewardWrapper(env, source, normalizer=rule, autoreset_mode=autoreset_mode)
    return env
