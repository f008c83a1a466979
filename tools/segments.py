"""Segments one after the other through the reference, as the host program would run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fusec.ir.evaluate import Sizes
from fusec.ir.graph import whole_name
from fusec.reference.evaluate import evaluate
from fusec.segment.segmented import Segment, SegmentedFusion

Evaluate = Callable[[Segment, Mapping[str, Any], Sizes], Mapping[str, Any]]
"""Returns a segment's outputs by name."""


def by_reference(segment: Segment, inputs: Mapping[str, Any], sizes: Sizes) -> Mapping[str, Any]:
    """Return a segment's outputs as the reference computes them."""
    return evaluate(segment.fusion, inputs, sizes)


def run_segments(
    segmented: SegmentedFusion,
    inputs: Mapping[str, Any],
    sizes: Sizes,
    outputs_of: Evaluate = by_reference,
) -> dict[str, Any]:
    """Return the outputs; an aliased output replaces its input for every later segment.

    Complex tensors are given and returned whole; between segments they are two of reals.
    """
    buffers: dict[str, Any] = dict(inputs)
    for entry in segmented.fusion.inputs:
        if entry.part is not None and entry.part.of in inputs:
            whole = np.asarray(inputs[entry.part.of])
            buffers[entry.value.name] = np.imag(whole) if entry.part.index else np.real(whole)
    place: dict[str, str] = {}
    for segment in segmented.segments:
        names = {i.value.name: place.get(i.value.name, i.value.name) for i in segment.fusion.inputs}
        given = {name: buffers[lies] for name, lies in names.items() if lies in buffers}
        results = outputs_of(segment, given, sizes)
        for output in segment.fusion.outputs:
            name = output.value.name
            place[name] = segment.fusion.effects.buffer(output.value)
            buffers[place[name]] = results[name]
    results = dict[str, Any]()
    for output in segmented.fusion.outputs:
        array, part = buffers[place[output.value.name]], output.part
        name = whole_name(output)
        if part is not None and part.index:
            # Not a sum with 1j, which an infinity would make nan.
            array = np.stack([results[name], array], -1, dtype=np.float64).view(np.complex128)[
                ..., 0
            ]
        results[name] = array
    return results
