"""PIES as first published (Behboudian et al. 2022): it shapes the policy, not the reward.

No wrapper and no `Shaper`: an agent with Q values learns Q from R alone, Φ from −F beside it, and
acts on Q − ξ·Φ. Arrays of numpy and torch alike, of any shape.
"""

from __future__ import annotations

from typing import Any, TypeVar

from adops_wrappers import _checks

Values = TypeVar("Values")
"""A numpy array or a torch tensor."""


class ExplicitShaping:
    """π(s) = argmax over a of Q(s, a) − ξ·Φ(s, a), with ξ = max(0, 1 − n/C) falling from 1 to 0.

    Φ is an action value of the reward −F, which SARSA learns: Φ(s, a) ← −F + γ·Φ(s′, a′), where
    a′ is the action that is taken next. So −Φ is what the bonus is worth to the policy that acts,
    and Q, learned from R alone, stays the task's own. Once ξ = 0 the agent acts on Q.

    Args:
        decay_updates: C, the number of calls of `update` after which ξ is 0; the paper counts
            episodes.
        gamma: The discount of Φ.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import ExplicitShaping
        >>> shaping = ExplicitShaping(decay_updates=2, gamma=0.5)
        >>> phi_target = shaping.target(np.array([3.0]), np.array([-4.0]), np.array([False]))
        >>> phi_target
        array([-5.])
        >>> shaping.preferences(np.array([1.0, 0.0]), np.array([0.0, -5.0]))
        array([1., 5.])
        >>> shaping.update(), shaping.update()
        (None, None)
        >>> shaping.preferences(np.array([1.0, 0.0]), np.array([0.0, -5.0]))
        array([1., 0.])
    """

    def __init__(self, *, decay_updates: int, gamma: float = 0.99) -> None:
        self.decay_updates = _checks.whole("decay_updates", decay_updates, least=1)
        self.gamma = _checks.discount("gamma", gamma)
        self.updates = 0
        """n."""

    @property
    def xi(self) -> float:
        """ξ now."""
        return max(0.0, 1.0 - self.updates / self.decay_updates)

    def update(self) -> None:
        """Count an update, or an episode."""
        self.updates += 1

    def preferences(self, q: Values, phi: Values) -> Values:
        """Return Q − ξ·Φ, of which the agent takes the largest; ε-greedily, while it explores."""
        values: Any = q
        return values - self.xi * phi  # type: ignore[no-any-return,operator]

    def target(self, intrinsic: Values, next_phi: Values, terminated: Any) -> Values:
        """Return what Φ(s, a) learns: −F + γ·Φ(s′, a′), without the second term after an end.

        Args:
            intrinsic: F of the steps (s, a, s′).
            next_phi: Φ(s′, a′) of the actions that are taken next.
            terminated: Where the episode terminated.
        """
        bonus: Any = intrinsic
        goes_on = 1.0 - 1.0 * terminated
        return self.gamma * goes_on * next_phi - bonus  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.updates = int(state["updates"])
