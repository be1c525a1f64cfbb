"""Bonuses that are more than a table, and those that the command line offers by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.tabular.graph import IntArray
from adops_wrappers.tabular.mdp import FiniteMDP

BONUSES = {
    "noisy-tv": "scale for every arrival in one state; in the gallery, in the tempting cells",
    "random": "scale times a standard normal number per transition",
    "reward": "scale times R itself",
    "episodic-count": "scale / sqrt(visits to s' in this episode); needs --horizon",
}


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
class DistinctStates(HistoryBonus):
    """φ = scale·min(number of distinct states seen, most): what BAMPF takes in place of F.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers.tabular import DistinctStates
        >>> nothing = np.zeros((1, 2))
        >>> DistinctStates().step(nothing, np.array([0]), np.array([0]), np.array([1]))
        (array([2.]), array([[1., 1.]]))
    """

    scale: float = 1.0
    most: float = np.inf

    def initial(self, mdp: FiniteMDP) -> FloatArray:
        """No state has been seen."""
        return np.zeros(mdp.num_states)

    def step(
        self, memory: FloatArray, state: IntArray, action: IntArray, next_state: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """See s and s′, and measure."""
        seen = memory.copy()
        rows = np.arange(len(seen))
        seen[rows, state] = seen[rows, next_state] = 1.0
        return self.scale * np.minimum(seen.sum(axis=1), self.most), seen


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


def named_bonus(
    name: str,
    mdp: FiniteMDP,
    env: Any = None,
    *,
    scale: float = 1.0,
    seed: int = 0,
    tv_state: int | None = None,
) -> FloatArray | HistoryBonus:
    """Return one of `BONUSES`, or the table in a file whose name ends in .npy.

    Args:
        name: A name or a path.
        mdp: The MDP that the bonus is for.
        env: The env behind it; a gallery env has tempting cells of its own.
        scale: A factor.
        seed: For the random bonus.
        tv_state: Where the noisy TV is; None takes the first reachable state that no optimal
            trajectory visits.
    """
    if name == "noisy-tv":
        if tv_state is None and hasattr(env, "tempting_bonus"):
            return np.asarray(env.tempting_bonus(scale), dtype=np.float64)
        state = _quiet_state(mdp) if tv_state is None else mdp.state_index(tv_state)
        bonus = np.zeros(mdp.transition.shape)
        bonus[:, :, state] = scale
        return bonus
    if name == "random":
        return scale * np.random.default_rng(seed).normal(size=mdp.transition.shape)
    if name == "reward":
        return scale * mdp.reward
    if name == "episodic-count":
        return EpisodicCount(scale=scale)
    if name.endswith(".npy"):
        if not Path(name).is_file():
            raise ValueError(f"There is no file {name!r} to read the bonus from.")
        return scale * mdp.table("bonus", np.load(name))
    raise ValueError(
        f"There is no bonus {name!r}. The names are: {', '.join(BONUSES)}; a path that ends in "
        ".npy names a file with an array of shape (S, A) or (S, A, S)."
    )


def _quiet_state(mdp: FiniteMDP) -> int:
    possible = mdp.graph.reachable() & ~mdp.terminal
    quiet = possible & (mdp.occupancy() < 1e-12)
    return int(np.argmax(quiet if quiet.any() else possible))
