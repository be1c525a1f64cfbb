"""Audits over all trajectories of a short horizon, for bonuses that look into the future.

Every trajectory is a leaf of a tree of histories. What a policy maximises in a history at time t
is the expected return from t on, Σ_{j≥t} γ^{j−t}·(R_j + F′_j); with a bonus that looks ahead, F′_j
belongs to the leaf and not to the step, so that each time needs its own backward induction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.shaping import Transition
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.bonuses import FutureBonus
from adops_wrappers.tabular.graph import IntArray, Product, product
from adops_wrappers.tabular.mdp import FiniteMDP
from adops_wrappers.tabular.report import AuditReport, Step, compare
from adops_wrappers.tabular.settings import Shaping, parse_settings
from adops_wrappers.tabular.unfold import Problem


class _Tree(NamedTuple):
    """All histories; every node has one way to it, and every ended edge is a trajectory."""

    problem: Problem
    edges: IntArray
    """The edges of each trajectory in time order, shape (n, T), −1 past its end."""


def audit_future(
    mdp: FiniteMDP,
    bonus: FutureBonus,
    shaping: Shaping,
    horizon: int | None,
    settings: dict[str, Any],
) -> AuditReport:
    """Audit a bonus that may look ahead; see `adops_wrappers.audit`."""
    if horizon is None:
        raise ValueError("A FutureBonus sees whole episodes: give the horizon by which they end.")
    if callable(shaping) and not isinstance(shaping, type):
        raise TypeError(
            "A function (mdp, bonus) -> shaped bonus works on tables; to shape a FutureBonus, pass "
            "a Shaper class."
        )
    options = parse_settings(shaping, mdp.gamma, horizon, settings)
    if options.gamma_int != mdp.gamma or options.potential is not None:
        raise ValueError("A FutureBonus is audited with one discount and without a potential.")
    tree = _tree(mdp, horizon, options.max_nodes)
    taken = tree.edges >= 0
    intrinsic = options.method.intrinsic_scale * _bonus(tree, taken, bonus)
    q_ext = solver.best_values(tree.problem.graph, mdp.gamma)[1]
    before = solver.optimal_actions(q_ext, options.tie_tolerance)
    rows = _transitions(tree, taken, intrinsic, q_ext, before, mdp.gamma)
    if options.sampled_advantage:
        rows = rows._replace(advantage_ext=None)
    shaped = options.make_shaper(len(tree.edges)).rollout(rows).T
    reward = np.where(taken, tree.problem.graph.reward[tree.edges], 0.0)
    total = np.where(taken, options.ext_coef * reward + options.int_coef * shaped, 0.0)
    after = solver.optimal_actions(_tree_q(tree, total, mdp.gamma), options.tie_tolerance)

    def describe(path: IntArray) -> list[Step]:
        # F of a step depends on the future: show one trajectory that begins with this path.
        row = int(np.argmax((tree.edges[:, : len(path)] == path).all(axis=1)))
        return [
            tree.problem.step(edge, intrinsic[row, t], shaped[row, t])
            for t, edge in enumerate(path.tolist())
        ]

    return compare(
        mdp,
        tree.problem.graph,
        tree.problem.state,
        before,
        after,
        describe=describe,
        shaped_bonus=None,
        method=options.method.name,
        zeta=options.zeta,
        horizon=horizon,
    )


def _tree(mdp: FiniteMDP, horizon: int, max_nodes: int) -> _Tree:
    def number_histories(
        memory: FloatArray, edges: IntArray, ended: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        # A unique number for every history keeps any two of them from being merged.
        return np.zeros(len(edges)), np.arange(len(edges), dtype=np.float64)[:, None]

    unfolded: Product = product(
        mdp.graph,
        np.zeros(1),
        number_histories,
        horizon=horizon,
        max_nodes=max_nodes,
        way_out="All histories are listed: choose a shorter horizon or a smaller problem.",
    )
    graph = unfolded.graph
    arrived_by = np.full(graph.num_nodes, -1, dtype=np.int64)
    onward = np.flatnonzero(~graph.ended)
    arrived_by[graph.target[onward]] = onward
    edge = np.flatnonzero(graph.ended)
    paths = np.full((len(edge), horizon), -1, dtype=np.int64)
    for _ in range(horizon):
        alive = np.flatnonzero(edge >= 0)
        paths[alive, graph.time[graph.source[edge[alive]]]] = edge[alive]
        edge[alive] = arrived_by[graph.source[edge[alive]]]
    next_state = mdp.graph.target[unfolded.edge]
    return _Tree(Problem(graph, unfolded.node, next_state, unfolded.output, None), paths)


def _bonus(tree: _Tree, taken: BoolArray, bonus: FutureBonus) -> FloatArray:
    graph = tree.problem.graph
    states = np.zeros((len(taken), taken.shape[1] + 1), dtype=np.int64)
    states[:, 0] = tree.problem.state[graph.source[tree.edges[:, 0]]]
    states[:, 1:] = np.where(taken, tree.problem.next_state[tree.edges], 0)
    actions = np.where(taken, graph.action[tree.edges], 0)
    answer = np.asarray(bonus.function(states, actions, taken.copy()), dtype=np.float64)
    if answer.shape != taken.shape or not np.isfinite(answer[taken]).all():
        raise ValueError(
            f"The bonus function must return finite values of shape {taken.shape}, one per "
            f"trajectory and step, got shape {answer.shape}."
        )
    return np.where(taken, answer, 0.0)


def _transitions(
    tree: _Tree,
    taken: BoolArray,
    intrinsic: FloatArray,
    q_ext: FloatArray,
    optimal: BoolArray,
    gamma: float,
) -> Transition:
    graph, edges = tree.problem.graph, tree.edges
    source, action = graph.source[edges], graph.action[edges]
    value_ext = q_ext.max(axis=1)
    value_int = _dominating_w(tree, taken, intrinsic, optimal, gamma)
    rows = Transition(
        reward=np.where(taken, graph.reward[edges], 0.0),
        intrinsic=intrinsic,
        value_ext=value_ext[source],
        value_int=value_int[source],
        next_value_ext=graph.next_value(value_ext)[edges],
        next_value_int=graph.next_value(value_int)[edges],
        advantage_ext=(q_ext - value_ext[:, None])[source, action],
        terminated=graph.ended[edges] & taken,
        truncated=np.zeros_like(taken),
        valid=taken,
    )
    columns: list[Any] = [field.T if isinstance(field, np.ndarray) else field for field in rows]
    return Transition(*columns)


def _dominating_w(
    tree: _Tree, taken: BoolArray, intrinsic: FloatArray, optimal: BoolArray, gamma: float
) -> FloatArray:
    """Return W(h) = max over optimal a and all that may follow of F(trajectory) + γ·W(h′).

    F is not known when the action is taken, so W allows for the largest that can still come.
    """
    graph = tree.problem.graph
    largest = np.full(len(graph.source), -np.inf)
    np.maximum.at(largest, tree.edges[taken], intrinsic[taken])
    return solver.best_trajectory_values(graph, largest, gamma, optimal)


def _tree_q(tree: _Tree, total: FloatArray, gamma: float) -> FloatArray:
    """Return for every history the best expected return from its own time on, per action."""
    graph = tree.problem.graph
    q = np.zeros((graph.num_nodes, graph.num_actions))
    assert graph.layers is not None
    leaf = tree.edges[np.arange(len(tree.edges)), (tree.edges >= 0).sum(axis=1) - 1]
    horizon = total.shape[1]
    for t, (nodes, _) in enumerate(graph.layers):
        returns = total[:, t:] @ gamma ** np.arange(horizon - t)
        at_leaf = np.zeros(len(graph.source))
        at_leaf[leaf] = returns
        # Everything is already discounted to time t and paid at the leaf.
        q[nodes] = solver.maximise(graph, at_leaf, 1.0)[1][nodes]
    return q
