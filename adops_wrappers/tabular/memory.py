"""Shapers with a memory, unfolded: their state becomes part of the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.shaping import Shaper, Transition
from adops_wrappers.tabular.bonuses import HistoryBonus
from adops_wrappers.tabular.graph import Graph, IntArray, Product, product
from adops_wrappers.tabular.mdp import FiniteMDP, on_edges

_TOO_LARGE = (
    "Take a shorter horizon, a bonus with fewer distinct values or a smaller problem, or raise "
    "max_nodes."
)
_NO_HORIZON = (
    "Without a horizon the memory must come back to itself: PBIM's debt and counts never do "
    "unless every episode is short. Give a horizon."
)


def with_bonus(
    mdp: FiniteMDP, bonus: FloatArray | HistoryBonus, horizon: int | None, max_nodes: int
) -> Product:
    """Unfold an MDP with a horizon, a bonus's memory, or both; the output is F per edge."""
    graph = mdp.graph

    def table(
        memory: FloatArray, edges: IntArray, ended: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        where = graph.source[edges], graph.action[edges], graph.target[edges]
        assert isinstance(bonus, np.ndarray)
        return on_edges(bonus, *where), memory

    def history(
        memory: FloatArray, edges: IntArray, ended: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        assert isinstance(bonus, HistoryBonus)
        where = graph.source[edges], graph.action[edges], graph.target[edges]
        return bonus.step(memory, *where)

    remembers = isinstance(bonus, HistoryBonus)
    return product(
        graph,
        bonus.initial(mdp) if isinstance(bonus, HistoryBonus) else np.zeros(0),
        history if remembers else table,
        horizon=horizon,
        max_nodes=max_nodes,
        way_out=_TOO_LARGE if horizon is not None else _NO_HORIZON,
    )


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
        # Counters that are not kept per row, such as ζ's, stand where the maker put them.
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
