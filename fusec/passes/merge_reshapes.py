"""Merge chains of reshapes."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, fits, rewrite


def merge_reshapes(fusion: Fusion) -> Fusion:
    """Merge a reshape of a reshape, and replace a reshape to the same shape by its operand.

    An output that reshapes another output stays: it is a view of that.
    """
    return rewrite(fusion, _rule)


def is_output_of_output(node: Node, work: Rewriter) -> bool:
    """Return whether a node reshapes an output, or an input, to another output."""
    source = node.operands[0]
    stored = source in work.finals or source not in work.producer
    return node.op.name == "reshape" and node.output in work.finals and stored


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op.name != "reshape":
        return None
    if is_output_of_output(node, work):
        return None
    inner = work.source(node.operands[0], "reshape")
    operand = node.operands[0] if inner is None else inner.operands[0]
    if operand.type == node.output.type:
        return (operand,)
    attributes = {"new_shape": node.output.shape}
    if inner is None or not fits(node, "reshape", [operand], attributes):
        return None
    return work.become(node, "reshape", [operand], attributes)
