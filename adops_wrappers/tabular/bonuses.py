"""Bonuses that are more than a table: with a memory of the episode, or a view of its future."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.tabular.graph import IntArray
from adops_wrappers.tabular.mdp import FiniteMDP


class HistoryBonus(ABC):
    """A bonus F that depends on the episode so far, through a memory of k numbers."""

    @abstractmethod
    def initial(self, mdp: FiniteMDP) -> FloatArray:
        """Return the memory before the first step, shape (k,)."""

    @abstractmethod
    def step(
        self, memory: FloatArray, state: IntArray, action: IntArray, next_state: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return F of n transitions, shape (n,), and the memory after them, shape (n, k)."""


@dataclass(frozen=True)
class EpisodicCount(HistoryBonus):
    """F = scale / n(s′)^power, n(s′) being the visits to s′ in this episode, this one included.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers.tabular import EpisodicCount
        >>> visits = np.array([[0.0, 3.0]])
        >>> EpisodicCount().step(visits, np.array([0]), np.array([0]), np.array([1]))
        (array([0.5]), array([[0., 4.]]))
    """

    power: float = 0.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        _checks.positive("power", self.power)
        _checks.number("scale", self.scale, "a finite number")

    def initial(self, mdp: FiniteMDP) -> FloatArray:
        """No state has been visited."""
        return np.zeros(mdp.num_states)

    def step(
        self, memory: FloatArray, state: IntArray, action: IntArray, next_state: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Count the visit to s′, then pay for it."""
        visits = memory.copy()
        rows = np.arange(len(visits))
        visits[rows, next_state] += 1.0
        return self.scale / visits[rows, next_state] ** self.power, visits


@dataclass(frozen=True)
class FutureBonus:
    """A bonus that may look at the whole episode, its future included.

    Reward matching assumes that F_t does not depend on what is done after t (the paper's
    eq. assumption1); this is the bonus that breaks the assumption. It needs a horizon, and is
    audited over all trajectories.

    Args:
        function: `function(states, actions, taken)` with states of shape (n, T + 1), actions
            and the mask of steps that were really made of shape (n, T); returns F of shape
            (n, T). States and actions past an episode's end are 0.
    """

    function: Callable[[IntArray, IntArray, BoolArray], FloatArray]
