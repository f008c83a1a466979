"""The least that NVRTC takes for a kernel, by its operations alone.

Groups that are too long for a kernel of any family are found so without asking one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fusec.ir.graph import Node
from fusec.ir.op import Cost
from fusec.segment.cheap import is_injective
from fusec.segment.limits import MOST_AGAIN, MOST_ARMS, MOST_LENGTH
from fusec.target.costs import BuildCost

FLAT_ELEMENTS = 8
"""Elements that a thread of a pointwise kernel mostly computes; of no kernel of such operations
without a reduction are there fewer."""
ELEMENTWISE = ("pointwise", "random")


def statements_of(operation: Cost, cost: BuildCost) -> float:
    """Return how many statements an operation counts as."""
    return max(1.0, operation.flops + cost.special_statements * operation.sfu)


def statement_seconds(elements: int, cost: BuildCost) -> float:
    """Return the seconds of an operation in a loop over so many elements, which is unrolled."""
    return cost.statement_seconds * elements**cost.unrolled_exponent


def is_too_long(nodes: Collection[Node], sizes: Mapping[str, int], cost: BuildCost) -> bool:
    """Return whether no kernel of some nodes is within the limits of `limits`, whatever its family.

    Of elementwise operations, each is computed once at least. Reductions over the same dims of
    tensors of the same shape are all in one phase or more, which has so many at least.
    """
    reductions = [n for n in nodes if n.op.family == "reduction"]
    if any(not is_injective(n) for n in nodes if n.op.family != "reduction"):
        return False
    if any(len(n.operands) > MOST_ARMS for n in nodes):
        return False  # several kernels put tensors beside one another
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
