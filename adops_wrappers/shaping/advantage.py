"""ADOPS on the advantage: the clamp of ADOPS on the advantages that a policy gradient uses.

No wrapper and no `Shaper`: F goes to the agent as it is. The learner, which has computed one
advantage for each stream, adds them up here. Arrays of any shape, or tensors of torch or JAX.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

from adops_wrappers import _checks
from adops_wrappers.backends import as_array, namespace
from adops_wrappers.shaping.conflict import is_bad

Values = TypeVar("Values")
"""A numpy array, or a tensor of torch or JAX."""
TINY = 1e-8
"""Stands for a size of 0 where one divides by it."""


def clamp_by_sign(total: Values, advantage_ext: Values, *, tie_tolerance: float = 0.0) -> Values:
    """Return `total`, with 0 wherever its sign is not that of the extrinsic advantage.

    A ← min(A, 0) where A_E < −tie_tolerance, and A ← max(A, 0) elsewhere.

    Args:
        total: The advantage that the agent is about to learn from, by two critics or by one that
            values R + F.
        advantage_ext: A_E, of the same shape.
        tie_tolerance: Extrinsic advantages above minus this count as not negative.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers.shaping.advantage import clamp_by_sign
        >>> clamp_by_sign(np.array([3.0, -3.0, 3.0, -3.0]), np.array([1.0, 1.0, -1.0, -1.0]))
        array([ 3.,  0.,  0., -3.])
    """
    a: Any = total
    bad: Any = is_bad(advantage_ext, tie_tolerance)  # type: ignore[arg-type]
    low, high = a.clip(None, 0.0), a.clip(0.0)
    return namespace(a).where(bad, low, high)  # type: ignore[no-any-return]


def clamp_advantage(
    advantage_ext: Values,
    advantage_int: Values,
    *,
    ext_coef: float = 1.0,
    int_coef: float = 1.0,
    tie_tolerance: float = 0.0,
) -> Values:
    """Return A = c_E·A_E + c_I·A_I, with 0 wherever its sign is not that of A_E.

    So a step along A makes no action likelier that the task calls bad, and none less likely that
    it does not. With exact A_E a natural gradient step π ∝ π·exp(η·A) then lowers V_E in no
    state, whatever A_I is. With learned critics this holds for the signs that they estimate.

    Args:
        advantage_ext: A_E of each step, by GAE for instance.
        advantage_int: A_I of each step, by the intrinsic stream's own discount and values.
        ext_coef: c_E.
        int_coef: c_I.
        tie_tolerance: Extrinsic advantages above minus this count as not negative.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers.shaping.advantage import clamp_advantage
        >>> clamp_advantage(np.array([0.5, -0.5, -0.5]), np.array([-2.0, 0.25, 2.0]))
        array([ 0.  , -0.25,  0.  ])
    """
    a, b = as_array(advantage_ext), as_array(advantage_int)
    total = ext_coef * a + int_coef * b
    return clamp_by_sign(total, a, tie_tolerance=tie_tolerance)  # type: ignore[no-any-return]


class AdvantageSum:
    """A = c_E·A_E + c_I·A_I, as RND's agent adds its two streams."""

    def __init__(self, ext_coef: float = 1.0, int_coef: float = 1.0) -> None:
        self.ext_coef = _checks.non_negative("ext_coef", ext_coef)
        self.int_coef = _checks.non_negative("int_coef", int_coef)
        self.rewarded = False
        """Whether an extrinsic reward has been seen."""

    def observe(self, reward: Any) -> None:
        """Look for an extrinsic reward among those of a rollout, before it is learned from."""
        self.rewarded = self.rewarded or bool((as_array(reward) != 0.0).any())

    def plain(self, advantage_ext: Values, advantage_int: Values) -> Values:
        """Return the sum itself."""
        a: Any = advantage_ext
        return self.ext_coef * a + self.int_coef * advantage_int  # type: ignore[no-any-return,operator]

    def __call__(self, advantage_ext: Values, advantage_int: Values) -> Values:
        """Return what the agent learns from."""
        return self.plain(advantage_ext, advantage_int)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"rewarded": self.rewarded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.rewarded = bool(state["rewarded"])


class ClampedAdvantage(AdvantageSum):
    """Adds up A_E and A_I by `clamp_advantage`, from the first extrinsic reward on.

    Before it, A_E is the noise of a critic that has nothing to value, and the agent explores as
    with the raw bonus. Processes that share a run let `observe` see the rewards of all of them.

    Args:
        ext_coef: c_E.
        int_coef: c_I.
    """

    def __call__(self, advantage_ext: Values, advantage_int: Values) -> Values:
        """Return the sum, clamped once there has been a reward."""
        if not self.rewarded:
            return self.plain(advantage_ext, advantage_int)
        coefs = {"ext_coef": self.ext_coef, "int_coef": self.int_coef}
        return clamp_advantage(advantage_ext, advantage_int, **coefs)


class AdvantageFloor:
    """The least size by which advantages are divided: a share of their size over all updates.

    A learner that divides advantages by their own root mean square blows up what is left of them
    near convergence, which is the noise of its critics, and unlearns what it has solved. In place
    of an absolute floor, which would depend on the size of rewards, this one remembers: it is
    `share` times the root mean square of all advantages so far, each update counting alike.

    Args:
        share: The floor as a fraction of that size.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers.shaping.advantage import AdvantageFloor
        >>> floor = AdvantageFloor(share=0.1)
        >>> round(floor.after(np.array([3.0, -4.0])), 4)  # √12.5 / 10
        0.3536
        >>> round(floor.after(np.array([0.0, 0.0])), 4)  # √6.25 / 10
        0.25
    """

    def __init__(self, share: float = 0.1) -> None:
        self.share = _checks.fraction("share", share)
        self._updates, self._mean_square = 0, 0.0

    def after(self, advantages: Any) -> float:
        """Count the advantages of one more update, and return the new floor, never 0."""
        self._updates += 1
        values = as_array(advantages)
        square = float((values * values).mean())
        self._mean_square += (square - self._mean_square) / self._updates
        return max(self.share * math.sqrt(self._mean_square), TINY)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"updates": self._updates, "mean_square": self._mean_square}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self._updates = int(state["updates"])
        self._mean_square = float(state["mean_square"])
