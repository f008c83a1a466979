"""Merge chains of reshapes."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, fits, rewrite


def merge_reshapes(fusion: Fusion) -> Fusion:
    """Turn a reshape of a reshape into one, and a reshape to the same shape into its operand."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op.name != "reshape":
        return None
    inner = work.source(node.operands[0], "reshape")
    operand = node.operands[0] if inner is None else inner.operands[0]
    if operand.type == node.output.type:
        return (operand,)
    attributes = {"new_shape": node.output.shape}
    if inner is None or not fits(node, "reshape", [operand], attributes):
        return None
    return work.become(node, "reshape", [operand], attributes)
