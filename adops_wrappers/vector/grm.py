"""PBIM and GRM for a vector env."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.vector import VectorEnv

from adops_wrappers.critic import CriticHandle
from adops_wrappers.shaping.grm import PBIM, MatchingFunction, make_grm
from adops_wrappers.vector.base import ShapingWrapper


class PBIMWrapper(ShapingWrapper):
    """F′ = F − F̄ for every row, and at its episode's last step −S, the debt with interest.

    Args: As for `adops_wrappers.wrappers.PBIMWrapper`. With a `critic`, SAME_STEP ends carry
        its values of the final observations.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import IntrinsicRewardWrapper, PBIMWrapper
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=1, max_episode_steps=3)
        >>> env = PBIMWrapper(IntrinsicRewardWrapper(env, lambda s, a, next_s: [1.0]), gamma=0.5)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(np.array([0]))[4]["intrinsic_reward"][0]) for _ in range(3)]
        [1.0, 1.0, -6.0]
    """

    def __init__(
        self,
        env: VectorEnv,
        *,
        gamma: float = 0.99,
        normalize: bool = False,
        alpha: float = 0.05,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(
            env,
            partial(PBIM, gamma=gamma, normalize=normalize, alpha=alpha),
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
        )


class GRMWrapper(ShapingWrapper):
    """F′_t = f_t − γ^−D·f_{t−D} for every row; what is unmatched at the end is taken back there.

    Args: As for `adops_wrappers.wrappers.GRMWrapper`. With a `critic`, SAME_STEP ends carry its
        values of the final observations.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import GRMWrapper, IntrinsicRewardWrapper
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=1, max_episode_steps=4)
        >>> env = GRMWrapper(IntrinsicRewardWrapper(env, lambda s, a, next_s: [1.0]), gamma=0.5)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(np.array([0]))[4]["intrinsic_reward"][0]) for _ in range(4)]
        [1.0, -1.0, -1.0, -2.0]
    """

    def __init__(
        self,
        env: VectorEnv,
        *,
        delay: float = 1,
        gamma: float = 0.99,
        normalize: bool = False,
        alpha: float = 0.05,
        matching: MatchingFunction | None = None,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
    ) -> None:
        make_shaper = partial(
            make_grm, delay=delay, gamma=gamma, normalize=normalize, alpha=alpha, matching=matching
        )
        super().__init__(
            env,
            make_shaper,
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
        )
