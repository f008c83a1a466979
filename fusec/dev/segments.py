"""Segments one after the other through the reference, as the host program would run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.evaluate import Sizes, evaluate
from fusec.segment.segmented import SegmentedFusion


def run_segments(
    segmented: SegmentedFusion, inputs: Mapping[str, Any], sizes: Sizes
) -> dict[str, Any]:
    """Return the outputs; an aliased output replaces its input for every later segment."""
    buffers: dict[str, Any] = dict(inputs)
    place: dict[str, str] = {}
    for segment in segmented.segments:
        names = {i.value.name: place.get(i.value.name, i.value.name) for i in segment.fusion.inputs}
        given = {name: buffers[lies] for name, lies in names.items() if lies in buffers}
        results = evaluate(segment.fusion, given, sizes)
        for output in segment.fusion.outputs:
            name = output.value.name
            place[name] = output.alias or name
            buffers[place[name]] = results[name]
    return {o.value.name: buffers[place[o.value.name]] for o in segmented.fusion.outputs}
