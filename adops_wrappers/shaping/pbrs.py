"""PBRS: potential-based shaping (Ng et al. 1999), with time-dependent Φ (Devlin & Kudenko 2012)."""

from __future__ import annotations

from typing import Any

from typing_extensions import Unpack

from adops_wrappers import _checks
from adops_wrappers.backends import cleared, kept
from adops_wrappers.estimates import Potential
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import FloatArray, Shaper, Transition
from adops_wrappers.wrappers.named import PlainSettings, wrapper_of


class PBRS(Shaper):
    """F′ = F + γ·Φ(s′, t + 1) − Φ(s, t), with Φ = 0 after termination.

    This is the paper's eq. pot_based_shaping_reward, on top of a source's F where there is one. At
    truncation Φ of the final observation is used, and the learner bootstraps as usual.
    """

    name = "PBRS"
    keeps_state = False
    described = ("gamma",)

    def __init__(self, num_envs: int = 1, *, gamma: float) -> None:
        super().__init__(num_envs)
        self.gamma = _checks.discount("gamma", gamma)

    def step(self, transition: Transition) -> FloatArray:
        """Return F plus the discounted difference of the potentials."""
        if transition.potential is None or transition.next_potential is None:
            raise ValueError(
                "PBRS needs the fields potential and next_potential of the Transition."
            )
        next_potential = cleared(transition.next_potential, transition.terminated)
        difference = self.gamma * next_potential - transition.potential
        return kept(transition.intrinsic + difference, transition.valid)  # type: ignore[no-any-return]


declare(Method("pbrs", "PBRS", PBRS, needs_potential=True, does_without_bonus=True))


@wrapper_of("pbrs")
def PBRSWrapper(
    env: Any,
    potential: Potential,
    *,
    gamma: float,
    **settings: Unpack[PlainSettings],
) -> None:
    """F′ = F + γ·Φ(s′, t + 1) − Φ(s, t), with Φ = 0 after termination (Ng et al. 1999).

    F is the bonus of a source below, or 0 where there is none. At truncation Φ of the final
    observation counts, and the learner bootstraps as usual.

    Args:
        env: The env.
        potential: `potential(obs, t)`, t being the steps taken in the episode. For a vector env it
            takes a batch and the array of t; where a SAME_STEP env ends episodes, also the final
            observations alone.
        gamma: The discount of the learner's return.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import PBRSWrapper
        >>> env = PBRSWrapper(gym.make("CliffWalking-v1"), lambda obs, t: float(obs), gamma=1.0)
        >>> _ = env.reset(seed=0)  # from cell 36
        >>> print(env.step(0)[4]["intrinsic_reward"])  # up, to cell 24
        -12.0
    """
