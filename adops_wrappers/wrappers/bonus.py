"""The two wrappers that ask a source for F: one for an env, one for a vector env."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers.arrays import FloatArray, copy_observation, to_numpy
from adops_wrappers.episodes import EpisodeTracker, split_reset_mask, tracker_below
from adops_wrappers.intrinsic.normalizer import IntrinsicReturnNormalizer, Rule
from adops_wrappers.intrinsic.source import SourceRunner
from adops_wrappers.wrappers.base import Layer, SingleEnvWrapper, VectorEnvWrapper
from adops_wrappers.wrappers.either import EitherWrapper
from adops_wrappers.wrappers.spec import from_spec


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
        layout, scale = self.layout_of(env, autoreset_mode), from_spec(normalizer)
        if isinstance(scale, str):
            rule: Any = scale
            scale = IntrinsicReturnNormalizer(layout.num_envs, rule=rule)
        self.runner = SourceRunner(
            from_spec(source), layout, scale, tracker_below(env), quiet_steps
        )
        self._wrap(
            env,
            layout,
            AsksSource.__init__,
            source=source,
            normalizer=normalizer,
            quiet_steps=quiet_steps,
            autoreset_mode=autoreset_mode,
        )

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
        self.runner.before_step()
        try:
            obs, reward, terminated, truncated, info = self.env.step(actions)
            ended = np.logical_or(to_numpy(terminated), to_numpy(truncated))
            intrinsic, valid = self.runner.after_step(actions, obs, ended, info)
        except BaseException:
            self.episodes.forget()
            raise
        info = {**info, "intrinsic_reward": intrinsic, "_intrinsic_reward": valid}
        # Copies: the env may write its next answer into the same arrays.
        reward, terminated, truncated = map(copy_observation, (reward, terminated, truncated))
        return obs, reward, terminated, truncated, info


IntrinsicRewardWrapper = EitherWrapper(
    AsksSource, SingleIntrinsicReward, VectorIntrinsicReward, "IntrinsicRewardWrapper"
)
