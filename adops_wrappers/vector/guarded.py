"""The guarded scale for a vector env."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.vector import VectorEnv

from adops_wrappers.core import IntBootstrap
from adops_wrappers.critic import CriticHandle
from adops_wrappers.shaping.guarded import GuardedScale
from adops_wrappers.shaping.schedule import UpdateEvery
from adops_wrappers.vector.base import ShapingWrapper


class GuardedScaleWrapper(ShapingWrapper):
    """F′ = β·F with one β for all rows, turned down while the extrinsic return falls.

    Args: As for `adops_wrappers.wrappers.GuardedScaleWrapper`; `update_every` counts vector steps,
        and the return is the mean over rows of each row's last finished episode.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import GuardedScaleWrapper, IntrinsicRewardWrapper
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=1)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: [2.0])
        >>> env = GuardedScaleWrapper(env, lambda obs: ([0.0], [0.0]), update_every=1)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(np.array([0]))[4]["intrinsic_reward"][0]) for _ in range(2)]
        [2.0, 0.1]
    """

    def __init__(
        self,
        env: VectorEnv,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
        *,
        gamma_ext: float = 0.999,
        gamma_int: float = 0.99,
        ext_coef: float = 1.0,
        int_coef: float = 1.0,
        balance: float = 0.1,
        tolerance: float = 0.2,
        shrink: float = 0.5,
        regrow: float = 0.2,
        floor: float = 0.0001,
        smoothing: float = 0.2,
        forgetting: float = 0.02,
        update_every: UpdateEvery = 128,
        int_bootstrap: IntBootstrap = "final",
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
    ) -> None:
        make_shaper = partial(
            GuardedScale,
            gamma_ext=gamma_ext,
            gamma_int=gamma_int,
            ext_coef=ext_coef,
            int_coef=int_coef,
            balance=balance,
            tolerance=tolerance,
            shrink=shrink,
            regrow=regrow,
            floor=floor,
            smoothing=smoothing,
            forgetting=forgetting,
            update_every=update_every,
        )
        super().__init__(
            env,
            make_shaper,
            critic=critic,
            consults_critic=True,
            int_bootstrap=int_bootstrap,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
        )
