"""Random MDPs of every kind, for sweeps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.tabular.mdp import FiniteMDP


class Kind(NamedTuple):
    """What a random MDP is like."""

    stochastic: bool
    terminating: bool
    ties: bool
    """Rewards from {0, 1}, so that several actions are often optimal."""

    @property
    def label(self) -> str:
        """The kind in words."""
        return ", ".join(
            (
                "stochastic" if self.stochastic else "deterministic",
                "terminating" if self.terminating else "continuing",
                "ties" if self.ties else "no ties",
            )
        )


KINDS = tuple(
    Kind(stochastic, terminating, ties)
    for stochastic in (False, True)
    for terminating in (False, True)
    for ties in (False, True)
)


def random_mdp(
    rng: np.random.Generator, kind: Kind, *, max_states: int = 6, max_actions: int = 3
) -> FiniteMDP:
    """Return an MDP with 2 … max_states states, one of them terminal if it terminates, γ = 0.9.

    A stochastic transition has up to three outcomes. Episodes may start in any state.
    """
    states = int(rng.integers(2, max_states + 1))
    actions = int(rng.integers(2, max_actions + 1))
    transition = np.zeros((states, actions, states))
    for state, action in np.ndindex(states, actions):
        outcomes = rng.permutation(states)[: 3 if kind.stochastic else 1]
        transition[state, action, outcomes] = rng.dirichlet(np.ones(len(outcomes)))
    shape = (states, actions)
    reward = rng.integers(0, 2, shape).astype(np.float64) if kind.ties else rng.normal(size=shape)
    terminal = np.arange(states) == states - 1
    return FiniteMDP(transition, reward, 0.9, terminal if kind.terminating else None)


def random_bonus(rng: np.random.Generator, mdp: FiniteMDP, scale: float = 2.0) -> FloatArray:
    """Return a normal bonus F(s, a, s′), independent of everything."""
    return scale * rng.normal(size=mdp.transition.shape)
