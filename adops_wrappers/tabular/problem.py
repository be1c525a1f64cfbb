"""The audited problem: a graph whose nodes and edges know what they are in the MDP."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import FloatArray
from adops_wrappers.tabular.bonuses import HistoryBonus
from adops_wrappers.tabular.graph import Graph, IntArray, Product
from adops_wrappers.tabular.mdp import FiniteMDP, on_edges
from adops_wrappers.tabular.memory import with_bonus
from adops_wrappers.tabular.report import Step


class Problem(NamedTuple):
    """An MDP with a bonus, unfolded as far as a horizon or a memory needs it."""

    graph: Graph
    state: IntArray
    """The MDP's state of each node."""
    next_state: IntArray
    """The MDP's next state of each edge, also where the episode ends."""
    bonus: FloatArray
    """F of each edge."""
    table: FloatArray | None
    """F as a table, where a node is no more than a state, or a state and a time."""

    def unfolded(self, product: Product) -> Problem:
        """Return this problem on its product with a shaper's memory."""
        return Problem(
            product.graph,
            self.state[product.node],
            self.next_state[product.edge],
            self.bonus[product.edge],
            None,
        )

    def on_edges(self, table: FloatArray) -> FloatArray:
        """Return the entries of a table over states for each edge."""
        graph = self.graph
        return on_edges(table, self.state[graph.source], graph.action, self.next_state)

    def step(self, edge: int, bonus: float, shaped: float) -> Step:
        """Describe one edge, with the F and F′ that it brought."""
        return Step(
            state=int(self.state[self.graph.source[edge]]),
            action=int(self.graph.action[edge]),
            next_state=int(self.next_state[edge]),
            reward=float(self.graph.reward[edge]),
            bonus=float(bonus),
            shaped=float(shaped),
        )

    def shaped_table(
        self, mdp: FiniteMDP, shaped: FloatArray, horizon: int | None
    ) -> FloatArray | None:
        """Return F′ as a table, or None if it has a memory."""
        graph, bonus = self.graph, self.table
        if bonus is None:
            return None
        if horizon is not None:
            table = np.full((horizon, mdp.num_states, mdp.num_actions), np.nan)
            table[graph.time, self.state] = graph.expected(shaped)
            return table
        # F stays what it was where nothing happens: in terminal states, on impossible transitions.
        short = np.array(bonus, dtype=np.float64)
        if bonus.ndim == 2:
            short[graph.source, graph.action] = shaped
            if np.array_equal(short[graph.source, graph.action], shaped):
                return short
        full = bonus.reshape(*bonus.shape[:2], -1)
        table = np.array(np.broadcast_to(full, mdp.transition.shape))
        table[graph.source, graph.action, graph.target] = shaped
        return table


def build_problem(
    mdp: FiniteMDP,
    bonus: npt.ArrayLike | HistoryBonus,
    horizon: int | None,
    *,
    bonus_scale: float,
    max_nodes: int,
) -> Problem:
    """Return the MDP with its bonus; without horizon and memory its nodes are the states."""
    graph = mdp.graph
    if isinstance(bonus, HistoryBonus):
        table = None
        unfolded = with_bonus(mdp, bonus, horizon, max_nodes)
    else:
        table = bonus_scale * mdp.table("bonus", bonus)
        if horizon is None:
            states = np.arange(mdp.num_states)
            per_edge = on_edges(table, graph.source, graph.action, graph.target)
            return Problem(graph, states, graph.target, per_edge, table)
        unfolded = with_bonus(mdp, mdp.table("bonus", bonus), horizon, max_nodes)
    return Problem(
        unfolded.graph,
        unfolded.node,
        graph.target[unfolded.edge],
        bonus_scale * unfolded.output,
        table,
    )
