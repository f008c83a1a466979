"""The orders of a fusion's original sums, from the plans of the segments that it became.

Passes and redefinitions keep the names of what they rewrite, but they merge, drop and split sums.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeGuard

from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ir.roles import Combine
from fusec.schedule.orders import PlannedOrder, is_sum, serial
from fusec.schedule.plan import KernelPlan

"""Operations besides movement that leave a sum a sum if their other operands are scalars."""
MOST_PARTS = 64
"""Most partial sums that are searched for if they are added one by one."""


def orders_of(
    original: Fusion, fusion: Fusion, plans: Iterable[KernelPlan]
) -> dict[str, PlannedOrder]:
    """Return the order of each sum of `original` by the name of its first result.

    fusion: what `original` was rewritten to, whose segments the plans are for. A sum of partial
    sums has the order of a part followed by that of their sum. Sums that are not found are omitted.
    """
    made = _Made(original, fusion, _together(plans, fusion.hints))
    sums = [n for n in original.nodes if is_sum(n)]
    found: dict[str, PlannedOrder] = {}
    for node in sums:
        names = tuple(names_of(original, node))
        orders = (*map(made.order, names), *(made.additions(name) for name in names))
        order = next((o for o in orders if o is not None), None)
        if order is not None:
            found[node.output.name] = order
    missing = [n for n in sums if n.output.name not in found]
    if missing:
        number = expressions(original)
        shared = {number[n.output]: found[n.output.name] for n in sums if n.output.name in found}
        alike = ((n.output.name, shared.get(number[n.output])) for n in missing)
        found |= {name: order for name, order in alike if order is not None}
    return found


def _together(plans: Iterable[KernelPlan], sizes: Mapping[str, int]) -> Mapping[str, PlannedOrder]:
    """Return the orders of all plans; for a sum computed by several, the longest chain."""
    found: dict[str, PlannedOrder] = {}
    for plan in plans:
        for name, order in plan.orders.items():
            if name not in found or order.longest(sizes) > found[name].longest(sizes):
                found[name] = order
    return found


class _Made:
    """What the sums of a fusion were rewritten to."""

    def __init__(
        self, original: Fusion, fusion: Fusion, planned: Mapping[str, PlannedOrder]
    ) -> None:
        self._given = {v.name for v in original.values}
        self._makers = {v.name: n for n in fusion.nodes for v in n.outputs}
        self._sums_for = {n.origin: n for n in fusion.nodes if n.origin and is_sum(n)}
        self._planned = planned

    def order(self, name: str) -> PlannedOrder | None:
        """Return the order of the value called `name`, if it is a sum or computed from new sums."""
        node = self._makers.get(name) or self._sums_for.get(name)
        if node is None:
            return None
        return self._of_sum(node) if is_sum(node) else self._of_parts(node)

    def additions(self, name: str) -> PlannedOrder | None:
        """Return the order of the value called `name`, if new additions sum it from slices."""
        slices, rest = 0, [self._makers.get(name)]
        while rest:
            node = rest.pop()
            if _is_addition(node) and (
                node.output.name == name or node.output.name not in self._given
            ):
                rest += [self._makers.get(v.name) for v in node.inputs]
            elif node is not None and node.op.family == "movement":
                slices += 1
            else:
                return None
        return PlannedOrder((serial(slices),)) if slices > 1 else None

    def _of_sum(self, node: Node) -> PlannedOrder | None:
        own = self._planned.get(node.output.name)
        if own is None or node.op.family != "reduction" or node.op.combine is not Combine.SUM:
            return own
        first = self._of_new(node.operands[0])
        added = self._source(node.operands[0])
        if first is None and _is_addition(added):
            # Variances of parts and the squared distances of their means.
            first = next((o for o in map(self._of_new, added.operands) if o is not None), None)
        return own if first is None else first.then(own)

    def _of_new(self, operand: Operand) -> PlannedOrder | None:
        """Return the order of a value that is a sum absent from the original fusion."""
        node = self._source(operand)
        if node is None or not is_sum(node) or node.output.name in self._given:
            return None
        return self._of_sum(node)

    def _of_parts(self, node: Node) -> PlannedOrder | None:
        """Return the order of a new sum, or of equally ordered ones that are added one by one."""
        parts, rest = list[PlannedOrder | None](), list[Operand]([node.output])
        while rest:
            operand = rest.pop()
            source = self._source(operand)
            if _is_addition(source):
                rest += source.operands
            else:
                parts.append(self._of_new(operand))
            if len(parts) + len(rest) > MOST_PARTS or None in parts:
                return None
        first = parts[0]
        if first is None or any(part != first for part in parts):
            return None
        return first if len(parts) == 1 else first.then(PlannedOrder((serial(len(parts)),)))

    def _source(self, operand: Operand) -> Node | None:
        """Return the node that computes an operand, through movement, casts and scaling."""
        while isinstance(operand, Value):
            node = self._makers.get(operand.name)
            if node is None or not _passes(node):
                return node
            operand = next(o for o in node.operands if not _is_factor(o))
        return None


def _is_addition(node: Node | None) -> TypeGuard[Node]:
    return node is not None and node.op.name == "add"


def _passes(node: Node) -> bool:
    """Return whether a node's result is one tensor moved, converted or scaled."""
    tensors = [o for o in node.operands if not _is_factor(o)]
    moves = node.op.family == "movement" or node.op.converts or node.op.scales
    return len(tensors) == 1 and moves


def _is_factor(operand: Operand) -> bool:
    return isinstance(operand, Const) or operand.is_scalar


def names_of(fusion: Fusion, node: Node) -> Iterator[str]:
    """Yield a result's name, and the names that its node may have later.

    Removed copies and casts pass on their names to it, and so does a slice that is moved before it.
    """
    found = [node.output]
    for value in found:
        yield value.name
        users = fusion.users.get(value, ())
        moved = (u.output for u in users if u.op.family == "movement" or u.op.converts)
        found += [v for v in moved if v not in found]


def expressions(fusion: Fusion) -> Mapping[Value, int]:
    """Return a number for each value; equal expressions have the same number."""
    keys: dict[Hashable, int] = {}
    number: dict[Value, int] = {}
    for node in fusion.nodes:
        operands = tuple(
            o if isinstance(o, Const) else number.setdefault(o, len(number)) for o in node.operands
        )
        attributes = repr(sorted(node.attributes.items()))
        for place, value in enumerate(node.outputs):
            key = (node.op.name, operands, attributes, place)
            number[value] = keys.setdefault(key, len(number))
    return number
