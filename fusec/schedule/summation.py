"""Summation trees: the order and types in which the sums that an output depends on are added.

Two plans of a fusion with equal digests for an output add its terms alike: slices, tickets, lanes,
the depth of MMA instructions and the types of accumulators are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from fusec.ir.graph import Fusion, Node, Value, whole_name

if TYPE_CHECKING:
    from fusec.reference.errors.order import Order
    from fusec.schedule.orders import PlannedOrder

DIGITS = 12
"""Hexadecimal digits of a digest: two of a million trees agree with probability 0.002."""


def summation_trees(
    fusion: Fusion, orders: Mapping[str, PlannedOrder] | Mapping[str, Order]
) -> dict[str, str]:
    """Return the digest of each output's summation tree, by name; outputs without sums have none.

    orders: of the sums and GEMMs of `fusion` by the name of their first result, for all sizes or at
    given ones. Sums in unknown order have no digest and do not count.
    """
    trees: list[str] = []
    below: dict[Value, int] = {}  # for each value the sums that it depends on, one bit each
    for node in fusion.nodes:
        found = 0
        for value in node.inputs:
            found |= below.get(value, 0)
        order = orders.get(node.output.name)
        if order is not None:
            found |= 1 << len(trees)
            trees.append(_tree(node, order))
        below |= dict.fromkeys(node.outputs, found)
    masks: dict[str, int] = {}
    for output in fusion.outputs:
        name = whole_name(output)
        masks[name] = masks.get(name, 0) | below.get(output.value, 0)
    return {n: _digest(t for k, t in enumerate(trees) if m >> k & 1) for n, m in masks.items() if m}


def digest_at(fusion: Fusion, orders: Mapping[str, PlannedOrder], sizes: Mapping[str, int]) -> str:
    """Return one digest of the summation trees of all outputs at sizes; empty without sums.

    It is the same for fusions that differ only in names.
    """
    trees = summation_trees(fusion, {name: order.at(sizes) for name, order in orders.items()})
    return _digest(trees.values()) if trees else ""


def _tree(node: Node, order: PlannedOrder | Order) -> str:
    """Return a sum's tree: the type of its accumulators, and all of its order."""
    return f"{node.op.name} in {node.output.dtype.compute}: {order!r}"


def _digest(trees: Iterable[str]) -> str:
    return sha256("\n".join(trees).encode()).hexdigest()[:DIGITS]
