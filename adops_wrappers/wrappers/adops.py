"""ADOPS and ADOPES."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from adops_wrappers.core import IntBootstrap
from adops_wrappers.shaping.adops import ADOPES, ADOPS
from adops_wrappers.shaping.schedule import UpdateEvery
from adops_wrappers.wrappers.base import ShapingWrapper
from adops_wrappers.wrappers.twins import AnyCritic, AnyEnv, ShapingTwin


class ADOPSTwin(ShapingTwin[AnyEnv]):
    """The arguments of `ADOPSWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        critic: AnyCritic | None = None,
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
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(
            env,
            ADOPS,
            gamma_ext=gamma_ext,
            gamma_int=gamma_int,
            ext_coef=ext_coef,
            int_coef=int_coef,
            epsilon=epsilon,
            tie_tolerance=tie_tolerance,
            allow_gamma_int_above_ext=allow_gamma_int_above_ext,
            critic=critic,
            consults_critic=True,
            int_bootstrap=int_bootstrap,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
            autoreset_mode=autoreset_mode,
        )


class ADOPSWrapper(ADOPSTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′ = F + F₂: the least change of F that keeps the sign of the extrinsic advantage.

    - A_E = R + γ_E·V_E(s′) − V_E(s), or Q_E(s, a) − V_E(s) where the critic gives Q values.
    - δ_I = F + γ_I·V_I(s′) − V_I(s).
    - The total is c_E·A_E + c_I·δ_I. Adding c_I·F₂ clamps it to at most −ε where A_E is negative,
      and to at least 0 elsewhere (eq. f_2_weak of the paper).

    Args:
        env: The env, with a source of F below.
        critic: A `CriticHandle`, or a function obs -> (value_ext, value_int[, q_ext]), where
            V_I is the value of the shaped stream F′.
        gamma_ext: γ_E.
        gamma_int: γ_I, at most γ_E.
        ext_coef: c_E, the weight of the extrinsic advantage in the agent's policy loss.
        int_coef: c_I, the weight of the intrinsic one.
        epsilon: ε, the margin by which a bad action must stay bad.
        tie_tolerance: A_E above minus this counts as not negative; 1e-9 for exact critics.
        int_bootstrap: V_I(s′) at an episode's end: "final" takes the final observation's,
            "none" 0 where terminated; "reset" needs a SAME_STEP vector env.
        intrinsic_scale: F is multiplied by it before shaping.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.
        autoreset_mode: When the env resets itself, if it does not declare it.
        allow_gamma_int_above_ext: Accept γ_I > γ_E, which loses the guarantee.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 0.5)
        >>> env = ADOPSWrapper(env, lambda obs: (0.0, 0.0))
        >>> _ = env.reset(seed=0)
        >>> info = env.step(0)[4]  # R = -1 and F = 0.5: the total -0.5 has the right sign
        >>> print(info["intrinsic_reward"], info["shaping_correction"])
        0.5 0.0
    """


class ADOPESTwin(ShapingTwin[AnyEnv]):
    """The arguments of `ADOPESWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        critic: AnyCritic | None = None,
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
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(
            env,
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
            critic=critic,
            consults_critic=True,
            int_bootstrap=int_bootstrap,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
            autoreset_mode=autoreset_mode,
        )


class ADOPESWrapper(ADOPESTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′ = F + ζ·F₂ with the F₂ of `ADOPSWrapper` and ζ rising from 0 to 1.

    The agent explores on the raw bonus first, while its critic is still poor.

    Args:
        env: The env, with a source of F below.
        critic: As for `ADOPSWrapper`, like all arguments not listed here.
        ramp_updates: The number of updates after which ζ is 1.
        update_every: The number of steps between two updates, or "episode" to count episodes.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import ADOPESWrapper, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 2.0)
        >>> critic = lambda obs: (0.0, 0.0)
        >>> env = ADOPESWrapper(env, critic, epsilon=0.0, ramp_updates=2, update_every=1)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(0)[4]["intrinsic_reward"]) for _ in range(3)]  # ADOPS would give 1.0
        [2.0, 1.5, 1.0]
    """
