"""Adds an intrinsic reward F to the `info` of a vector env."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from adops_wrappers.arrays import FloatArray
from adops_wrappers.episodes import EnvLayout, split_reset_mask
from adops_wrappers.intrinsic.normalizer import IntrinsicReturnNormalizer
from adops_wrappers.intrinsic.source import SourceRunner
from adops_wrappers.vector.base import AnyVectorWrapper


class IntrinsicRewardWrapper(AnyVectorWrapper):
    """Writes F = source(obs, action, next_obs) into `info["intrinsic_reward"]`, one value a row.

    `next_obs` is the true next observation of every row, also where the env has already reset
    itself. On the dummy reset steps of NEXT_STEP the mask `_intrinsic_reward` is False.

    Args:
        env: The vector env.
        source: A function of batches (obs, actions, next_obs) that returns n values, or an
            object with such a method `reward`. It may take `valid`, the mask of real steps, and
            `ended`, the mask of last steps; `reset_episodes(mask)`, if it has such a method, is
            called for the rows whose episode is over.
        normalizer: Divides F by the running scale of intrinsic returns.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make_vec("CliffWalking-v1", num_envs=2), CountBonus())
        >>> _ = env.reset(seed=0)
        >>> env.step(env.action_space.sample() * 0)[4]["intrinsic_reward"].round(3)
        array([1.   , 0.707])
    """

    def __init__(
        self,
        env: VectorEnv,
        source: Any,
        *,
        normalizer: IntrinsicReturnNormalizer | None = None,
    ) -> None:
        self.runner = SourceRunner(source, EnvLayout.of_vector_env(env), normalizer)
        super().__init__(env)

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
        obs, reward, terminated, truncated, info = self.env.step(actions)
        ended = np.logical_or(terminated, truncated)
        intrinsic, valid = self.runner.after_step(actions, obs, ended, info)
        info = {**info, "intrinsic_reward": intrinsic, "_intrinsic_reward": valid}
        return obs, reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        return self.runner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.runner.load_state_dict(state)
