"""PIES: explicit shaping that fades out (Behboudian et al. 2022)."""

from __future__ import annotations

from typing import Any

from typing_extensions import Unpack

from adops_wrappers import _checks
from adops_wrappers.backends import kept
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import FloatArray, Transition
from adops_wrappers.shaping.schedule import Scheduled, UpdateCounter, UpdateEvery
from adops_wrappers.wrappers.named import PlainSettings, wrapper_of


class PIES(Scheduled):
    """F′ = ζ_n·F with ζ_n = max(0, 1 − n/C), C = `decay_updates` (eq. pies_decay).

    The closed form, not the paper's recursion, which in floats reaches 0 one update late.
    """

    name = "PIES"
    state_depends_on = ("decay_updates", "update_every")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        decay_updates: int = 15000,
        update_every: UpdateEvery = 128,
    ) -> None:
        super().__init__(num_envs)
        self.decay_updates = _checks.whole("decay_updates", decay_updates, least=1)
        self.counter = UpdateCounter(update_every)

    def zeta_after(self, updates: int) -> float:
        """Return ζ_n, falling from 1 to 0."""
        return max(0.0, 1.0 - updates / self.decay_updates)

    def step(self, transition: Transition) -> FloatArray:
        """Return ζ·F, then count the step."""
        shaped: FloatArray = kept(self.zeta * transition.intrinsic, transition.valid)
        self.count(transition)
        return shaped


declare(Method("pies", "PIES", PIES, schedule=("decay_updates", "update_every")))


@wrapper_of("pies")
def PIESWrapper(
    env: Any,
    *,
    decay_updates: int = 15000,
    update_every: UpdateEvery = 128,
    **settings: Unpack[PlainSettings],
) -> None:
    """F′ = ζ_n·F with ζ_n = max(0, 1 − n/C): the bonus fades out (eq. pies_decay).

    Args:
        env: The env, with a source of F below.
        decay_updates: C, the number of updates after which the bonus is gone.
        update_every: The number of steps between two updates, or "episode" to count episodes.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper, PIESWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 1.0)
        >>> env = PIESWrapper(env, decay_updates=2, update_every=1)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(0)[4]["intrinsic_reward"]) for _ in range(3)]
        [1.0, 0.5, 0.0]
    """
