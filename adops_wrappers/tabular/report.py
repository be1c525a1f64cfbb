"""What an audit found: two optimal sets compared, for people and for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.shaping import METHODS
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.graph import Graph, IntArray
from adops_wrappers.tabular.mdp import FiniteMDP

_SHOWN_STATES = 6


class Step(NamedTuple):
    """One transition of a counterexample."""

    state: int
    action: int
    next_state: int
    reward: float
    """R."""
    bonus: float
    """F."""
    shaped: float
    """F′."""


@dataclass(frozen=True)
class AuditReport:
    """Whether a shaped bonus keeps the optimal policies of an MDP, and if not, where it fails."""

    preserved: bool
    """Whether every state has the same optimal actions before and after shaping."""
    changed_states: IntArray
    """The states whose optimal set changed."""
    gained: BoolArray
    """Actions that became optimal, shape (S, A). With a horizon or a memory: at some time, after
    some history."""
    lost: BoolArray
    """Actions that are no longer optimal, shape (S, A)."""
    regret: float
    """V_E* less V_E of the worst policy that the shaped task calls optimal, from the start
    distribution, or in the worst start state where none was given."""
    counterexample: tuple[Step, ...] | None
    """A shortest trajectory, along shaped-optimal actions where one exists, whose last action
    was gained, or lost if none was gained there. None if the set is preserved."""
    shaped_bonus: FloatArray | None
    """F′ of shape (S, A), or (S, A, S) where it depends on s′; its mean over s′ of shape
    (H, S, A) with a horizon, NaN where no policy is at that time. None if F′ has a memory."""
    method: str
    nodes: int
    """The number of decision points compared: states, times the times and histories."""
    horizon: int | None
    optimal_before: BoolArray = field(repr=False)
    """The extrinsically optimal actions, shape (S, A)."""
    optimal_after: BoolArray = field(repr=False)
    """The actions optimal after shaping, shape (S, A)."""
    mdp: FiniteMDP = field(repr=False)
    zeta: float | None = None
    """The ζ, or β of the guarded scale, at which the audit held the method, if it has one."""

    def __str__(self) -> str:
        lines = [f"{self.label}: optimal policies {'PRESERVED' if self.preserved else 'CHANGED'}"]
        size = f"{self.nodes} decision points, gamma={self.mdp.gamma}"
        horizon = "" if self.horizon is None else f", horizon={self.horizon}"
        lines.append(f"  compared    {size}{horizon}")
        if self.zeta is not None:
            symbol = METHODS[self.method].shaper.zeta_symbol
            lines.append(f"  held        {symbol} = {self.zeta:g}, which training would move")
        lines += self.mdp.origin.lines() if self.mdp.origin else []
        if self.preserved:
            return "\n".join(lines)
        lines.append(f"  changed     {len(self.changed_states)} states")
        for state in self.changed_states[:_SHOWN_STATES].tolist():
            gained, lost = self._names(self.gained[state]), self._names(self.lost[state])
            lines.append(f"    state {state:>4}  gained: {gained or '-'}   lost: {lost or '-'}")
        if len(self.changed_states) > _SHOWN_STATES:
            lines.append(f"    … and {len(self.changed_states) - _SHOWN_STATES} more")
        lines.append(f"  regret      {self.regret:.6g} (of the worst newly optimal policy)")
        if self.counterexample:
            last = self.counterexample[-1]
            kind = "now optimal" if self.gained[last.state, last.action] else "no longer optimal"
            lines.append(f"  shortest counterexample (its last action is {kind})")
            lines.extend(f"    {self._step_text(step)}" for step in self.counterexample)
        return "\n".join(lines)

    @property
    def label(self) -> str:
        """The method's name for people."""
        return "raw bonus" if self.method == "none" else self.method

    def to_dict(self) -> dict[str, Any]:
        """Return all but the arrays of optimal sets as plain Python values, fit for JSON."""
        return {
            "method": self.method,
            "zeta": self.zeta,
            "preserved": self.preserved,
            "changed_states": self.changed_states.tolist(),
            "gained": _by_state(self.gained),
            "lost": _by_state(self.lost),
            "regret": self.regret,
            "counterexample": self.counterexample and [s._asdict() for s in self.counterexample],
            "nodes": self.nodes,
            "horizon": self.horizon,
            "gamma": self.mdp.gamma,
            "states": self.mdp.num_states,
            "origin": self.mdp.origin and self.mdp.origin._asdict(),
            "actions": list(self.mdp.action_names),
        }

    def _names(self, actions: BoolArray) -> str:
        return ", ".join(self.mdp.action_names[a] for a in np.flatnonzero(actions))

    def _step_text(self, step: Step) -> str:
        return (
            f"{step.state} --{self.mdp.action_names[step.action]}--> {step.next_state}   "
            f"R={step.reward:g}  F={step.bonus:g}  F'={step.shaped:.6g}"
        )


def compare(
    mdp: FiniteMDP,
    graph: Graph,
    state: IntArray,
    before: BoolArray,
    after: BoolArray,
    *,
    describe: Callable[[IntArray], Iterable[Step]],
    **about: Any,
) -> AuditReport:
    """Compare optimal sets before and after shaping in all nodes that a policy can reach.

    Args:
        mdp: The task.
        graph: The problem, unfolded as far as its horizon and memory require.
        state: The MDP's state of each node.
        before: The extrinsically optimal actions, shape (N, A).
        after: The actions optimal for the shaped reward.
        describe: Returns the steps of a path, given as edges.
        **about: The report's fields that say what was audited.
    """
    any_start = mdp.start is None
    counts = graph.decides if any_start and graph.layers is None else graph.reachable()
    counts = (counts & graph.decides)[:, None]
    gained, lost = after & ~before & counts, before & ~after & counts
    preserved = not (gained.any() or lost.any())
    path = [] if preserved else describe(_shortest_path(graph, gained, lost, after))
    state_gained, state_lost, state_before, state_after = (
        _per_state(mdp, state, table) for table in (gained, lost, before, after)
    )
    return AuditReport(
        preserved=preserved,
        changed_states=np.flatnonzero((state_gained | state_lost).any(axis=1)),
        gained=state_gained,
        lost=state_lost,
        regret=_regret(graph, mdp.gamma, after, any_start) if gained.any() else 0.0,
        counterexample=tuple(path) or None,
        nodes=int(np.count_nonzero(counts)),
        optimal_before=state_before,
        optimal_after=state_after,
        mdp=mdp,
        **about,
    )


def _per_state(mdp: FiniteMDP, state: IntArray, table: BoolArray) -> BoolArray:
    """Return which (state, action) is True in some node."""
    pairs = (state[:, None] * mdp.num_actions + np.arange(mdp.num_actions))[table]
    flat = np.zeros(mdp.num_states * mdp.num_actions, dtype=np.bool_)
    flat[pairs] = True
    return flat.reshape(mdp.num_states, mdp.num_actions)


def _by_state(table: BoolArray) -> dict[str, list[int]]:
    return {
        str(state): np.flatnonzero(table[state]).tolist()
        for state in np.flatnonzero(table.any(axis=1)).tolist()
    }


def _regret(graph: Graph, gamma: float, after: BoolArray, any_start: bool) -> float:
    """Return V_E* less V_E of the worst policy among the newly optimal ones, at the start."""
    best, _ = solver.best_values(graph, gamma)
    negative_worst, _ = solver.maximise(graph, -graph.reward, gamma, after)
    shortfall: FloatArray = best + negative_worst
    at_start = graph.start > 0
    if any_start:
        return max(0.0, float(shortfall[at_start].max()))
    return max(0.0, float((graph.start * shortfall)[at_start].sum()))


def _shortest_path(graph: Graph, gained: BoolArray, lost: BoolArray, after: BoolArray) -> IntArray:
    changed = np.asarray((gained | lost).any(axis=1), dtype=np.bool_)
    # First along actions that the shaped task calls optimal: its agent really goes there.
    followed = after[graph.source, graph.action]
    path = _search(graph, changed, followed)
    if path is None:
        path = _search(graph, changed, np.ones_like(followed))
    assert path is not None
    node, edges = path
    wanted = gained[node] if gained[node].any() else lost[node]
    last, _ = graph.edges_of(np.array([node]))
    last = last[wanted[graph.action[last]]]
    likeliest = last[np.argmax(graph.probability[last])]
    return np.array([*edges, likeliest], dtype=np.int64)


def _search(graph: Graph, goal: BoolArray, usable: BoolArray) -> tuple[int, list[int]] | None:
    """Breadth first from the start: the nearest goal node and the edges that lead to it."""
    arrived_by = np.full(graph.num_nodes, -1, dtype=np.int64)
    seen = (graph.start > 0) & graph.decides
    frontier = np.flatnonzero(seen)
    while len(frontier):
        if goal[frontier].any():
            node = found = int(frontier[np.argmax(goal[frontier])])
            edges: list[int] = []
            while arrived_by[node] >= 0:
                edges.append(int(arrived_by[node]))
                node = int(graph.source[arrived_by[node]])
            return found, edges[::-1]
        edge, _ = graph.edges_of(frontier)
        edge = edge[usable[edge] & ~graph.ended[edge]]
        targets, first = np.unique(graph.target[edge], return_index=True)
        fresh = ~seen[targets]
        frontier = targets[fresh]
        arrived_by[frontier] = edge[first[fresh]]
        seen[frontier] = True
    return None
