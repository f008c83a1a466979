"""Merge chains of casts whose intermediate type is lossless."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.dtype import F32, DType
from fusec.ir.graph import Const, Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, rewrite

_FLOATS = {
    "f64": (53, -1074, 1024), "f32": (24, -149, 128), "f16": (11, -24, 16), "bf16": (8, -133, 128),
    "f8e4m3": (4, -9, 9), "f8e5m2": (3, -16, 16),
}  # fmt: skip
"""Bits of the significand, exponent of the least positive value, exponent above the largest."""


def merge_casts(fusion: Fusion) -> Fusion:
    """Read through a widening cast: the next cast starts from the narrow value.

    A narrowing cast is never read through: its rounding is part of the semantics.
    """
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if not node.op.converts:
        return None
    operand, target = node.operands[0], node.output.dtype
    if isinstance(operand, Const):
        return None
    if operand.dtype == target:
        return (operand,)
    inner = work.source(operand, "cast")
    if inner is None:
        return None
    origin = inner.operands[0]
    source, middle = origin.type.dtype, operand.dtype
    if not holds(middle, source) or not _direct(source, middle, target):
        return None
    if source == target:
        return (origin,)
    return work.become(node, "cast", [origin], {"dtype": target})


def holds(wide: DType, narrow: DType) -> bool:
    """Return whether `wide` represents every value of `narrow`."""
    if wide == narrow or narrow.kind == "bool":
        return wide == narrow or wide.kind != "complex"
    if narrow.is_integer and wide.is_integer:
        if narrow.kind == wide.kind:
            return narrow.bits <= wide.bits
        return narrow.kind == "uint" and narrow.bits < wide.bits
    if wide.name not in _FLOATS:
        return False
    digits, least, end = _FLOATS[wide.name]
    if narrow.is_integer:
        # The most negative integer is a power of two: one significand bit suffices for it.
        return narrow.bits - (narrow.kind == "int") <= digits and narrow.bits <= end
    if narrow.name not in _FLOATS:
        return False
    inner_digits, inner_least, inner_end = _FLOATS[narrow.name]
    return inner_digits <= digits and least <= inner_least and inner_end <= end


def _direct(source: DType, middle: DType, target: DType) -> bool:
    """Return whether casting without the exact intermediate type gives the same values."""
    if source.is_integer and middle.is_float and target.is_integer:
        # Out of range, an integer wraps and a float does not.
        return holds(target, source)
    # 16-bit floats are converted through f32: a wider integer would be rounded twice.
    return not target.is_half or source.is_float or holds(F32, source)
