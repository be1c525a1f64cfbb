"""PIES."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from adops_wrappers.shaping.pies import PIES
from adops_wrappers.shaping.schedule import UpdateEvery
from adops_wrappers.wrappers.base import ShapingWrapper
from adops_wrappers.wrappers.twins import AnyCritic, AnyEnv, ShapingTwin


class PIESTwin(ShapingTwin[AnyEnv]):
    """The arguments of `PIESWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        *,
        decay_updates: int = 15000,
        update_every: UpdateEvery = 128,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: AnyCritic | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(
            env,
            PIES,
            decay_updates=decay_updates,
            update_every=update_every,
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
            autoreset_mode=autoreset_mode,
        )


class PIESWrapper(PIESTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′ = ζ_n·F with ζ_n = max(0, 1 − n/C): the bonus fades out (eq. pies_decay).

    Args:
        env: The env, with a source of F below.
        decay_updates: C, the number of updates after which the bonus is gone.
        update_every: The number of steps between two updates, or "episode" to count episodes.
        intrinsic_scale: F is multiplied by it before shaping.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.
        autoreset_mode: When the env resets itself, if it does not declare it.
        critic: Does not affect F′. At SAME_STEP ends its values of the final observations are
            written into `info`.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper, PIESWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 1.0)
        >>> env = PIESWrapper(env, decay_updates=2, update_every=1)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(0)[4]["intrinsic_reward"]) for _ in range(3)]
        [1.0, 0.5, 0.0]
    """
