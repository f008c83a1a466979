"""Minimum cuts: those of networkx, on random graphs; and a segmentation as a networkx graph."""

from __future__ import annotations

import random
from typing import Any

import networkx
import pytest
from paths import ROOT

from fusec import driver, lowering
from fusec.options import CompileOptions
from fusec.segment.flow import Flow, Unbounded

GRAPHS = 200


@pytest.mark.parametrize("unlimited", [0.0, 0.1])
def test_cuts_are_those_of_networkx(unlimited: float) -> None:
    rng = random.Random(f"{unlimited}")
    bounded = 0
    for _ in range(GRAPHS):
        count = rng.randint(2, 12)
        library: Any = networkx
        graph, flow = library.DiGraph(), Flow()
        graph.add_nodes_from((0, count - 1))
        pairs = {(rng.randrange(count), rng.randrange(count)) for _ in range(3 * count)}
        for tail, head in sorted(pairs):
            if tail == head:
                continue
            most = None if rng.random() < unlimited else rng.randint(0, 9) << rng.choice((0, 60))
            flow.add_edge(tail, head, most)
            graph.add_edge(tail, head, **({} if most is None else {"capacity": most}))
        try:
            value, (near, _) = library.minimum_cut(graph, 0, count - 1)
        except networkx.NetworkXUnbounded:
            with pytest.raises(Unbounded):
                flow.minimum_cut(0, count - 1)
            continue
        bounded += 1
        found, side = flow.minimum_cut(0, count - 1)
        assert found == value
        assert side == {n for n in near if n in flow}
    assert bounded > GRAPHS // 4


def test_parallel_edges_add_up() -> None:
    flow = Flow()
    flow.add_edge("a", "b", 1)
    flow.add_edge("a", "b", 2)
    assert flow.minimum_cut("a", "b") == (3, {"a"})


def test_a_segmentation_is_a_graph() -> None:
    fusion = driver.load(str(ROOT / "examples" / "seed_2146.yaml"))
    options = CompileOptions(targets=("sm_90a",))
    found = lowering.segment(lowering.optimise(fusion, options), options)
    graph = found.graph()
    assert list(graph) == [s.id for s in found.segments]
    assert all(graph.nodes[s.id]["segment"] is s for s in found.segments)
    crossing = {(e.producer, e.consumer, e.value.name) for e in found.edges}
    assert crossing == {(a, b, v) for a, b, names in graph.edges(data="values") for v in names}
    assert networkx.is_directed_acyclic_graph(graph)
