"""Exact values on a `Graph`: policy iteration where it is cyclic, backward induction in layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adops_wrappers._extras import analysis_package
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.tabular.graph import Graph

TIE_TOLERANCE = 1e-9
"""Actions whose values differ by less are tied: well above float noise, below ADOPS' ε."""

_WARM_START_SWEEPS = 50
_SMALL = 64
_MAX_DENSE_NODES = 3000
_SPARSE_DENSITY = 0.05
_MAX_IMPROVEMENTS = 1000


def action_values(graph: Graph, reward: FloatArray, values: FloatArray, gamma: float) -> FloatArray:
    """Return q(s, a) = E[reward + γ·v(s′)], shape (N, A), for a `reward` per edge."""
    return graph.expected(reward + gamma * graph.next_value(values))


def maximise(
    graph: Graph, reward: FloatArray, gamma: float, allowed: BoolArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return (v, q) of the best policy among those that take only `allowed` actions.

    Args:
        graph: The problem.
        reward: The reward of every edge.
        gamma: The discount.
        allowed: The actions that a policy may take, shape (N, A); None for all.
    """
    blocked = np.zeros((graph.num_nodes, graph.num_actions))
    if allowed is not None:
        # Not where nothing is decided: −∞ would spread from there to all states before.
        blocked = np.where(allowed | ~graph.decides[:, None], 0.0, -np.inf)

    def best(q: FloatArray, nodes: slice = slice(None)) -> FloatArray:
        value: FloatArray = (q + blocked[nodes]).max(axis=1)
        return value

    if graph.layers is not None:
        return _backward(graph, reward, gamma, best)
    v = np.zeros(graph.num_nodes)
    # Sweeps save a large problem many linear solves; a small one is faster without them.
    for _ in range(_WARM_START_SWEEPS if graph.num_nodes > _SMALL else 0):
        v = best(action_values(graph, reward, v, gamma))
    q = action_values(graph, reward, v, gamma) + blocked
    policy = q.argmax(axis=1)
    rows = np.arange(graph.num_nodes)
    for _ in range(_MAX_IMPROVEMENTS):
        v = _policy_values(graph, reward, np.eye(graph.num_actions)[policy], gamma)
        q = action_values(graph, reward, v, gamma)
        masked = q + blocked
        gain = masked.max(axis=1) - q[rows, policy]
        # Below rounding, tied actions would replace each other for ever.
        if gain.max(initial=0.0) <= 1e-13 * max(1.0, float(np.abs(v).max(initial=0.0))):
            break
        policy = np.where(gain > 0.0, masked.argmax(axis=1), policy)
    return v, q


def best_values(graph: Graph, gamma: float) -> tuple[FloatArray, FloatArray]:
    """Return (V*, Q*) of the graph's own reward, computed once per graph."""
    if gamma not in graph.solved:
        graph.solved[gamma] = maximise(graph, graph.reward, gamma)
    return graph.solved[gamma]


def evaluate(
    graph: Graph, reward: FloatArray, policy: FloatArray, gamma: float
) -> tuple[FloatArray, FloatArray]:
    """Return (v, q) of a policy, probabilities of shape (N, A), on a graph without layers."""
    v = _policy_values(graph, reward, policy, gamma)
    return v, action_values(graph, reward, v, gamma)


def occupancy(graph: Graph, policy: FloatArray, gamma: float) -> FloatArray:
    """Return d(s) = Σ_t γ^t·P(s_t = s) from the start distribution, over nodes that decide."""
    return _solve_flow(graph, policy, gamma, graph.start, transposed=True)


def optimal_actions(q: FloatArray, tie_tolerance: float) -> BoolArray:
    """Return which actions are within the tie tolerance of the best one."""
    optimal: BoolArray = q >= q.max(axis=-1, keepdims=True) - tie_tolerance
    return optimal


def best_trajectory_values(
    graph: Graph, reward: FloatArray, gamma: float, allowed: BoolArray
) -> FloatArray:
    """Return the largest return of any trajectory of positive probability with allowed actions.

    Chance counts as a choice: each edge becomes an action.
    """
    rank = np.arange(len(graph.source)) - graph.first_edge[graph.source]
    width = int(rank.max(initial=0)) + 1
    every = np.ones(len(rank))
    chosen = replace(graph, num_actions=width, action=rank, probability=every, solved={})
    permitted = np.zeros((graph.num_nodes, width), dtype=np.bool_)
    permitted[graph.source, rank] = allowed[graph.source, graph.action]
    return maximise(chosen, reward, gamma, permitted)[0]


def _backward(
    graph: Graph,
    reward: FloatArray,
    gamma: float,
    summarise: Callable[[FloatArray, slice], FloatArray],
) -> tuple[FloatArray, FloatArray]:
    v = np.zeros(graph.num_nodes)
    q = np.zeros((graph.num_nodes, graph.num_actions))
    for nodes, edges in reversed(graph.layers or ()):
        onward = np.where(graph.ended[edges], 0.0, v[graph.target[edges]])
        weights = graph.probability[edges] * (reward[edges] + gamma * onward)
        pair = graph.pair[edges] - nodes.start * graph.num_actions
        size = (nodes.stop - nodes.start) * graph.num_actions
        q[nodes] = np.bincount(pair, weights, minlength=size).reshape(-1, graph.num_actions)
        v[nodes] = summarise(q[nodes], nodes)
    return v, q


def _policy_values(
    graph: Graph, reward: FloatArray, policy: FloatArray, gamma: float
) -> FloatArray:
    gained = (policy * graph.expected(reward)).sum(axis=1)
    return _solve_flow(graph, policy, gamma, gained)


def _solve_flow(
    graph: Graph, policy: FloatArray, gamma: float, right: FloatArray, transposed: bool = False
) -> FloatArray:
    """Solve (I − γ·P_π)·x = right, or with the transposed matrix."""
    weights = gamma * graph.probability * policy[graph.source, graph.action]
    used = ~graph.ended & (weights > 0.0)
    row, column = graph.source[used], graph.target[used]
    if transposed:
        row, column = column, row
    size = graph.num_nodes
    few_edges = np.count_nonzero(used) < _SPARSE_DENSITY * size**2
    if size > _SMALL and few_edges:
        try:
            sparse, linalg = (
                analysis_package(name, f"a problem of {size} nodes")
                for name in ("scipy.sparse", "scipy.sparse.linalg")
            )
        except ImportError:
            if size > _MAX_DENSE_NODES:
                raise
        else:
            flow = sparse.csc_matrix((weights[used], (row, column)), shape=(size, size))
            return np.asarray(linalg.spsolve(sparse.identity(size, format="csc") - flow, right))
    matrix = np.eye(size).reshape(-1)
    matrix -= np.bincount(row * size + column, weights[used], minlength=size**2)
    return np.asarray(np.linalg.solve(matrix.reshape(size, size), right), dtype=np.float64)
