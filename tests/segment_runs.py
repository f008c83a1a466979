"""The rules that every segmented fusion keeps."""

from __future__ import annotations

from fusec.segment.segmented import SegmentedFusion


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
