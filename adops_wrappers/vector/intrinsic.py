"""Adds an intrinsic reward F to the `info` of a vector env."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from adops_wrappers.arrays import FloatArray, copy_observation, to_numpy
from adops_wrappers.episodes import split_reset_mask
from adops_wrappers.vector.base import VectorEnvWrapper
from adops_wrappers.wrappers.intrinsic import SourceTwin


class IntrinsicRewardWrapper(SourceTwin[VectorEnv], VectorEnvWrapper):
    """Writes F of every row into `info`: see `adops_wrappers.wrappers.IntrinsicRewardWrapper`.

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
