"""Two optimal sets on one graph: what changed, what it costs, and the shortest way to see it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.graph import Graph, IntArray


class Verdict(NamedTuple):
    """The comparison, node by node."""

    gained: BoolArray
    """Actions that only the shaped task calls optimal, shape (N, A)."""
    lost: BoolArray
    """Actions that only the original task calls optimal, shape (N, A)."""
    compared: int
    """The number of nodes that counted."""
    regret: float
    path: IntArray
    """The edges of a shortest trajectory whose last action was gained, or else lost."""

    @property
    def preserved(self) -> bool:
        """Whether the optimal sets agree in every node that counts."""
        return not (self.gained.any() or self.lost.any())


def compare(
    graph: Graph,
    gamma: float,
    before: BoolArray,
    after: BoolArray,
    *,
    any_start: bool,
) -> Verdict:
    """Compare optimal sets before and after shaping in all nodes that a policy can reach.

    Args:
        graph: The problem.
        gamma: Its discount.
        before: The extrinsically optimal actions, shape (N, A).
        after: The actions optimal for the shaped reward.
        any_start: The regret is the largest over start nodes in place of the mean.
    """
    counts = graph.decides if any_start and graph.layers is None else graph.reachable()
    counts = (counts & graph.decides)[:, None]
    gained, lost = after & ~before & counts, before & ~after & counts
    compared = int(np.count_nonzero(counts))
    changed = (gained | lost).any(axis=1)
    if not changed.any():
        return Verdict(gained, lost, compared, 0.0, np.zeros(0, dtype=np.int64))
    regret = _regret(graph, gamma, after, any_start) if gained.any() else 0.0
    return Verdict(gained, lost, compared, regret, _shortest_path(graph, gained, lost, after))


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
