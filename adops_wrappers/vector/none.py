"""No shaping, for a vector env."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.vector import VectorEnv

from adops_wrappers.critic import CriticHandle
from adops_wrappers.shaping.none import NoShaping
from adops_wrappers.vector.base import ShapingWrapper


class NoShapingWrapper(ShapingWrapper):
    """F′ = F for every row, with the same `info` and reward as the other methods.

    Args: As for `adops_wrappers.wrappers.NoShapingWrapper`. With a `critic`, SAME_STEP ends
        carry its values of the final observations.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import IntrinsicRewardWrapper, NoShapingWrapper
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=2)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: np.array([1.0, 2.0]))
        >>> env = NoShapingWrapper(env, intrinsic_scale=0.5)
        >>> _ = env.reset(seed=0)
        >>> env.step(np.array([0, 0]))[1]  # R = -1
        array([-0.5,  0. ])
    """

    def __init__(
        self,
        env: VectorEnv,
        *,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(
            env,
            NoShaping,
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
        )
