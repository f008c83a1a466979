"""Merge chains of permutes."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, rewrite


def merge_permutes(fusion: Fusion) -> Fusion:
    """Merge a permute of a permute, and replace an identity permute by its operand."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op.name != "permute":
        return None
    operand, order = node.operands[0], tuple[int, ...](node.attributes["dims"])
    inner = work.source(operand, "permute")
    if inner is not None:
        operand, order = inner.operands[0], tuple(inner.attributes["dims"][axis] for axis in order)
    if order == tuple(range(len(order))):
        return (operand,)
    return None if inner is None else work.become(node, "permute", [operand], {"dims": order})
