"""Replace the negation of a negation by its operand."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, rewrite


def drop_double_neg(fusion: Fusion) -> Fusion:
    """Replace neg(neg(x)) by x, which is exact."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op.name != "neg":
        return None
    inner = work.source(node.operands[0], "neg")
    return None if inner is None else (inner.operands[0],)
