"""The transitions of a decision problem as flat arrays, and its product with a memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray, FloatArray

IntArray = npt.NDArray[np.int64]
Layers = tuple[tuple[slice, slice], ...]
Advance = Callable[[FloatArray, IntArray, BoolArray], tuple[FloatArray, FloatArray]]
"""`advance(memory, edges, ended)`: one value per edge and the memory after it, row by row."""

_Step = tuple[IntArray, IntArray, IntArray, BoolArray, FloatArray]
"""Edge of the first graph, source, target, ended and output, of the edges of one time step."""

MAX_NODES = 200_000
_MERGE_DECIMALS = 11


@dataclass(frozen=True)
class Graph:
    """Nodes are decision points, edges the transitions of positive probability.

    Edges are sorted by source. A node without edges is terminal. In a layered graph every edge
    leads from one layer to the next, and the last layer's edges have all `ended`.
    """

    num_actions: int
    start: FloatArray
    """The probability of each node to be the first one."""
    source: IntArray
    action: IntArray
    target: IntArray
    probability: FloatArray
    reward: FloatArray
    ended: BoolArray
    """Whether nothing follows: the target is terminal, or the horizon is reached."""
    layers: Layers | None = None
    """The nodes and edges of each time step, in a problem with a horizon."""
    solved: dict[float, tuple[FloatArray, FloatArray]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """(V*, Q*) of the reward by discount, once they are known."""

    @property
    def num_nodes(self) -> int:
        """The number of nodes, terminal ones included."""
        return len(self.start)

    @cached_property
    def first_edge(self) -> IntArray:
        """Node i owns the edges first_edge[i] up to, not including, first_edge[i + 1]."""
        return np.searchsorted(self.source, np.arange(self.num_nodes + 1))

    @cached_property
    def pair(self) -> IntArray:
        """The index of each edge's (node, action) in a flat (N·A,) array."""
        return self.source * self.num_actions + self.action

    @cached_property
    def decides(self) -> BoolArray:
        """Nodes in which an action is taken."""
        return np.diff(self.first_edge) > 0

    @cached_property
    def time(self) -> IntArray:
        """The time step of each node; 0 in a problem without a horizon."""
        time = np.zeros(self.num_nodes, dtype=np.int64)
        for t, (nodes, _) in enumerate(self.layers or ()):
            time[nodes] = t
        return time

    def expected(self, per_edge: FloatArray) -> FloatArray:
        """Return E[x | node, action], shape (N, A), of a value x per edge."""
        weights = self.probability * per_edge
        pairs = self.num_nodes * self.num_actions
        sums: FloatArray = np.bincount(self.pair, weights, minlength=pairs).astype(np.float64)
        return sums.reshape(self.num_nodes, self.num_actions)

    def next_value(self, values: FloatArray) -> FloatArray:
        """Return values of the edges' targets, 0 where nothing follows."""
        result: FloatArray = np.where(self.ended, 0.0, values[self.target])
        return result

    def edges_of(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the edges out of `nodes`, and for each the position of its node in `nodes`."""
        first = self.first_edge[nodes]
        degree = self.first_edge[nodes + 1] - first
        row = np.repeat(np.arange(len(nodes)), degree)
        offset = np.repeat(first - (np.cumsum(degree) - degree), degree)
        return offset + np.arange(len(row)), row

    def reachable(self) -> BoolArray:
        """Return the nodes that some policy reaches from the start."""
        seen = self.start > 0
        frontier = np.flatnonzero(seen)
        while len(frontier):
            edges, _ = self.edges_of(frontier)
            found = np.unique(self.target[edges[~self.ended[edges]]])
            frontier = found[~seen[found]]
            seen[frontier] = True
        return seen


@dataclass(frozen=True)
class Product:
    """A graph whose nodes also remember something, with its way back to the first graph."""

    graph: Graph
    node: IntArray
    """The node of the first graph behind each node."""
    edge: IntArray
    """The edge of the first graph behind each edge."""
    output: FloatArray
    """What `advance` returned for each edge."""


def product(
    graph: Graph,
    memory: FloatArray,
    advance: Advance,
    *,
    horizon: int | None = None,
    max_nodes: int = MAX_NODES,
    way_out: str = "",
) -> Product:
    """Unfold `graph` from its start nodes together with a memory that every edge changes.

    Nodes that agree in the underlying node and in the memory are one. With a `horizon`, or if
    `graph` is layered, the result is layered and merging happens within each time step.

    Args:
        graph: The problem without memory.
        memory: The memory before the first step, shape (k,).
        advance: Computes an output per edge and the memory after it, for many edges at once.
        horizon: The number of steps after which everything ends.
        max_nodes: The size at which to give up.
        way_out: What the error adds when the size is passed.
    """
    layered = horizon is not None or graph.layers is not None
    nodes = np.flatnonzero((graph.start > 0) & graph.decides)
    memories = np.repeat(memory[None], len(nodes), axis=0)
    known_keys = _keys(nodes, memories)
    all_nodes, layers = [nodes], []
    columns: list[_Step] = []
    first_node, num_nodes, num_edges = 0, len(nodes), 0
    while len(nodes):
        last = horizon is not None and len(columns) == horizon - 1
        edges, row = graph.edges_of(nodes)
        ended = graph.ended[edges] | last
        output, after = advance(memories[row], edges, ended)
        target = np.zeros(len(edges), dtype=np.int64)
        onward = np.flatnonzero(~ended)
        keys = _keys(graph.target[edges[onward]], after[onward])
        if layered:
            known_keys = np.empty((0, keys.shape[1]))
        offset = num_nodes - len(known_keys)
        known_keys, place, fresh = _merge(known_keys, keys)
        target[onward] = place + offset
        columns.append((edges, row + first_node, target, ended, output))
        layers.append((slice(first_node, num_nodes), slice(num_edges, num_edges + len(edges))))
        first_node, num_edges = num_nodes, num_edges + len(edges)
        nodes = graph.target[edges[onward[fresh]]]
        memories = after[onward[fresh]]
        num_nodes += len(nodes)
        all_nodes.append(nodes)
        if num_nodes > max_nodes:
            raise ValueError(
                f"The problem with its memory has more than max_nodes={max_nodes} nodes "
                f"(passed at step {len(columns)}). {way_out}".strip()
            )
    layers_found = tuple(layers) if layered else None
    return _joined(graph, np.concatenate(all_nodes), len(all_nodes[0]), columns, layers_found)


def _joined(
    graph: Graph, node: IntArray, starts: int, columns: list[_Step], layers: Layers | None
) -> Product:
    """Put the steps of an unfolding together; its first `starts` nodes are the start nodes."""
    edge, source, target, ended, output = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
    start = np.zeros(len(node))
    start[:starts] = graph.start[node[:starts]]
    unfolded = Graph(
        graph.num_actions,
        start,
        source,
        graph.action[edge],
        target,
        graph.probability[edge],
        graph.reward[edge],
        ended,
        layers,
    )
    return Product(unfolded, node, edge, output)


def _keys(nodes: IntArray, memories: FloatArray) -> FloatArray:
    # The same debt reached along two paths differs in its last bits: rounding makes it one node.
    return np.column_stack([nodes.astype(np.float64), np.round(memories, _MERGE_DECIMALS) + 0.0])


def _merge(known: FloatArray, found: FloatArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Return all keys, the index of each found key among them, and the rows that are new."""
    both = np.concatenate([known, found])
    # `first` is the earliest row with each key.
    _, first, group = np.unique(both, axis=0, return_index=True, return_inverse=True)
    fresh = np.sort(first[first >= len(known)])
    index = np.where(first < len(known), first, len(known) + np.searchsorted(fresh, first))
    place = index[group.reshape(-1)][len(known) :]
    return np.concatenate([known, both[fresh]]), place, fresh - len(known)
