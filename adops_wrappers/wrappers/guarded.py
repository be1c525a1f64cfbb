"""The guarded scale."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from adops_wrappers.shaping.guarded import GuardedScale
from adops_wrappers.shaping.schedule import UpdateEvery
from adops_wrappers.wrappers.base import ShapingWrapper
from adops_wrappers.wrappers.twins import AnyCritic, AnyEnv, ShapingTwin


class GuardedScaleTwin(ShapingTwin[AnyEnv]):
    """The arguments of `GuardedScaleWrapper`, for one env and for a vector env."""

    def __init__(
        self,
        env: AnyEnv,
        *,
        pause: float = 0.05,
        tolerance: float = 0.2,
        shrink: float = 0.5,
        regrow: float = 0.2,
        floor: float = 0.0001,
        smoothing: float = 0.2,
        forgetting: float = 0.02,
        update_every: UpdateEvery = 128,
        intrinsic_scale: float = 1.0,
        add_to_reward: bool = True,
        critic: AnyCritic | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(
            env,
            GuardedScale,
            pause=pause,
            tolerance=tolerance,
            shrink=shrink,
            regrow=regrow,
            floor=floor,
            smoothing=smoothing,
            forgetting=forgetting,
            update_every=update_every,
            critic=critic,
            intrinsic_scale=intrinsic_scale,
            add_to_reward=add_to_reward,
            autoreset_mode=autoreset_mode,
        )


class GuardedScaleWrapper(GuardedScaleTwin[gym.Env[Any, Any]], ShapingWrapper):
    """F′ = β·F: the bonus is reduced while the extrinsic return falls.

    β is 1 as long as the agent does not do worse than before. It shrinks while the smoothed return
    is below its best, pauses when the task pays for the first time, and regrows otherwise. It needs
    no critic. Give it a bonus of unit size (`IntrinsicRewardWrapper(..., normalizer="rms")`). An
    empirical method without a theorem: see the documentation's study.

    Args:
        env: The env, with a source of F below.
        pause: The largest β after an update in which the task has paid, until there is a score.
        tolerance: How far the return may fall below its best, as a fraction of it.
        shrink: β is multiplied by e^−shrink at each update while the return has fallen.
        regrow: β is multiplied by e^regrow at each other update, up to 1.
        floor: β does not shrink below it.
        smoothing: Weight of the newest update in the smoothed return.
        forgetting: Fraction by which the best return moves towards the current one at each update.
        update_every: The number of steps between two updates, or "episode" to count episodes.
        intrinsic_scale: F is multiplied by it before shaping.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.
        autoreset_mode: When the env resets itself, if it does not declare it.
        critic: Does not affect F′. At SAME_STEP ends its values of the final observations are
            written into `info`.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import GuardedScaleWrapper, IntrinsicRewardWrapper
        >>> env = gym.make("CliffWalking-v1", max_episode_steps=1)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: 2.0)
        >>> env = GuardedScaleWrapper(env, update_every="episode")
        >>> for action in (0, 1, 0):  # up, over the cliff, up
        ...     _ = env.reset(seed=0)
        ...     print(round(env.step(action)[4]["intrinsic_reward"], 2))
        2.0
        2.0
        1.21
    """
