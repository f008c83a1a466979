"""Find the tolerance of each value whose uses are all finally rounded to 16-bit floats."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.roles import Combine

SHARE = 1 / 8
"""Fraction of a rounding to a 16-bit float that the error of cheaper arithmetic before it may
reach: less than the rounding error of an input in that type, and 1/64 of its variance."""
UNIT = 2.0**-23
"""A unit in the last place of f32, relative to the smallest value with that unit."""

_STRAIGHT = ("movement", "indexing", "contraction")
_SUMS = (Combine.SUM, Combine.MAXIMUM, Combine.MINIMUM)


def tolerances(fusion: Fusion) -> Mapping[str, float]:
    """Return by name the largest relative error that the computation of each value may have.

    A 16-bit value may be off by a fraction of its rounding; any other value by what its uses allow,
    and by nothing if it is an output or decides something.
    """
    kept = {o.value for o in fusion.outputs if not o.value.dtype.is_half}
    left: dict[Value, float] = {v: 0.0 if v in kept else inf for v in fusion.values}
    for node in reversed(fusion.nodes):
        allowed = min(_allowed(v, left) for v in node.outputs)
        condition = _condition(node)
        for operand in node.inputs:
            times = node.inputs.count(operand)
            reached = 0.0 if condition is None else allowed / (condition * times)
            left[operand] = min(left[operand], reached)
    return {v.name: _allowed(v, left) for v in fusion.values}


def _allowed(value: Value, left: Mapping[Value, float]) -> float:
    if value.dtype.is_half:
        return value.dtype.epsilon * SHARE
    return left[value] if value.dtype.kind == "float" or left[value] == inf else 0.0


def _condition(node: Node) -> float | None:
    """Return how much larger than an operand's the relative error of a node's results may be."""
    if node.op.is_elementwise:
        return node.op.condition
    if node.op.family in ("reduction", "scan", "scatter"):
        return 1.0 if node.op.combine in _SUMS else None
    return 1.0 if node.op.family in _STRAIGHT or node.op.copies else None
