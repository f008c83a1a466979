"""Replace GEMMs with K = 1 by multiplications."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, rewrite


def multiply_outer_products(fusion: Fusion) -> Fusion:
    """Replace a matmul or linear with summed extent 1 by a broadcast multiplication."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    product = node.op.product
    if product is None or node.op.lookup is not None or node.operands[0].shape[-1] != 1:
        return None
    if product.transposed:
        return _linear(node, work)
    left, right = node.operands
    left_rank, right_rank = len(left.shape), len(right.shape)
    # The summed dim of one operand is at the position of the other's rows or columns, if it has
    # any.
    if right_rank == 1:
        left = work.add(node, "squeeze", [left], {"dims": [left_rank - 1]})
    if left_rank == 1:
        right = work.add(node, "squeeze", [right], {"dims": [max(right_rank - 2, 0)]})
    return work.become(node, "mul", [_aligned(node, left, work), _aligned(node, right, work)])


def _linear(node: Node, work: Rewriter) -> Sequence[Operand]:
    x, weight, *bias = node.operands
    if len(weight.shape) == 1:
        x = work.add(node, "squeeze", [x], {"dims": [len(x.shape) - 1]})
        weight = work.add(node, "squeeze", [weight], {"dims": [0]})
    else:
        weight = work.add(node, "squeeze", [weight], {"dims": [1]})
    factors = [_aligned(node, operand, work) for operand in (x, weight, *bias)]
    if not bias:
        return work.become(node, "mul", factors)
    dtype = node.output.dtype
    if dtype == dtype.compute:
        product = work.add(node, "mul", factors[:2])
        return work.become(node, "add", [product, factors[2]])
    # The product is not rounded before the bias is added.
    wide = [work.add(node, "cast", [f], {"dtype": dtype.compute}) for f in factors]
    product = work.add(node, "mul", wide[:2])
    total = work.add(node, "add", [product, wide[2]])
    return work.become(node, "cast", [total], {"dtype": dtype})


def _aligned(node: Node, operand: Operand, work: Rewriter) -> Operand:
    """Return the operand with leading dims of extent 1 up to the rank of the result."""
    missing = node.output.rank - len(operand.shape)
    if missing == 0:
        return operand
    mask = (True,) * missing + (False,) * len(operand.shape)
    return work.add(node, "broadcast", [operand], {"is_broadcast_dim": mask})
