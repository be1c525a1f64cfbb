"""No shaping."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from adops_wrappers.shaping.none import NoShaping
from adops_wrappers.wrappers.base import ShapingWrapper
from adops_wrappers.wrappers.twins import AnyCritic, AnyEnv, ShapingTwin


class NoShapingTwin(ShapingTwin[AnyEnv]):
    """The arguments of `NoShapingWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        *,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: AnyCritic | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(
            env,
            NoShaping,
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
            autoreset_mode=autoreset_mode,
        )


class NoShapingWrapper(NoShapingTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′ = F: the raw bonus, with the same `info` and reward as the other methods.

    Args:
        env: The env, with a source of F below.
        intrinsic_scale: F is multiplied by it.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.
        autoreset_mode: When the env resets itself, if it does not declare it.
        critic: Does not affect F′. At SAME_STEP ends its values of the final observations are
            written into `info`.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper, NoShapingWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 1.0)
        >>> env = NoShapingWrapper(env, intrinsic_scale=0.5)
        >>> _ = env.reset(seed=0)
        >>> env.step(0)[1]  # R = -1
        -0.5
    """
