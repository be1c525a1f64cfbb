"""PBIM and GRM."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from adops_wrappers.shaping.grm import PBIM, MatchingFunction, make_grm
from adops_wrappers.wrappers.base import ShapingWrapper
from adops_wrappers.wrappers.spec import from_spec
from adops_wrappers.wrappers.twins import AnyCritic, AnyEnv, ShapingTwin


class PBIMTwin(ShapingTwin[AnyEnv]):
    """The arguments of `PBIMWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        *,
        gamma: float = 0.99,
        normalize: bool = False,
        alpha: float = 0.05,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: AnyCritic | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(
            env,
            PBIM,
            gamma=gamma,
            normalize=normalize,
            alpha=alpha,
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
            autoreset_mode=autoreset_mode,
        )


class PBIMWrapper(PBIMTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′ = F − F̄, and at an episode's last step minus all that was given, with interest.

    The settlement is −Σ_{i<N−1} γ^{i−(N−1)}·F′_i (eq. pbim_norm, its exponent corrected), so
    that Σ γ^t F′_t = 0. It grows like γ^−N, so use it with short episodes. Truncation settles
    the debt too; the learner's intrinsic return must not bootstrap over that end.

    Args:
        env: The env, with a source of F below. A `TimeLimit` belongs below this wrapper too:
            outside, it would hide the episode's end, and the debt would never be paid.
        gamma: The discount of the learner's intrinsic return.
        normalize: Subtract F̄, an exponential mean of F; F̄ is 0 otherwise.
        alpha: The smoothing factor of F̄.
        intrinsic_scale: F is multiplied by it before shaping.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.
        autoreset_mode: When the env resets itself, if it does not declare it.
        critic: Does not affect F′. At SAME_STEP ends its values of the final observations are
            written into `info`.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper, PBIMWrapper
        >>> env = gym.make("CliffWalking-v1", max_episode_steps=3)
        >>> env = PBIMWrapper(IntrinsicRewardWrapper(env, lambda s, a, next_s: 1.0), gamma=0.5)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(0)[4]["intrinsic_reward"]) for _ in range(3)]  # 1 + 0.5 - 0.25 * 6 = 0
        [1.0, 1.0, -6.0]
    """


class GRMTwin(ShapingTwin[AnyEnv]):
    """The arguments of `GRMWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        *,
        delay: float = 1,
        gamma: float = 0.99,
        normalize: bool = False,
        alpha: float = 0.05,
        matching: MatchingFunction | None = None,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: AnyCritic | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(
            env,
            make_grm,
            delay=delay,
            gamma=gamma,
            normalize=normalize,
            alpha=alpha,
            matching=from_spec(matching),
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
            autoreset_mode=autoreset_mode,
        )


class GRMWrapper(GRMTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′_t = f_t − γ^−D·f_{t−D}: each bonus is taken back D steps later, or at the end.

    f = F − F̄ as in `PBIMWrapper`; at the last step all that is still unmatched is taken back
    (eq. hyperparam_tuning). D = 0 gives no bonus, D = ∞ is PBIM. A `matching` function in place
    of the delay gives the general form F′_t = f_t − Σ_{i≤t} γ^{i−t}·m(t, i)·f_i (eq. drawer).

    Args:
        env: The env, with a source of F below, and a `TimeLimit` below as well.
        delay: D, a whole number or `math.inf`.
        gamma: The discount of the learner's intrinsic return.
        normalize: Subtract F̄, an exponential mean of F; F̄ is 0 otherwise.
        alpha: The smoothing factor of F̄.
        matching: `matching(t, t_prime, final) -> weight` in [0, 1], used instead of `delay`;
            `final` says that t is the episode's last step. The weights of each t′ must sum to
            1 by then, and be 0 for t′ > t.
        intrinsic_scale: F is multiplied by it before shaping.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.
        autoreset_mode: When the env resets itself, if it does not declare it.
        critic: Does not affect F′. At SAME_STEP ends its values of the final observations are
            written into `info`.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import GRMWrapper, IntrinsicRewardWrapper
        >>> env = gym.make("CliffWalking-v1", max_episode_steps=4)
        >>> env = GRMWrapper(IntrinsicRewardWrapper(env, lambda s, a, next_s: 1.0), gamma=0.5)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(0)[4]["intrinsic_reward"]) for _ in range(4)]
        [1.0, -1.0, -1.0, -2.0]
    """
