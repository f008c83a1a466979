"""Runs a segmented fusion segment by segment through the reference, in buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.evaluate import evaluate
from fusec.segment.segmented import SegmentedFusion


def run_segments(segmented: SegmentedFusion, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs; an aliased output replaces its input for every later segment."""
    sizes = segmented.fusion.hints
    buffers: dict[str, Any] = dict(inputs)
    place: dict[str, str] = {}
    for segment in segmented.segments:
        given = {
            i.value.name: buffers[place.get(i.value.name, i.value.name)]
            for i in segment.fusion.inputs
            if place.get(i.value.name, i.value.name) in buffers
        }
        results = evaluate(segment.fusion, given, sizes)
        for output in segment.fusion.outputs:
            name = output.value.name
            place[name] = output.alias or name
            buffers[place[name]] = results[name]
    return {o.value.name: buffers[place[o.value.name]] for o in segmented.fusion.outputs}


def check_structure(segmented: SegmentedFusion) -> None:
    """Assert the rules of a segmented fusion: order, one maker per value, forced boundaries."""
    fusion = segmented.fusion
    made: set[str] = set()
    written: set[str] = set()
    for number, segment in enumerate(segmented.segments):
        assert segment.id == number
        assert segment.fusion.outputs, "a segment without outputs"
        for entry in segment.fusion.inputs:
            value = entry.value
            assert value in fusion.input_of or value.name in made, f"{value.name} is not made yet"
            assert value in fusion.input_of or not value.is_scalar, f"scalar {value.name} crosses"
            if segment.fusion.users.get(value):
                assert value.name not in written, f"{value.name} is read after it was overwritten"
        for output in segment.fusion.outputs:
            assert output.value.name not in made, f"{output.value.name} is made twice"
            made.add(output.value.name)
            if output.alias is not None:
                written.add(output.alias)
        for node in segment.nodes:
            if node.op.name == "segment_set":
                assert not segment.fusion.users.get(node.output), "segment_set and user together"
    assert {o.value.name for o in fusion.outputs} <= made
