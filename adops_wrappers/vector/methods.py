"""The vector twins of all shaping wrappers: the same arguments, a method state for every row.

The class of the same name in `adops_wrappers.wrappers` explains the arguments. Here critics and
potentials take batches and return one value for each row; `update_every` counts vector steps, and
"episode" counts the episodes of all rows.
"""

from gymnasium.vector import VectorEnv

from adops_wrappers.vector.base import ShapingWrapper
from adops_wrappers.wrappers.adops import ADOPESTwin, ADOPSTwin
from adops_wrappers.wrappers.grm import GRMTwin, PBIMTwin
from adops_wrappers.wrappers.guarded import GuardedScaleTwin
from adops_wrappers.wrappers.none import NoShapingTwin
from adops_wrappers.wrappers.pbrs import PBRSTwin
from adops_wrappers.wrappers.pies import PIESTwin


class ADOPSWrapper(ADOPSTwin[VectorEnv], ShapingWrapper):
    """F′ = F + F₂ for every row: see `adops_wrappers.wrappers.ADOPSWrapper`.

    One pass of the critic per vector step, shared with the agent. `int_bootstrap="reset"` takes
    V_I of the next episode's first observation, as RND's non-episodic learner does (SAME_STEP).

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


class ADOPESWrapper(ADOPESTwin[VectorEnv], ShapingWrapper):
    """F′ = F + ζ·F₂ for every row, with one ζ: see `adops_wrappers.wrappers.ADOPESWrapper`."""


class PIESWrapper(PIESTwin[VectorEnv], ShapingWrapper):
    """F′ = ζ·F for every row, with one ζ: see `adops_wrappers.wrappers.PIESWrapper`."""


class PBIMWrapper(PBIMTwin[VectorEnv], ShapingWrapper):
    """F′ = F − F̄, settled at each row's episode end: see `adops_wrappers.wrappers.PBIMWrapper`."""


class GRMWrapper(GRMTwin[VectorEnv], ShapingWrapper):
    """F′_t = f_t − γ^−D·f_{t−D} for every row: see `adops_wrappers.wrappers.GRMWrapper`."""


class GuardedScaleWrapper(GuardedScaleTwin[VectorEnv], ShapingWrapper):
    """F′ = β·F for every row, with one β: see `adops_wrappers.wrappers.GuardedScaleWrapper`.

    The extrinsic return is the mean over rows of each row's last finished episode.
    """


class PBRSWrapper(PBRSTwin[VectorEnv], ShapingWrapper):
    """F′ = F + γ·Φ(s′, t + 1) − Φ(s, t) for every row: see `adops_wrappers.wrappers.PBRSWrapper`.

    The potential takes a batch of observations and the array of their episode steps; where a
    SAME_STEP env ends episodes, also the final observations alone.

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


class NoShapingWrapper(NoShapingTwin[VectorEnv], ShapingWrapper):
    """F′ = F for every row: see `adops_wrappers.wrappers.NoShapingWrapper`."""
