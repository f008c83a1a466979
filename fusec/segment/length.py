"""A lower bound on NVRTC's compile time of a kernel, by its operations alone.

It rejects groups that are too long for a kernel of any family without calling a scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fusec.ir.graph import Node
from fusec.ir.op import Cost
from fusec.segment.cheap import is_injective
from fusec.segment.limits import MOST_AGAIN, MOST_ARMS, MOST_LENGTH
from fusec.target.costs import BuildCost

FLAT_ELEMENTS = 8
"""Elements that a thread of a pointwise kernel usually computes; a kernel of pointwise operations
without a reduction computes no fewer."""
ELEMENTWISE = ("pointwise", "random")


def statements_of(operation: Cost, cost: BuildCost) -> float:
    """Return how many statements an operation counts as."""
    return max(1.0, operation.flops + cost.special_statements * operation.sfu)


def statement_seconds(elements: int, cost: BuildCost) -> float:
    """Return the compile seconds of an operation in an unrolled loop over so many elements."""
    return cost.statement_seconds * elements**cost.unrolled_exponent


def is_too_long(nodes: Collection[Node], sizes: Mapping[str, int], cost: BuildCost) -> bool:
    """Return whether no kernel of any family for some nodes is within the limits of `limits`.

    Each elementwise operation is computed at least once. Reductions over the same dims of tensors
    of the same shape are in one or more phases, each with at least their number of statements.
    """
    reductions = [n for n in nodes if n.op.family == "reduction"]
    if any(not is_injective(n) for n in nodes if n.op.family != "reduction"):
        return False
    if any(len(n.operands) > MOST_ARMS for n in nodes):
        return False  # several kernels concatenate tensors
    if reductions:
        if len({(n.inputs[0].shape, n.attributes["dims"]) for n in reductions}) > 1:
            return False
        count = len(reductions)
        again = cost.reduction_seconds * (count**cost.reductions_exponent - count)
        return again > MOST_AGAIN and _computes(reductions[0], sizes)
    made = (n for n in nodes if n.op.family in ELEMENTWISE and _computes(n, sizes))
    statements = sum(statements_of(n.op.cost, cost) for n in made)
    return cost.kernel_seconds + statement_seconds(FLAT_ELEMENTS, cost) * statements > MOST_LENGTH


def _computes(node: Node, sizes: Mapping[str, int]) -> bool:
    """Return whether a node computes elements of a tensor, at hint sizes."""
    value = node.inputs[0] if node.op.family == "reduction" else node.output
    if value.is_scalar or not all(e.evaluate(sizes) for e in value.shape):
        return False
    if node.op.family != "reduction":
        return value.dim is None
    dims = node.attributes["dims"]
    return any(e.evaluate(sizes) > 1 for k, e in enumerate(value.shape) if k in dims)
