"""The audited problem, unfolded: a horizon, a bonus's or a shaper's memory become nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.shaping import Shaper, Transition
from adops_wrappers.tabular.bonuses import HistoryBonus
from adops_wrappers.tabular.graph import Graph, IntArray, Product, product
from adops_wrappers.tabular.mdp import FiniteMDP, on_edges
from adops_wrappers.tabular.report import Step

_TOO_LARGE = (
    "Choose a shorter horizon, a bonus with fewer distinct values or a smaller problem, or raise "
    "max_nodes."
)
_NO_HORIZON = (
    "Without a horizon the memory must return to earlier values: PBIM's debt and counts never do "
    "unless every episode is short. Give a horizon."
)


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
        """Describe one edge with its F and F′."""
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
        # F keeps its value where nothing happens: in terminal states, on impossible transitions.
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
    graph, table = mdp.graph, None
    if not isinstance(bonus, HistoryBonus):
        table = bonus_scale * mdp.table("bonus", bonus)
        if horizon is None:
            per_edge = on_edges(table, graph.source, graph.action, graph.target)
            return Problem(graph, np.arange(mdp.num_states), graph.target, per_edge, table)

    def advance(
        memory: FloatArray, edges: IntArray, ended: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        where = graph.source[edges], graph.action[edges], graph.target[edges]
        if table is not None:
            return on_edges(table, *where), memory
        assert isinstance(bonus, HistoryBonus)
        intrinsic, memory = bonus.step(memory, *where)
        return bonus_scale * intrinsic, memory

    unfolded = product(
        graph,
        bonus.initial(mdp) if isinstance(bonus, HistoryBonus) else np.zeros(0),
        advance,
        horizon=horizon,
        max_nodes=max_nodes,
        way_out=_TOO_LARGE if horizon is not None else _NO_HORIZON,
    )
    next_state = graph.target[unfolded.edge]
    return Problem(unfolded.graph, unfolded.node, next_state, unfolded.output, table)


def with_shaper(
    graph: Graph, transition: Transition, make_shaper: Callable[[int], Shaper], max_nodes: int
) -> Product:
    """Unfold a graph with a shaper's state; the output is F′ per edge.

    Args:
        graph: The problem.
        transition: One row per edge of `graph`; `terminated` is taken from the unfolding.
        make_shaper: Builds the shaper for a number of rows.
        max_nodes: The size at which to give up.
    """
    packer = _Packer()
    memory = packer.pack(make_shaper(1).state_dict(), rows=1)[0]

    def advance(
        memory: FloatArray, edges: IntArray, ended: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        shaper = make_shaper(len(edges))
        # Counters that are not kept per row, such as ζ's, stay where the maker put them.
        shaper.load_state_dict({**shaper.state_dict(), **packer.unpack(memory)})
        rows: list[Any] = [
            field[edges] if isinstance(field, np.ndarray) else field for field in transition
        ]
        shaped = shaper.step(Transition(*rows)._replace(terminated=ended))
        return shaped, packer.pack(shaper.state_dict(), rows=len(edges))

    return product(
        graph,
        memory,
        advance,
        max_nodes=max_nodes,
        way_out=_TOO_LARGE if graph.layers is not None else _NO_HORIZON,
    )


class _Packer:
    """Turns a shaper's state of n rows into a matrix of n rows, and back."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}

    def pack(self, state: dict[str, Any], rows: int) -> FloatArray:
        rows_first = {
            key: _rows_first(key, value)
            for key, value in state.items()
            if isinstance(value, np.ndarray)
        }
        self.shapes = {key: value.shape[1:] for key, value in rows_first.items()}
        columns = [value.reshape(rows, -1) for value in rows_first.values()]
        return np.concatenate([np.zeros((rows, 0)), *columns], axis=1)

    def unpack(self, matrix: FloatArray) -> dict[str, Any]:
        state, first = {}, 0
        for key, shape in self.shapes.items():
            width = int(np.prod(shape, dtype=np.int64))
            state[key] = _rows_first(
                key, matrix[:, first : first + width].reshape(len(matrix), *shape)
            )
            first += width
        return state


def _rows_first(key: str, value: Any) -> Any:
    # GRM keeps its ring with time first; the transpose is its own inverse.
    return value.T if key == "ring" else value
