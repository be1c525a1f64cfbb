"""Adds an intrinsic reward F to the `info` of an env."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers.arrays import copy_observation
from adops_wrappers.episodes import EpisodeTracker, tracker_below
from adops_wrappers.intrinsic.normalizer import IntrinsicReturnNormalizer, Rule
from adops_wrappers.intrinsic.source import SourceRunner
from adops_wrappers.wrappers.base import SingleEnvWrapper
from adops_wrappers.wrappers.spec import from_spec
from adops_wrappers.wrappers.twins import AnyEnv, Twin


class SourceTwin(Twin[AnyEnv]):
    """The arguments of `IntrinsicRewardWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        source: Any,
        *,
        normalizer: IntrinsicReturnNormalizer | Rule | None = None,
        quiet_steps: int = 0,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        layout, normalizer = self._layout(env, autoreset_mode), from_spec(normalizer)
        if isinstance(normalizer, str):
            normalizer = IntrinsicReturnNormalizer(layout.num_envs, rule=normalizer)
        self.runner = SourceRunner(
            from_spec(source), layout, normalizer, tracker_below(env), quiet_steps
        )
        self._wrap(env, layout)

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


class IntrinsicRewardWrapper(SourceTwin[gym.Env[Any, Any]], SingleEnvWrapper):
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

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env and keep its first observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.runner.reset(obs, None)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env and ask the source for F."""
        self.runner.before_step()
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            ended = np.array([bool(terminated or truncated)])
            intrinsic, valid = self.runner.after_step(action, obs, ended, info)
        except BaseException:
            self.episodes.forget()
            raise
        if valid[0]:
            info = {**info, "intrinsic_reward": intrinsic[0]}
        # Copies: the env may return arrays, and write its next answer into the same ones.
        reward, terminated, truncated = map(copy_observation, (reward, terminated, truncated))
        return obs, reward, terminated, truncated, info
