"""Scale the result of a GEMM instead of its operands, for literal factors."""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, isfinite, prod

from fusec.ir.dtype import BF16, F32, F64
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ops.acts import Act, act_of
from fusec.passes.rewrite import Rewriter, rewrite

EXACT = (BF16, F32)
"""Types with 8 exponent bits: a power of two scales them without rounding, also across casts
between them."""
Found = tuple[Value, list[Node], float]
"""A value multiplied by a literal, the nodes from this multiplication to the GEMM, the literal."""


def hoist_scales(fusion: Fusion) -> Fusion:
    """Rewrite `(x * c) @ y` as `(x @ y) * c` if c is a power of two, or x is f32.

    Powers of two cause no rounding in either place; other literals round the sums in f32 instead of
    each element of x. An operand that is only moved is read from memory, as attention requires it.
    The product of x and c must have no other reader.
    """
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op.product is None or node.op.lookup is not None or len(node.operands) != 2:
        return None
    if node.output.dtype not in (*EXACT, F64):
        return None
    scaled = [_scaled(operand, work) for operand in node.operands]
    factor = prod(found[2] for found in scaled if found is not None)
    if factor in (0.0, 1.0) or not isfinite(factor):
        return None
    sides = [
        operand if found is None else _moved(found[0], found[1], node, work)
        for operand, found in zip(node.operands, scaled, strict=True)
    ]
    result = work.add(node, node.op.name, sides, node.attributes)
    return work.become(node, "mul", [result, Const(factor, F64)])


def _scaled(operand: Operand, work: Rewriter) -> Found | None:
    """Return an operand of a GEMM before its multiplication by a literal, None if there is none."""
    way: list[Node] = []
    while isinstance(operand, Value) and operand.dtype in EXACT:
        node = work.producer.get(operand)
        if node is None or not work.used_once(operand):
            return None  # a product with other readers is computed anyway
        if act_of(node.op) is Act.MULTIPLY:
            scale = _literal(node)
            if scale is None or (not _is_power_of_two(scale[1]) and not _stays_f32(node, way)):
                return None
            return scale[0], way[::-1], scale[1]
        moves = node.op.family == "movement" and node.op.access is not None and node.op.access.view
        if not (moves or node.op.converts):
            return None
        way.append(node)
        operand = node.operands[0]
    return None


def _literal(node: Node) -> tuple[Value, float] | None:
    """Return the tensor and the number that a node multiplies."""
    for value, other in (node.operands, node.operands[::-1]):
        number = other.value if isinstance(other, Const) else None
        if isinstance(value, Value) and isinstance(number, (int, float)) and number:
            same = value.dtype == node.output.dtype and value.shape == node.output.shape
            return (value, float(number)) if same and isfinite(number) else None
    return None


def _is_power_of_two(number: float) -> bool:
    return abs(frexp(number)[0]) == 0.5


def _stays_f32(node: Node, way: Sequence[Node]) -> bool:
    return node.output.dtype == F32 and not any(n.op.converts for n in way)


def _moved(source: Value, way: Sequence[Node], near: Node, work: Rewriter) -> Value:
    """Return a value after some movements and casts."""
    for each in way:
        source = work.add(near, each.op.name, [source], each.attributes)
    return source
