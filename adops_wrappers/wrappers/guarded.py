"""The guarded scale."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from adops_wrappers.core import IntBootstrap
from adops_wrappers.shaping.guarded import GuardedScale
from adops_wrappers.shaping.schedule import UpdateEvery
from adops_wrappers.wrappers.base import ShapingWrapper
from adops_wrappers.wrappers.twins import AnyCritic, AnyEnv, ShapingTwin


class GuardedScaleTwin(ShapingTwin[AnyEnv]):
    """The arguments of `GuardedScaleWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        critic: AnyCritic | None = None,
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
        super().__init__(
            env,
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
            critic=critic,
            consults_critic=True,
            int_bootstrap=int_bootstrap,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
        )


class GuardedScaleWrapper(GuardedScaleTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′ = β·F: the bonus is reduced while the extrinsic return falls.

    β is 1 until the first extrinsic reward, then so small that the bonus's TD errors are a tenth of
    the task's; it shrinks while the smoothed return is below its best, and regrows otherwise. An
    empirical method without a theorem and with nothing to tune: see the documentation's study.

    Args:
        env: The env, with a source of F below.
        critic: A `CriticHandle`, or a function of an observation that returns (V_E, V_I).
        gamma_ext: Discount of the extrinsic stream.
        gamma_int: Discount of the intrinsic stream.
        ext_coef: c_E, the learner's weight of the extrinsic advantage.
        int_coef: c_I, the learner's weight of the intrinsic advantage.
        balance: ρ, the size of the bonus's TD errors relative to the task's when the first reward
            comes; 0 switches the bonus off for good.
        tolerance: How far the return may fall below its best, as a fraction of it.
        shrink: β is multiplied by e^−shrink at each update while the return has fallen.
        regrow: β is multiplied by e^regrow at each other update, up to 1.
        floor: β does not shrink below it.
        smoothing: Weight of the newest update in the smoothed return.
        forgetting: Fraction by which the best return moves towards the current one at each update.
        update_every: The number of steps between two updates, or "episode" to count episodes.
        int_bootstrap: V_I at an episode's end, as for `ADOPSWrapper`.
        intrinsic_scale: F is multiplied by it before shaping.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import GuardedScaleWrapper, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 2.0)
        >>> env = GuardedScaleWrapper(env, lambda obs: (0.0, 0.0), update_every=1)
        >>> _ = env.reset(seed=0)
        >>> [env.step(0)[4]["intrinsic_reward"] for _ in range(2)]  # R = -1: 2β = 0.1
        [2.0, 0.1]
    """
