"""BSRS: the critic's own value as the potential (Adamczyk et al. 2025)."""

from __future__ import annotations

from typing import Any

from typing_extensions import Unpack

from adops_wrappers import _checks
from adops_wrappers.backends import cleared, kept
from adops_wrappers.critic import AnyCritic
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import FloatArray, Shaper, Transition
from adops_wrappers.wrappers.named import CriticSettings, wrapper_of


class BSRS(Shaper):
    """F′ = F + η·(γ·V̂(s′) − V̂(s)): PBRS with Φ = η·V̂, V̂ being V_E of the critic.

    V̂(s′) = 0 after termination; at truncation that of the final observation counts. γ is γ_I, the
    discount of the stream that F′ is part of.

    A critic that learns from R + F′ values what it has itself put in. Its updates contract for
    −1 < η < (1 − γ)/(1 + γ), and its fixed point is V/(1 + η). Outside, there are tasks on which
    it diverges.
    """

    name = "BSRS"
    keeps_state = False
    described = ("eta", "gamma_int")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        eta: float | None = None,
        gamma_ext: float = 0.999,
        gamma_int: float = 0.99,
        allow_any_eta: bool = False,
    ) -> None:
        super().__init__(num_envs)
        self.gamma_ext = _checks.discount("gamma_ext", gamma_ext)
        self.gamma_int = _checks.discount("gamma_int", gamma_int)
        self.allow_any_eta = bool(allow_any_eta)
        most = largest_eta(self.gamma_int)
        self.eta = eta
        self.weight = most / 2.0 if eta is None else _checks.number("eta", eta, "a finite number")
        """η."""
        if eta is not None and not allow_any_eta and not -1.0 < self.weight < most:
            raise ValueError(
                f"eta={eta} is outside the range in which a critic that learns from R + F' is sure "
                f"to converge: -1 < eta < (1 - gamma)/(1 + gamma), which is {most:.4g} at "
                f"gamma={self.gamma_int}. Choose one inside. For a critic that learns from R alone "
                "every eta is safe: say so, or accept the risk, with allow_any_eta=True."
            )

    @property
    def discounts(self) -> tuple[float, float]:
        """γ_E and γ_I."""
        return self.gamma_ext, self.gamma_int

    def step(self, transition: Transition) -> FloatArray:
        """Return F plus η times the discounted difference of the values."""
        t = transition
        after = cleared(t.next_value_ext, t.terminated)
        difference = self.gamma_int * after - t.value_ext
        return kept(t.intrinsic + self.weight * difference, t.valid)  # type: ignore[no-any-return]


def largest_eta(gamma: float) -> float:
    """Return (1 − γ)/(1 + γ), below which η must stay.

    With Φ = η·V an update is V ← max over a of E[R + γ·(1 + η)·V(s′)] − η·V(s), which contracts
    by γ·|1 + η| + |η|.
    """
    return (1.0 - gamma) / (1.0 + gamma)


declare(Method("bsrs", "BSRS", BSRS, needs_critic=True, does_without_bonus=True))


@wrapper_of("bsrs")
def BSRSWrapper(
    env: Any,
    critic: AnyCritic,
    *,
    eta: float | None = None,
    gamma_ext: float = 0.999,
    gamma_int: float = 0.99,
    allow_any_eta: bool = False,
    **settings: Unpack[CriticSettings],
) -> None:
    """F′ = F + η·(γ·V̂(s′) − V̂(s)): the agent's own value is the potential.

    F is the bonus of a source below, or 0 where there is none. V̂ is V_E of the critic, 0 after
    termination.

    Args:
        env: The env.
        critic: A `CriticHandle`, or a function obs -> (value_ext, value_int), of which V_I is
            not used.
        eta: η, above −1 and below (1 − γ)/(1 + γ). None: half of that.
        gamma_ext: γ_E, for a critic that learns by itself.
        gamma_int: γ_I, the discount of the stream that F′ is part of.
        allow_any_eta: Accept an η outside its range: for a critic that learns from R alone it
            is safe, for one that learns from R + F′ it may diverge.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import BSRSWrapper
        >>> env = gym.make("CliffWalking-v1")
        >>> env = BSRSWrapper(env, lambda obs: (float(obs), 0.0), gamma=0.5, eta=0.25)
        >>> _ = env.reset(seed=0)  # in cell 36
        >>> print(env.step(0)[4]["intrinsic_reward"])  # up, to cell 24: 0.25·(12 − 36)
        -6.0
    """
