"""No shaping: the raw intrinsic reward, with the bookkeeping of the other methods."""

from __future__ import annotations

from typing import Any

from typing_extensions import Unpack

from adops_wrappers.backends import kept
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import FloatArray, Shaper, Transition
from adops_wrappers.wrappers.named import PlainSettings, wrapper_of


class NoShaping(Shaper):
    """F′ = F."""

    name = "none"
    keeps_state = False

    def step(self, transition: Transition) -> FloatArray:
        """Return F where the step is a real transition."""
        return kept(transition.intrinsic, transition.valid)  # type: ignore[no-any-return]


declare(Method("none", "raw", NoShaping))


@wrapper_of("none")
def NoShapingWrapper(env: Any, **settings: Unpack[PlainSettings]) -> None:
    """F′ = F: the raw bonus, with the same `info` and reward as the other methods.

    Args:
        env: The env, with a source of F below.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper, NoShapingWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 1.0)
        >>> env = NoShapingWrapper(env, intrinsic_scale=0.5)
        >>> _ = env.reset(seed=0)
        >>> env.step(0)[1]  # R = -1
        -0.5
    """
