"""Replace a tensor concatenated with itself by an expansion."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, rewrite


def expand_repeats(fusion: Fusion) -> Fusion:
    """Replace cat([x, x, ...]) by a reshape of x expanded along a new dim: a single read."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    if node.op.name != "cat" or len(node.operands) < 2 or len(set(node.operands)) > 1:
        return None
    tensor, count = node.operands[0], len(node.operands)
    axis: int = node.attributes["dim"]
    if tensor.shape[axis] == 1:
        return work.become(node, "expand", [tensor], {"shape": node.output.shape})
    mask = tuple(k == axis for k in range(len(tensor.shape) + 1))
    wide = (*tensor.shape[:axis], count, *tensor.shape[axis:])
    broadcast = work.add(node, "broadcast", [tensor], {"is_broadcast_dim": mask})
    copies = work.add(node, "expand", [broadcast], {"shape": wide})
    return work.become(node, "reshape", [copies], {"new_shape": node.output.shape})
