"""PBRS for a vector env."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.vector import VectorEnv

from adops_wrappers.core import Potential
from adops_wrappers.critic import CriticHandle
from adops_wrappers.shaping.pbrs import PBRS
from adops_wrappers.vector.base import ShapingWrapper


class PBRSWrapper(ShapingWrapper):
    """F′ = F + γ·Φ(s′, t + 1) − Φ(s, t) for every row, with Φ = 0 after termination.

    Args: As for `adops_wrappers.wrappers.PBRSWrapper`; `potential` takes the batch of
        observations and the array of episode steps, and returns one value a row.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import PBRSWrapper
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=2)
        >>> env = PBRSWrapper(env, lambda obs, t: obs + t, gamma=1.0)
        >>> _ = env.reset(seed=0)  # from cell 36
        >>> env.step(np.array([0, 0]))[4]["intrinsic_reward"]  # up, to cell 24
        array([-11., -11.])
    """

    def __init__(
        self,
        env: VectorEnv,
        potential: Potential,
        *,
        gamma: float,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(
            env,
            partial(PBRS, gamma=gamma),
            potential=potential,
            needs_intrinsic=False,
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
        )
