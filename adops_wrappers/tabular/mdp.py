"""`FiniteMDP`: a finite Markov decision process as arrays, checked and solved exactly."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.graph import Graph, IntArray

_SUM_TOLERANCE = 1e-8


class Solution(NamedTuple):
    """Optimal values, with a horizon H for each time: v of length H + 1, the others of H."""

    v: FloatArray
    """V*(s), shape (S,)."""
    q: FloatArray
    """Q*(s, a), shape (S, A)."""
    optimal: BoolArray
    """Whether a is optimal in s, ties included; all True in terminal states."""


class GridView(NamedTuple):
    """Where the states of a grid world are drawn; several panels share one floor plan."""

    row: IntArray
    column: IntArray
    panel: IntArray
    panel_names: tuple[str, ...] = ("",)


class Origin(NamedTuple):
    """How an MDP was found by trying out an env, and how well it is known."""

    pairs: int
    """The pairs of state and action."""
    random_pairs: int
    """The pairs with more than one outcome, or with a random reward."""
    fewest_samples: int
    """The fewest tries of a pair in which a random generator moved; 0 if none did."""
    most_samples: int
    """The most tries of such a pair."""
    probability_error: float
    """The largest standard error of a probability."""
    reward_error: float
    """The largest standard error of the expected reward of a pair."""
    walk_steps: int
    """The steps of the random walks on which the MDP agreed with the env."""
    layout_drawn: bool
    """Whether resets with other seeds than 0 begin in states that the MDP does not have."""

    def lines(self) -> list[str]:
        """Return what a report says about it."""
        lines = [f"  model       agrees with the env on {self.walk_steps} steps of random walks"]
        if self.layout_drawn:
            lines.append("  layout      layout of seed 0; other seeds begin elsewhere")
        if self.most_samples:
            lines.append(
                f"  random      {self.random_pairs} of {self.pairs} pairs of state and action are "
                f"random, from {self.fewest_samples} to {self.most_samples} samples each"
            )
            lines.append(
                f"  accuracy    standard errors up to {self.probability_error:.2g} (probability) "
                f"and {self.reward_error:.2g} (reward); ties may be hidden by them"
            )
            missed = 0.99**self.fewest_samples
            lines.append(
                f"  missed      an outcome of 1 in 100, with probability {missed:.1g} in each pair"
            )
        return lines


class FiniteMDP:
    """A finite MDP: P(s′ | s, a), R, γ, terminal states and a start distribution.

    Args:
        transition: P of shape (S, A, S). Rows of terminal states are not read.
        reward: R of shape (S, A) or (S, A, S).
        gamma: The discount in (0, 1]. γ = 1 without a horizon needs every policy to terminate.
        terminal: A mask of shape (S,), or the indices of the terminal states. Entering one ends
            the episode; what follows is worth 0.
        start: The start distribution of shape (S,), or the index of the only start state. None
            means that an episode may start in any state that is not terminal.
        action_names: Names for reports, one per action.
        grid: Where to draw each state, for plots.
        origin: How the MDP was found, if it was found by trying out an env.

    Raises:
        ValueError: If an array has a wrong shape, is not a probability, or holds values that are
            not finite.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import FiniteMDP
        >>> transition = np.zeros((2, 2, 2))
        >>> transition[:, :, 1] = 1.0  # both actions end the episode
        >>> bandit = FiniteMDP(transition, [[1.0, 0.0], [0.0, 0.0]], gamma=0.9, terminal=[1])
        >>> bandit.solve().optimal[0]
        array([ True, False])
    """

    def __init__(
        self,
        transition: npt.ArrayLike,
        reward: npt.ArrayLike,
        gamma: float,
        terminal: npt.ArrayLike | None = None,
        start: npt.ArrayLike | None = None,
        *,
        action_names: Sequence[str] | None = None,
        grid: GridView | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.transition = _floats("transition", transition)
        if self.transition.ndim != 3 or self.transition.shape[0] != self.transition.shape[2]:
            raise ValueError(
                "transition must have shape (S, A, S), the probability of each next state, got "
                f"{self.transition.shape}."
            )
        self.num_states, self.num_actions = self.transition.shape[:2]
        if 0 in self.transition.shape:
            raise ValueError("An MDP needs at least one state and one action, got none.")
        self.gamma = _checks.discount("gamma", gamma)
        self.terminal = self._terminal_mask(terminal)
        _check_transition(self.transition, self.terminal)
        self.reward = self.table("reward", reward)
        self.start = None if start is None else self._start_distribution(start)
        if action_names is not None and len(action_names) != self.num_actions:
            raise ValueError(
                f"action_names must hold {self.num_actions} names, got {len(action_names)}."
            )
        self.action_names = tuple(action_names or map(str, range(self.num_actions)))
        self.grid = grid
        self.origin = origin

    @staticmethod
    def from_env(env: Any, gamma: float, **options: Any) -> FiniteMDP:
        """Return the MDP behind an env: the old name of `mdp_from_env`."""
        from adops_wrappers.tabular.importers import mdp_from_env

        warnings.warn(
            "FiniteMDP.from_env(env, gamma) is deprecated and goes with version 0.4: use "
            "adops_wrappers.mdp_from_env(env, gamma).",
            DeprecationWarning,
            stacklevel=2,
        )
        return mdp_from_env(env, gamma, **options)

    def __repr__(self) -> str:
        return (
            f"FiniteMDP({self.num_states} states, {self.num_actions} actions, "
            f"gamma={self.gamma}, {int(self.terminal.sum())} terminal)"
        )

    @cached_property
    def graph(self) -> Graph:
        """The transitions of positive probability."""
        source, action, target = np.nonzero(self.transition * ~self.terminal[:, None, None])
        start = self.start
        if start is None:
            alive = (~self.terminal).astype(np.float64)
            start = alive / max(1.0, alive.sum())
        return Graph(
            num_actions=self.num_actions,
            start=start,
            source=source,
            action=action,
            target=target,
            probability=self.transition[source, action, target],
            reward=on_edges(self.reward, source, action, target),
            ended=self.terminal[target],
        )

    def table(self, name: str, values: npt.ArrayLike) -> FloatArray:
        """Return `values` as a checked float table of shape (S, A) or (S, A, S)."""
        array = _floats(name, values)
        short = (self.num_states, self.num_actions)
        if array.shape not in (short, (*short, self.num_states)):
            raise ValueError(
                f"{name} must have shape {short} or {(*short, self.num_states)}, got {array.shape}."
            )
        return array

    def solve(
        self, horizon: int | None = None, tie_tolerance: float = solver.TIE_TOLERANCE
    ) -> Solution:
        """Return V*, Q* and the optimal actions.

        Args:
            horizon: The number of steps after which everything ends; None for no limit.
            tie_tolerance: Actions this close to the best count as optimal too.
        """
        self.require_finite_values(horizon)
        _checks.non_negative("tie_tolerance", tie_tolerance)
        if horizon is None:
            v, q = solver.best_values(self.graph, self.gamma)
            return Solution(v.copy(), q.copy(), solver.optimal_actions(q, tie_tolerance))
        v = np.zeros((horizon + 1, self.num_states))
        q = np.zeros((horizon, self.num_states, self.num_actions))
        for t in reversed(range(horizon)):
            q[t] = solver.action_values(self.graph, self.graph.reward, v[t + 1], self.gamma)
            v[t] = q[t].max(axis=1)
        return Solution(v, q, solver.optimal_actions(q, tie_tolerance))

    def evaluate(self, policy: npt.ArrayLike, reward: npt.ArrayLike | None = None) -> Solution:
        """Return V^π and Q^π of a policy, and which actions are best against it.

        Args:
            policy: Probabilities of shape (S, A), or one action per state, shape (S,).
            reward: Another stream than R, of shape (S, A) or (S, A, S), such as a bonus.
        """
        self.require_finite_values(None)
        graph = self.graph
        table = self.reward if reward is None else self.table("reward", reward)
        stream = on_edges(table, graph.source, graph.action, graph.target)
        v, q = solver.evaluate(graph, stream, self.policy_table(policy), self.gamma)
        return Solution(v, q, solver.optimal_actions(q, solver.TIE_TOLERANCE))

    def occupancy(self, policy: npt.ArrayLike | None = None) -> FloatArray:
        """Return Σ_t γ^t·P(s_t = s) over states that are not terminal.

        Args:
            policy: As for `evaluate`; None takes every optimal action with equal probability.
        """
        self.require_finite_values(None)
        if policy is None:
            optimal = self.solve().optimal
            policy = optimal / optimal.sum(axis=1, keepdims=True)
        return solver.occupancy(self.graph, self.policy_table(policy), self.gamma)

    def policy_table(self, policy: npt.ArrayLike) -> FloatArray:
        """Return a policy as checked probabilities of shape (S, A)."""
        array = np.asarray(policy)
        if array.shape == (self.num_states,) and np.issubdtype(array.dtype, np.integer):
            if not ((array >= 0) & (array < self.num_actions)).all():
                raise ValueError(f"policy names actions outside 0 … {self.num_actions - 1}.")
            return np.asarray(np.eye(self.num_actions)[array], dtype=np.float64)
        table = _floats("policy", array)
        if table.shape != (self.num_states, self.num_actions) or not _distributions(table).all():
            raise ValueError(
                f"policy must hold probabilities of shape {(self.num_states, self.num_actions)} "
                f"that sum to 1 in every state, or {self.num_states} whole numbers; got shape "
                f"{table.shape}."
            )
        return table

    def state_index(self, state: Any) -> int:
        """Return `state` as an index, or raise if there is no such state."""
        try:
            index = int(state)
        except (TypeError, ValueError):
            index = -1
        if index != state or not 0 <= index < self.num_states:
            raise ValueError(f"Unknown state {state!r}: the states are 0 … {self.num_states - 1}.")
        return index

    def _terminal_mask(self, terminal: npt.ArrayLike | None) -> BoolArray:
        """Return a mask of terminal states, given as a mask or as a list of states."""
        mask = np.zeros(self.num_states, dtype=np.bool_)
        if terminal is None:
            return mask
        given = np.asarray(terminal)
        if given.dtype == np.bool_:
            if given.shape != mask.shape:
                raise ValueError(
                    f"terminal must be a mask of shape {mask.shape} or a list of states, got a "
                    f"mask of shape {given.shape}."
                )
            return np.array(given, dtype=np.bool_)
        for state in given.reshape(-1).tolist():
            mask[self.state_index(state)] = True
        return mask

    def _start_distribution(self, start: npt.ArrayLike) -> FloatArray:
        """Return a start distribution, given as one or as the only start state."""
        given = np.asarray(start)
        if given.ndim == 0:
            distribution = np.zeros(self.num_states)
            distribution[self.state_index(given.item())] = 1.0
            return distribution
        array = _floats("start", given)
        if array.shape != (self.num_states,) or not _distributions(array):
            raise ValueError(
                f"start must be a state or a distribution of shape ({self.num_states},) that sums "
                f"to 1, got shape {array.shape} and sum {array.sum():.9g}."
            )
        return array

    def require_finite_values(self, horizon: int | None) -> None:
        """Raise if values without a horizon may be infinite, or if the horizon is not a length."""
        if horizon is not None:
            _checks.whole("horizon", horizon, least=1)
        elif self.gamma == 1.0:
            endless = self._endless_states
            if len(endless):
                raise ValueError(
                    "gamma=1 needs every policy to reach a terminal state, but one can go on "
                    f"forever from state {endless[0]} ({len(endless)} such states). Choose "
                    "gamma < 1, give a horizon, or name the terminal states with terminal=."
                )

    @cached_property
    def _endless_states(self) -> IntArray:
        inside = ~self.terminal
        while True:
            leaves = np.any(self.transition[:, :, ~inside] > 0.0, axis=2)
            smaller = inside & ~np.all(leaves, axis=1)
            if (smaller == inside).all():
                return np.flatnonzero(inside)
            inside = smaller


def on_edges(table: FloatArray, source: IntArray, action: IntArray, target: IntArray) -> FloatArray:
    """Return the entries of an (S, A) or (S, A, S) table for each transition."""
    edges: FloatArray = table[source, action] if table.ndim == 2 else table[source, action, target]
    return edges


def _check_transition(transition: FloatArray, terminal: BoolArray) -> None:
    """Raise unless every state that is not terminal has a distribution for every action."""
    wrong = ~_distributions(transition) & ~terminal[:, None]
    if wrong.any():
        state, action = (int(i) for i in np.argwhere(wrong)[0])
        row = transition[state, action]
        raise ValueError(
            f"transition[{state}, {action}] is not a probability distribution: it sums to "
            f"{row.sum():.9g} and its least entry is {row.min():.9g}. The entries of every "
            "state and action must be at least 0 and sum to 1; only terminal states may have "
            "other rows."
        )


def _floats(name: str, values: npt.ArrayLike) -> FloatArray:
    """Return a finite float64 copy of `values`."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}.") from error
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, but {name}{list(where)} is {array[where]}.")
    return array


def _distributions(array: FloatArray) -> BoolArray:
    """Return which rows of the last axis are probability distributions."""
    sums_to_one = np.abs(array.sum(axis=-1) - 1.0) <= _SUM_TOLERANCE
    ok: BoolArray = sums_to_one & (array >= 0.0).all(axis=-1)
    return ok
