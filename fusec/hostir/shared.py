"""Inputs that ranks could share in place instead of a copy."""

from __future__ import annotations

from fusec.ir.expression import contiguous_strides
from fusec.ir.graph import Fusion, Node, Value


def copied_argument(fusion: Fusion, value: Value) -> str:
    """Return the input that a value is a dense copy of; empty where there is none.

    The input's elements are in memory in the same order, and no output is written to it.
    """
    producer = fusion.producer.get(value)
    while producer is not None and _keeps_order(producer):
        value = producer.inputs[0]
        producer = fusion.producer.get(value)
    entry = fusion.input_of.get(value)
    if producer is not None or entry is None or entry.on_cpu or value.is_scalar:
        return ""
    pairs = zip(value.shape, entry.strides, contiguous_strides(value.shape), strict=True)
    is_dense = all(extent == 1 or stride == own for extent, stride, own in pairs)
    return value.name if is_dense and value.name not in fusion.effects.overwritten else ""


def _keeps_order(node: Node) -> bool:
    """Return whether a node's result has all elements of its operand, in the same order."""
    access = node.op.access
    if access is None or access.repeats or access.window is not None or len(node.inputs) != 1:
        return False
    if access.along is None:
        return access.view
    kept = [at for at in access.along(node) if at is not None]
    return kept == sorted(kept)
