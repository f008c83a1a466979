"""Evaluate scalars of literals, and drop operations with a neutral literal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusec.diagnostics import FusecError
from fusec.ir.dtype import F64
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ops.literals import typed_literals
from fusec.passes.rewrite import Rewriter, rewrite


def fold_constants(fusion: Fusion) -> Fusion:
    """Replace scalars computed from literals by literals, and drop neutral operations."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op.family not in ("pointwise", "scalar") or len(node.outputs) != 1:
        return None
    if node.output.is_scalar:
        literal = _literal(node)
        if literal is not None and _is_welcome(literal, node.output, work):
            return (literal,)
    chosen = _neutral(node) if not node.op.chooses else _selected(node)
    # A value computed in a wider type was rounded to this one at the end, so it is the same.
    if isinstance(chosen, Value) and chosen.type == node.output.type:
        return (chosen,)
    return None


def _literal(node: Node) -> Const | None:
    known, dtype = node.output.dim, node.output.dtype
    if known is not None:
        return Const(dtype.wrap(known.value), dtype) if known.is_const else None
    if node.inputs or not node.operands:
        return None
    quick = _quick_literal(node)
    return _reference_literal(node) if quick is None else quick


def _quick_literal(node: Node) -> Const | None:
    function = node.op.quick
    if function is None or node.output.dtype != F64:
        return None
    literals = [o.value for o in node.operands if isinstance(o, Const)]
    try:
        number = function(*(float(v) for v in literals if not isinstance(v, complex)))
    except (ArithmeticError, ValueError):
        return None
    return Const(number, F64) if math.isfinite(number) else None


def _reference_literal(node: Node) -> Const | None:
    import numpy as np

    from fusec.ir.evaluate import evaluate_node, round_to

    array, dtype = evaluate_node(node, {}, {})[0], node.output.dtype
    if dtype.is_float:
        array = round_to(array, dtype)
        return Const(float(array), dtype) if np.isfinite(array) else None
    return Const(array.item(), dtype)


def _is_welcome(literal: Const, value: Value, work: Rewriter) -> bool:
    """Return whether every user computes the same types with the literal: literals are weak.

    A computed scalar is converted to a type that cannot represent it, but a literal is rejected
    there.
    """
    for user in work.fusion.users.get(value, ()):
        operands = tuple(literal if o is value else work.current(o) for o in user.operands)
        try:
            types = user.op.infer(operands, user.attributes)
            computed = user.op.compute(operands, user.output.dtype)
            typed_literals(user.op, operands, user.output.dtype)
        except FusecError:
            return False
        before = [(v.dtype, v.type.shape) for v in user.outputs]
        if [(t.dtype, t.shape) for t in types] != before or computed != user.compute_dtypes:
            return False
    return True


def _neutral(node: Node) -> Operand | None:
    if len(node.operands) != 2:
        return None
    left, right = node.operands
    before, after = node.op.neutral
    if _is_number(right, after):
        return left
    return right if _is_number(left, before) else None


def _is_number(operand: Operand, number: float | None) -> bool:
    # 0.0 and -0.0 differ: x - -0.0 is not x for x = -0.0.
    return (
        number is not None
        and isinstance(operand, Const)
        and not isinstance(operand.value, bool)
        and operand.value == number
        and not str(operand.value).startswith("-")
    )


def _selected(node: Node) -> Operand | None:
    condition = node.operands[0]
    if isinstance(condition, Const):
        return node.operands[1 if condition.value else 2]
    return node.operands[1] if node.operands[1] == node.operands[2] else None
