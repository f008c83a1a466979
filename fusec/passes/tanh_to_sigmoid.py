"""Replace half of 1 + tanh(u) by sigmoid(2 u), and z times half of 1 + erf(z / sqrt(2)) by GELU."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusec.ir.dtype import F32, F64
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ops.find import find_op
from fusec.ops.table import TABLE
from fusec.passes.half_ends import UNIT, tolerances
from fusec.passes.rewrite import Rewriter, rewrite

CLOSE = 1e-6
"""Relative distance within which a literal matches a constant: covers f32 rounding and shortened
decimals."""
MOST_FACTORS = 8

Made = tuple[str, Operand, list[Operand]]
"""An operation, its operand, and the factors of a product with its result."""


def tanh_to_sigmoid(fusion: Fusion) -> Fusion:
    """Rewrite products with half of 1 + tanh or 1 + erf, as in GELU, with fewer instructions.

    1 + tanh and 1 + erf cancel for negative operands; the replacements do not. Applies only to
    results that end in 16-bit floats.
    """
    mul, inner = find_op("mul"), TABLE.imported("tanh", "erf")
    if not any(n.op in inner for n in fusion.nodes):
        return fusion
    allowed = tolerances(fusion)
    least = _largest_error() * UNIT

    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.op is not mul or node.output.dtype != F32 or allowed[node.output.name] < least:
            return None
        factors = _factors(node, work)
        half = next((f for f in factors if _is(f, 0.5)), None)
        if half is None or len(factors) > MOST_FACTORS:
            return None
        factors.remove(half)
        for place, factor in enumerate(factors):
            rest = factors[:place] + factors[place + 1 :]
            made = _of_tanh(node, factor, rest, work) or _of_erf(node, factor, rest, work)
            if made is not None:
                return _multiplied(node, *made, work)
        return None

    return rewrite(fusion, rule)


def _largest_error() -> float:
    form = find_op("sigmoid").approx
    assert form is not None
    return form.largest


def _factors(node: Node, work: Rewriter) -> list[Operand]:
    """Return the factors of a product, including those of products that nothing else reads."""
    found: list[Operand] = []
    for operand in node.operands:
        inner = work.source(operand, "mul")
        once = isinstance(operand, Value) and work.used_once(operand) and operand.dtype == F32
        found += _factors(inner, work) if inner is not None and once else [operand]
    return found


def _is(operand: Operand, value: float) -> bool:
    return (
        isinstance(operand, Const)
        and not isinstance(operand.value, (bool, complex))
        and abs(operand.value - value) <= CLOSE * value
    )


def _one_plus(factor: Operand, op: str, work: Rewriter) -> Operand | None:
    """Return x if a factor is 1 + op(x), in f32 and read by nothing else."""
    total = work.source(factor, "add")
    if total is None or not _is_own(factor, work):
        return None
    terms = [o for o in total.operands if not _is(o, 1.0)]
    inner = work.source(terms[0], op) if len(terms) == 1 else None
    return inner.operands[0] if inner is not None and _is_own(terms[0], work) else None


def _is_own(operand: Operand, work: Rewriter) -> bool:
    return isinstance(operand, Value) and work.used_once(operand) and operand.dtype == F32


def _of_tanh(node: Node, factor: Operand, rest: list[Operand], work: Rewriter) -> Made | None:
    argument = _one_plus(factor, "tanh", work)
    if argument is None or argument.shape != node.output.shape:
        return None
    scaled = work.source(argument, "mul")
    twice: Operand | None = None
    if scaled is not None and _is_own(argument, work):
        twice = _doubled(node, scaled, work)
    if twice is None:
        twice = work.add(node, "mul", [argument, Const(2.0, F64)])
    return "sigmoid", twice, rest


def _doubled(node: Node, product: Node, work: Rewriter) -> Operand | None:
    """Return twice a product with a literal, by doubling the literal."""
    literals = [o for o in product.operands if isinstance(o, Const)]
    if len(literals) != 1 or isinstance(literals[0].value, (bool, complex)):
        return None
    (other,) = (o for o in product.operands if o is not literals[0])
    return work.add(node, "mul", [other, Const(2.0 * literals[0].value, literals[0].dtype)])


def _of_erf(node: Node, factor: Operand, rest: list[Operand], work: Rewriter) -> Made | None:
    argument = _one_plus(factor, "erf", work)
    scaled = None if argument is None else work.source(argument, "mul")
    if scaled is None:
        return None
    z = next((o for o in scaled.operands if not _is(o, math.sqrt(0.5))), None)
    if z is None or z not in rest or all(not _is(o, math.sqrt(0.5)) for o in scaled.operands):
        return None
    if z.type.dtype != F32 or z.shape != node.output.shape:
        return None
    others = list(rest)
    others.remove(z)
    return "gelu_approx", z, others


def _multiplied(
    node: Node, op: str, operand: Operand, rest: list[Operand], work: Rewriter
) -> Sequence[Operand]:
    """Replace a node by the product of op(operand) and the other factors."""
    if not rest:
        return work.become(node, op, [operand])
    product = rest[0]
    for factor in rest[1:]:
        product = work.add(node, "mul", [product, factor])
    return work.become(node, "mul", [product, work.add(node, op, [operand])])
