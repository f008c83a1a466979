"""Approximate operations with fewer instructions if their results end in 16-bit floats."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.half_ends import UNIT, tolerances
from fusec.passes.rewrite import Rewriter, rewrite


def approximate(fusion: Fusion) -> Fusion:
    """Approximate operations with fewer instructions if a rounding to 16-bit floats hides it."""
    if not any(n.op.approx is not None for n in fusion.nodes):
        return fusion
    allowed = tolerances(fusion)

    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        form = node.op.approx
        if form is None or node.output.is_scalar or node.compute_dtypes[0] != F32:
            return None
        if form.largest * UNIT > allowed[node.output.name]:
            return None
        return work.become(node, form.name, node.operands, node.attributes)

    return rewrite(fusion, rule)
