"""Scale the result of a GEMM instead of an 8-bit operand."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.dataclasses import dataclass
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.passes.merge_casts import holds
from fusec.passes.rewrite import Rewriter, rewrite


def with_scaled_results(fusion: Fusion) -> Fusion:
    """Return a segment with scales of 8-bit operands along their rows applied to GEMM results.

    The GEMM reads the 8-bit values in place. It is summed, scaled and rounded once in f32, whereas
    the scaled values would have been rounded too.
    """
    return rewrite(fusion, _rule)


@dataclass(frozen=True)
class _Scaled:
    """A two-dimensional operand: its 8-bit values, transposed or not, and a scale per row.

    scale: with one dim or none.
    """

    values: Value
    transposed: bool
    scale: Value


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    product, result = node.op.product, node.output
    if product is None or node.op.lookup is not None or result.dtype.compute != F32:
        return None
    sides = node.operands[:2]
    if any(not isinstance(o, Value) or o.rank != 2 for o in sides):
        return None
    along = (1, 1 if product.transposed else 0)
    found = [_scaled(o, k, node, work) for o, k in zip(sides, along, strict=True)]
    if found == [None, None]:
        return None
    wide = [_wide(o, s, node, work) for o, s in zip(sides, found, strict=True)]
    total = work.add(node, node.op.name, wide)
    for side, each in enumerate(found):
        if each is not None:
            total = work.add(node, "mul", [total, _spread(each.scale, side, node, work)])
    if len(node.operands) > 2:
        bias = work.add(node, "cast", [node.operands[2]], {"dtype": F32})
        mask = {"is_broadcast_dim": (True, False)}
        total = work.add(node, "add", [total, work.add(node, "broadcast", [bias], mask)])
    return work.become(node, "cast", [total], {"dtype": result.dtype})


def _scaled(operand: Operand, summed: int, node: Node, work: Rewriter) -> _Scaled | None:
    """Return the components of an operand if it is 8-bit values with a scale per row."""
    transposed, scaled = False, work.source(operand, "mul")
    while scaled is None:
        turned, maker = work.source(operand, "permute"), _maker(operand, work)
        if turned is not None and turned.attributes["dims"] == (1, 0):
            operand, summed, transposed = turned.operands[0], 1 - summed, not transposed
        elif maker is not None and _widens(maker):
            operand = maker.operands[0]
        else:
            return None
        scaled = work.source(operand, "mul")
    for values, scale in (scaled.operands, scaled.operands[::-1]):
        narrow, factor = _narrow(values, work), _constant(scale, summed, node, work)
        if narrow is not None and factor is not None and narrow.rank == 2:
            return _Scaled(narrow, transposed, factor)
    return None


def _narrow(value: Operand, work: Rewriter) -> Value | None:
    """Return the 8-bit values that a value only widens."""
    while (maker := _maker(value, work)) is not None:
        if not _widens(maker):
            return None
        value = maker.operands[0]
    if not isinstance(value, Value) or value.dtype.bits != 8 or value.dtype.kind == "bool":
        return None
    return value


def _maker(value: Operand, work: Rewriter) -> Node | None:
    return work.producer.get(value) if isinstance(value, Value) else None


def _widens(node: Node) -> bool:
    """Return whether a node is a lossless cast."""
    return node.op.converts and holds(node.output.dtype, node.operands[0].type.dtype)


def _constant(scale: Operand, summed: int, node: Node, work: Rewriter) -> Value | None:
    """Return a scale that does not vary along the summed dim, without that dim."""
    if not isinstance(scale, Value) or not scale.dtype.is_float or scale.dtype.compute != F32:
        return None
    spread, wider = work.source(scale, "broadcast_in_dim"), work.source(scale, "broadcast")
    if spread is not None and spread.attributes["broadcast_dims"] == (1 - summed,):
        return spread.inputs[0]
    mask = tuple(k == summed for k in range(2))
    if wider is not None and wider.attributes["is_broadcast_dim"] == mask:
        return wider.inputs[0]
    if scale.rank == 0:
        return scale
    if scale.rank != 2 or scale.shape[summed] != 1:
        return None
    return work.add(node, "squeeze", [scale], {"dims": [summed]})


def _wide(operand: Operand, scaled: _Scaled | None, node: Node, work: Rewriter) -> Operand:
    """Return an operand in f32, without its scale."""
    value = operand if scaled is None else scaled.values
    if value.type.dtype != F32:
        value = work.add(node, "cast", [value], {"dtype": F32})
    if scaled is not None and scaled.transposed:
        value = work.add(node, "permute", [value], {"dims": (1, 0)})
    return value


def _spread(scale: Value, side: int, node: Node, work: Rewriter) -> Operand:
    """Return a scale in f32 with the rank of the result: of its rows, or of its columns."""
    wide = scale if scale.dtype == F32 else work.add(node, "cast", [scale], {"dtype": F32})
    if scale.rank == 0:
        return wide
    return work.add(node, "broadcast", [wide], {"is_broadcast_dim": (side == 1, side == 0)})
