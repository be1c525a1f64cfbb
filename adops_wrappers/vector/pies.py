"""PIES for a vector env."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.vector import VectorEnv

from adops_wrappers.critic import CriticHandle
from adops_wrappers.shaping.pies import PIES
from adops_wrappers.shaping.schedule import UpdateEvery
from adops_wrappers.vector.base import ShapingWrapper


class PIESWrapper(ShapingWrapper):
    """F′ = ζ_n·F for every row, with ζ_n = max(0, 1 − n/C) (eq. pies_decay).

    Args: As for `adops_wrappers.wrappers.PIESWrapper`; `update_every` counts vector steps, and
        "episode" the episodes of all rows. With a `critic`, SAME_STEP ends carry its values.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import IntrinsicRewardWrapper, PIESWrapper
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=1)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: [1.0])
        >>> env = PIESWrapper(env, decay_updates=2, update_every=1)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(np.array([0]))[4]["intrinsic_reward"][0]) for _ in range(3)]
        [1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        env: VectorEnv,
        *,
        decay_updates: int = 15000,
        update_every: UpdateEvery = 128,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(
            env,
            partial(PIES, decay_updates=decay_updates, update_every=update_every),
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
        )
