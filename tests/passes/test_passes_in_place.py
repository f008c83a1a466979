"""Outputs that are written into inputs: copied only where a read would come too late."""

from __future__ import annotations

import networkx as nx
import pytest
from draws import drawn
from hypothesis import HealthCheck, given, settings
from passes_sheet import Sheet
from strategies import fusions

from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Operand, Value
from fusec.passes.protect_inputs import protect_inputs

COPIED = ["y_kept = segment_set(y_new)", "y = set(y_kept)"]


@pytest.fixture
def s() -> Sheet:
    return Sheet()


def protected(s: Sheet) -> list[str]:
    return [repr(n) for n in protect_inputs(s.b.finish()).nodes]


def test_an_elementwise_update_needs_no_copy(s: Sheet) -> None:
    x, g = s.b.input("x", F32, [4, 8]), s.b.input("g", F32, [4, 8])
    s.b.output(s.op("y", "sub", x, s.op("d", "mul", g, 0.1)), alias="x")
    fusion = s.b.finish()
    assert protect_inputs(fusion) is fusion


def test_an_update_by_sums_of_the_input_needs_no_copy(s: Sheet) -> None:
    x = s.b.input("x", F32, [4, 8])
    total = s.op("total", "sum", x, dims=[1], keepdim=True)
    s.b.output(s.op("y", "truediv", x, total), alias="x")
    fusion = s.b.finish()
    assert protect_inputs(fusion) is fusion


def test_a_moving_average_beside_other_reads_needs_no_copy(s: Sheet) -> None:
    x, mean = s.b.input("x", F32, [4, 8]), s.b.input("mean", F32, [8])
    batch = s.op("batch", "sum", x, dims=[0])
    s.b.output(s.op("y", "add", s.op("old", "mul", mean, 0.9), batch), alias="mean")
    s.b.output(s.op("z", "neg", x))
    fusion = s.b.finish()
    assert protect_inputs(fusion) is fusion


def test_adding_the_transpose_needs_a_copy(s: Sheet) -> None:
    x = s.b.input("x", F32, [4, 4])
    s.b.output(s.op("y", "add", x, s.op("t", "permute", x, dims=[1, 0])), alias="x")
    assert protected(s) == ["t = permute(x)", "y_new = add(x, t)", *COPIED]


def test_a_shifted_read_needs_a_copy(s: Sheet) -> None:
    x = s.b.input("x", F32, [8])
    left = s.op("left", "slice", x, start_indices=[0], end_indices=[7])
    s.b.output(s.op("y", "add", x, s.op("moved", "pad", left, 0.0, pad_widths=[1, 0])), alias="x")
    assert protected(s)[-2:] == COPIED


def test_a_read_that_repeats_elements_needs_a_copy(s: Sheet) -> None:
    # Other blocks may still read mean[c] for their rows when it is overwritten.
    x, mean = s.b.input("x", F32, [4, 8]), s.b.input("mean", F32, [8])
    s.b.output(s.op("z", "sub", x, mean))
    s.b.output(s.op("y", "add", mean, s.op("batch", "sum", x, dims=[0])), alias="mean")
    assert protected(s)[-2:] == COPIED


def test_a_read_after_the_write_needs_a_copy_and_reads_the_new_value_apart(s: Sheet) -> None:
    x = s.b.input("x", F32, [8])
    y = s.op("y", "add", x, 1.0)
    s.b.output(y, alias="x")
    s.b.output(s.op("z", "mul", y, x))
    assert protected(s) == ["y_new = add(x, 1.0)", "z = mul(y_new, x)", *COPIED]


def test_swapped_inputs_need_one_copy(s: Sheet) -> None:
    a, b = s.b.input("a", F32, [8]), s.b.input("b", F32, [8])
    s.b.output(s.op("p", "set", b), alias="a")
    s.b.output(s.op("q", "set", a), alias="b")
    lines = protected(s)
    assert len(lines) == 4
    assert sum("segment_set" in line for line in lines) == 1


def test_copies_are_not_copied_again(s: Sheet) -> None:
    x = s.b.input("x", F32, [4, 4])
    s.b.output(s.op("y", "permute", x, dims=[1, 0]), alias="x")
    once = protect_inputs(s.b.finish())
    assert protect_inputs(once) is once


def ordered(fusion: Fusion) -> nx.DiGraph:
    """Return nodes with edges by data, and from readers of an input to its writer."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(fusion.nodes)
    for node in fusion.nodes:
        graph.add_edges_from(
            (fusion.producer[v], node) for v in node.inputs if v in fusion.producer
        )
    for output in (o for o in fusion.outputs if o.alias is not None):
        target: Operand | None = fusion.find(output.alias or "")
        writer = fusion.producer[output.value]
        readers = fusion.users.get(target, ()) if isinstance(target, Value) else ()
        graph.add_edges_from((reader, writer) for reader in readers if reader is not writer)
    return graph


@settings(drawn(40), suppress_health_check=list(HealthCheck), derandomize=True)
@given(fusions(aliases=True, dtypes=(F32,)))
def test_every_read_can_come_before_the_write(fusion: Fusion) -> None:
    after = protect_inputs(fusion)
    assert nx.is_directed_acyclic_graph(ordered(after))
    assert protect_inputs(after) is after
