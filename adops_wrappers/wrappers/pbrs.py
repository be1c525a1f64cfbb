"""PBRS."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from adops_wrappers.estimates import Potential
from adops_wrappers.shaping.pbrs import PBRS
from adops_wrappers.wrappers.base import ShapingWrapper
from adops_wrappers.wrappers.twins import AnyCritic, AnyEnv, ShapingTwin


class PBRSTwin(ShapingTwin[AnyEnv]):
    """The arguments of `PBRSWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        potential: Potential,
        *,
        gamma: float,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: AnyCritic | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(
            env,
            PBRS,
            gamma=gamma,
            potential=potential,
            needs_intrinsic=False,
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
            autoreset_mode=autoreset_mode,
        )


class PBRSWrapper(PBRSTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′ = F + γ·Φ(s′, t + 1) − Φ(s, t), with Φ = 0 after termination (Ng et al. 1999).

    F is the bonus of a source below, or 0 where there is none. At truncation Φ of the final
    observation counts, and the learner bootstraps as usual.

    Args:
        env: The env.
        potential: `potential(obs, t)`, t being the steps taken in the episode.
        gamma: The discount of the learner's return.
        intrinsic_scale: F is multiplied by it before shaping; Φ is not.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.
        autoreset_mode: When the env resets itself, if it does not declare it.
        critic: Does not affect F′. At SAME_STEP ends its values of the final observations are
            written into `info`.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import PBRSWrapper
        >>> env = PBRSWrapper(gym.make("CliffWalking-v1"), lambda obs, t: float(obs), gamma=1.0)
        >>> _ = env.reset(seed=0)  # from cell 36
        >>> print(env.step(0)[4]["intrinsic_reward"])  # up, to cell 24
        -12.0
    """
