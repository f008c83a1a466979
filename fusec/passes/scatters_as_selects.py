"""Replace a scatter of one element per row into a constant by a comparison with the index."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.dim import dim
from fusec.ir.dtype import I64
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ops.movement.scatters import scatter, scatter_add
from fusec.passes.rewrite import Rewriter, fits, rewrite


def scatters_as_selects(fusion: Fusion) -> Fusion:
    """Replace scatters of one element per row into a constant by `where(index == iota, src, fill)`.

    One-hot vectors and gradients of gathers are such scatters. The comparison fuses with its
    readers; a scatter does not, as it writes the whole tensor first.
    """
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op not in (scatter, scatter_add):
        return None
    into, index, source = node.operands
    filled = work.source(into, "full")
    if filled is None or not isinstance(index, Value) or not isinstance(filled.operands[0], Const):
        return None
    fill, axis, shape = filled.operands[0], node.attributes["dim"], node.output.shape
    if node.op is scatter_add and fill.value != 0:
        return None
    one = tuple(dim(1) if k == axis else e for k, e in enumerate(shape))
    if index.shape != one or (isinstance(source, Value) and source.shape not in (one, ())):
        return None
    if index.dtype != I64:
        index = work.add(node, "cast", [index], {"dtype": I64})
    if node.op is scatter_add and isinstance(source, Value):
        source = work.add(node, "add", [source, fill])  # 0.0 + -0.0 is 0.0
    ramp = [Const(0, I64), Const(1, I64)]
    along = work.add(node, "iota", ramp, {"length": shape[axis], "dtype": I64})
    mask = tuple(k != axis for k in range(len(shape)))
    if any(mask):
        along = work.add(node, "broadcast", [along], {"is_broadcast_dim": mask})
    chosen = work.add(node, "eq", [index, along])
    operands = [chosen, source, fill]
    if fits(node, "where", operands):
        return work.become(node, "where", operands)
    made = work.add(node, "where", operands)
    return work.become(node, "cast", [made], {"dtype": node.output.dtype})
