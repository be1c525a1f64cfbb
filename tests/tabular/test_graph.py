from __future__ import annotations

import numpy as np
import pytest

from adops_wrappers.tabular.graph import product
from benchmarks.evidence import KINDS, random_mdp
from tests.tabular.examples import chain


def parity(memory, edges, ended):
    return memory[:, 0].copy(), (memory + 1.0) % 2.0


def test_product_merges_nodes_that_agree():
    graph = chain(start=0).graph
    unfolded = product(graph, np.zeros(1), parity)
    # From (0, even): states 0 and 1 with both parities.
    assert sorted(unfolded.node.tolist()) == [0, 0, 1, 1]
    assert unfolded.graph.layers is None
    assert len(unfolded.output) == 8


def test_layers_of_a_horizon():
    graph = product(chain(start=0).graph, np.zeros(1), parity, horizon=3).graph
    assert graph.layers is not None
    nodes = [(layer.start, layer.stop) for layer, _ in graph.layers]
    assert nodes == [(0, 1), (1, 3), (3, 5)]
    assert graph.time.tolist() == [0, 1, 1, 2, 2]
    assert graph.ended[graph.time[graph.source] == 2].all()


def test_product_without_memory_is_the_reachable_part():
    for seed in range(20):
        mdp = random_mdp(np.random.default_rng(seed), KINDS[seed % len(KINDS)])
        unfolded = product(mdp.graph, np.zeros(0), lambda m, e, _: (np.zeros(len(e)), m))
        reached = mdp.graph.reachable() & mdp.graph.decides
        assert sorted(unfolded.node.tolist()) == np.flatnonzero(reached).tolist()


def test_size_limit():
    def count(memory, edges, ended):
        return memory[:, 0].copy(), memory + 1.0

    with pytest.raises(ValueError, match=r"more than max_nodes=50 nodes .* Give a horizon"):
        product(chain(start=0).graph, np.zeros(1), count, max_nodes=50, way_out="Give a horizon.")


def test_reachable_from_the_start():
    assert chain(start=0).graph.reachable().tolist() == [True, True, False]
    assert chain(start=1).graph.reachable().tolist() == [False, True, False]
