"""Replace reductions over dims of extent 1 by squeezes."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, rewrite


def squeeze_unit_reductions(fusion: Fusion) -> Fusion:
    """Squeeze the dims of extent 1 out of a reduction, with a cast if it changes the type."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    combine = node.op.combine
    if node.op.family != "reduction" or combine is None or not combine.keeps_one:
        return None
    operand = node.operands[0]
    dims: tuple[int, ...] = node.attributes["dims"]
    unit = [axis for axis in dims if operand.shape[axis] == 1]
    rest = [axis for axis in dims if axis not in unit]
    if rest:
        if not unit:
            return None
        operand = work.add(node, "squeeze", [operand], {"dims": unit})
        moved = tuple(axis - sum(u < axis for u in unit) for axis in rest)
        return work.become(node, node.op.name, [operand], {**node.attributes, "dims": moved})
    if operand.type.dtype == node.output.dtype:
        return work.become(node, "squeeze", [operand], {"dims": unit}) if unit else (operand,)
    if unit:
        operand = work.add(node, "squeeze", [operand], {"dims": unit})
    return work.become(node, "cast", [operand], {"dtype": node.output.dtype})
