"""Large graphs: what repeats is asked once, and groups merged in place stay a DAG in order."""

from __future__ import annotations

import random

import pytest
from draws import drawn
from fake_schedulers import H200, usual
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from partition import Partition
from segment_runs import check_structure
from strategies import fusions

from benchmarks.transformer import of_nodes, transformer
from fusec.ir.graph import Fusion
from fusec.segment.canonical import canonical
from fusec.segment.cheap import find_copied
from fusec.segment.graph import Graph
from fusec.segment.groups import Groups
from fusec.segment.regions import singles
from fusec.segment.search import WHOLE, segment


@pytest.mark.parametrize("training", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_layers_beyond_the_first_ones_are_not_asked_for_again(training: bool) -> None:
    def asked(layers: int) -> tuple[int, int]:
        fakes = usual()
        segmented = segment(transformer(layers, training=training), fakes, H200)
        check_structure(segmented)
        return len(fakes[-1].asked), len(segmented.segments)  # pyright: ignore[reportAttributeAccessIssue]

    (few, eight), (more, sixteen) = asked(8), asked(16)
    assert more <= few + 1, "the whole fusion is offered, as long as it is small"
    assert sixteen >= 2 * eight - 8


def test_a_large_fusion_is_not_offered_as_a_whole() -> None:
    fusion = of_nodes(WHOLE + 200)
    fakes = usual()
    segmented = segment(fusion, fakes, H200)
    check_structure(segmented)
    first = next(d for d in segmented.decisions if d.action == "split")
    assert f"more than {WHOLE}" in first.because
    assert all(len(f.nodes) < len(fusion.nodes) for f in fakes[-1].asked)  # pyright: ignore[reportAttributeAccessIssue]


@settings(drawn(30), suppress_health_check=list(HealthCheck), derandomize=True)
@given(fusions(aliases=True, max_steps=20), st.integers(0, 1000))
def test_merging_in_place_is_merging_anew(fusion: Fusion, seed: int) -> None:
    fusion = canonical(fusion)
    graph = Graph(fusion, find_copied(fusion))
    groups, anew = Groups(graph, singles(graph, ())), Partition(graph, singles(graph, ()))
    if groups.cyclic:
        assert anew.order() is None
        return
    rng = random.Random(seed)
    while len(groups.pieces) > 1:
        chosen = groups.closure(rng.sample(sorted(groups), 2))
        assert chosen is not None
        old = frozenset(frozenset(p.nodes) for p in chosen)
        assert old == anew.closure(old)
        merged = groups.merge(chosen)
        anew = anew.merged(old)
        assert [frozenset(p.nodes) for p in groups] == list(anew.groups)
        whole = frozenset(merged.nodes)
        assert merged.members == anew.members(whole)
        assert set(merged.leaves) == set(anew.leaves(whole))
        assert groups.results({merged}) == list(anew.results([whole]))
        for piece in groups:
            assert all(earlier.rank < piece.rank for earlier in piece.before)
            assert all(piece in earlier.after for earlier in piece.before)
            mine = {frozenset(p.nodes) for p in piece.before}
            assert mine == set(anew.before[frozenset(piece.nodes)])
            for value in piece.leaves:
                assert piece in groups.readers[value]
        order = groups.order()
        assert order is not None
        assert [frozenset(p.nodes) for p in order] == list(anew.order() or ())
