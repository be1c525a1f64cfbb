"""ADOPS and ADOPES for a vector env."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.vector import VectorEnv

from adops_wrappers.core import IntBootstrap
from adops_wrappers.critic import CriticHandle
from adops_wrappers.shaping.adops import ADOPES, ADOPS
from adops_wrappers.shaping.schedule import UpdateEvery
from adops_wrappers.vector.base import ShapingWrapper


class ADOPSWrapper(ShapingWrapper):
    """F′ = F + F₂ for every row: the least change that keeps the sign of the extrinsic advantage.

    The total c_E·A_E + c_I·δ_I is clamped to at most −ε where A_E < 0 and to at least 0
    elsewhere (eq. f_2_weak). One pass of the critic per vector step, shared with the agent.

    Args: As for `adops_wrappers.wrappers.ADOPSWrapper`; `int_bootstrap="reset"` takes V_I of the
        next episode's first observation, as RND's non-episodic learner does (SAME_STEP only).

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import ADOPSWrapper, CriticHandle, IntrinsicRewardWrapper
        >>> critic = CriticHandle(lambda obs: (np.zeros(2), np.zeros(2)))
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=2)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: np.array([0.5, 3.0]))
        >>> env = ADOPSWrapper(env, critic, epsilon=0.1)
        >>> _ = env.reset(seed=0)
        >>> env.step(np.array([0, 0]))[4]["intrinsic_reward"]  # R = -1: the second is cut to 0.9
        array([0.5, 0.9])
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
        epsilon: float = 1e-7,
        tie_tolerance: float = 0.0,
        int_bootstrap: IntBootstrap = "final",
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        allow_gamma_int_above_ext: bool = False,
    ) -> None:
        make_shaper = partial(
            ADOPS,
            gamma_ext=gamma_ext,
            gamma_int=gamma_int,
            ext_coef=ext_coef,
            int_coef=int_coef,
            epsilon=epsilon,
            tie_tolerance=tie_tolerance,
            allow_gamma_int_above_ext=allow_gamma_int_above_ext,
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


class ADOPESWrapper(ShapingWrapper):
    """F′ = F + ζ·F₂ for every row, with the F₂ of `ADOPSWrapper` and ζ rising from 0 to 1.

    Args: As for `adops_wrappers.wrappers.ADOPESWrapper`; `update_every` counts vector steps.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import ADOPESWrapper, IntrinsicRewardWrapper
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=1)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: [2.0])
        >>> critic = lambda obs: ([0.0], [0.0])
        >>> env = ADOPESWrapper(env, critic, epsilon=0.0, ramp_updates=2, update_every=1)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(np.array([0]))[4]["intrinsic_reward"][0]) for _ in range(3)]
        [2.0, 1.5, 1.0]
    """

    def __init__(
        self,
        env: VectorEnv,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
        *,
        ramp_updates: int = 15000,
        update_every: UpdateEvery = 128,
        gamma_ext: float = 0.999,
        gamma_int: float = 0.99,
        ext_coef: float = 1.0,
        int_coef: float = 1.0,
        epsilon: float = 1e-7,
        tie_tolerance: float = 0.0,
        int_bootstrap: IntBootstrap = "final",
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        allow_gamma_int_above_ext: bool = False,
    ) -> None:
        make_shaper = partial(
            ADOPES,
            ramp_updates=ramp_updates,
            update_every=update_every,
            gamma_ext=gamma_ext,
            gamma_int=gamma_int,
            ext_coef=ext_coef,
            int_coef=int_coef,
            epsilon=epsilon,
            tie_tolerance=tie_tolerance,
            allow_gamma_int_above_ext=allow_gamma_int_above_ext,
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
