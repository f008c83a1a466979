"""Replace division by a shared divisor by multiplication with its reciprocal, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from fusec.ir.dim import product
from fusec.ir.dtype import F32
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.passes.half_ends import UNIT, tolerances
from fusec.passes.rewrite import Rewriter, rewrite

LEAST_SHARED = 8
"""Minimum number of elements that share a divisor for the reciprocal to pay off."""
LARGEST = 4.0
"""Units in the last place that a product with a reciprocal may be off; 1 unless the reciprocal is
below the normal floats."""


def hoist_reciprocals(fusion: Fusion) -> Fusion:
    """Replace division by a broadcast or literal by multiplication if results end in fp16 or bf16.

    A plain input stays a divisor: a float below 2**-128 has no reciprocal.
    """
    if not any(_divides(n) for n in fusion.nodes):
        return fusion
    allowed = tolerances(fusion)

    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if not _divides(node) or allowed[node.output.name] < LARGEST * UNIT:
            return None
        dividend, divisor = node.operands
        literal = isinstance(divisor, Const)
        factor = _inverse(divisor) if literal else _hoisted(node, divisor, work)
        return None if factor is None else work.become(node, "mul", [dividend, factor])

    return rewrite(fusion, rule)


def _divides(node: Node) -> bool:
    op = node.op
    divides = op.scales and op.neutral == (None, 1) and not node.output.is_scalar
    return divides and set(node.compute_dtypes) == {F32}


def _inverse(divisor: Const) -> Const | None:
    value = divisor.value
    if isinstance(value, (bool, complex)) or not 2.0**-126 < abs(value) < 2.0**126:
        return None
    inverse = 1 / value
    return Const(inverse, divisor.dtype) if isfinite(inverse) and divisor.dtype.is_float else None


def _hoisted(node: Node, divisor: Value, work: Rewriter) -> Operand | None:
    """Return the reciprocal of a divisor, computed before the broadcast."""
    moved: list[Node] = []
    source: Value = divisor
    while (maker := work.producer.get(source)) is not None and maker.op.family == "movement":
        if len(maker.operands) != 1 or not isinstance(maker.operands[0], Value):
            return None
        moved.append(maker)
        source = maker.operands[0]
    if maker is None or maker.op.converts or source.dtype != F32:
        return None
    if maker.op.family not in ("reduction", "pointwise") or not _is_shared(source, node, work):
        return None
    factor: Operand = work.add(node, "reciprocal", [source])
    for each in reversed(moved):
        factor = work.add(node, each.op.name, [factor], each.attributes)
    return factor


def _is_shared(source: Value, node: Node, work: Rewriter) -> bool:
    sizes = work.fusion.hints
    few, many = (product(v.shape).evaluate(sizes) for v in (source, node.output))
    return many >= LEAST_SHARED * few
