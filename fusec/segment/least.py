"""A lower bound on the time of one kernel for some groups, known before any scheduler is called.

It is the time of the bytes that the kernel moves at least: all of its results, and the elements of
its operands that these need, counted backwards node by node without regard to their positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from fusec.dataclasses import dataclass
from fusec.index.demanded import Demand
from fusec.ir.graph import Fusion, Node, Value
from fusec.segment.cheap import distinct_bytes
from fusec.segment.groups import Groups
from fusec.segment.piece import Piece
from fusec.segment.protocol import Estimate
from fusec.target import Target

VIEWED = frozenset({"movement", "factory", "scalar"})
"""Families of operations whose results may be views, which need no kernel."""


@dataclass(frozen=True)
class _Operand:
    """An operand of a node: the elements that all of its results need, and the elements of these.

    in_part: whether a part of a result needs a proportional part of the operand.
    """

    value: Value
    least: int
    results: int
    in_part: bool


class LeastSeconds:
    """Computes lower bounds on any scheduler's predicted time for groups of a fusion's nodes."""

    def __init__(self, fusion: Fusion, target: Target) -> None:
        """Take the fusion; nodes are analysed lazily."""
        self.fusion = fusion
        self.target = target
        self._operands: dict[Node, Sequence[_Operand]] = {}
        self._sizes: dict[Value, int] = {}
        self._changing = {update.node for update in fusion.effects.changes.values()}

    def of(self, groups: Groups, chosen: Collection[Piece]) -> float:
        """Return a lower bound on the predicted seconds of one kernel for some groups.

        The bytes are moved at the highest fraction of the bandwidth that any family reaches, by
        blocks on all SMs, in one launch. 0 if all results may be views or are empty.
        """
        results = groups.results(chosen)
        if not any(self._is_computed(v) for v in results):
            return 0.0
        written = sum(self._written(v) * v.dtype.size for v in results)
        read = self._read_bytes(groups.members(chosen), results)
        least = Estimate(
            bytes=read + written,
            written=written,
            efficiency=self.target.best_reach,
            ctas=self.target.sms,
        )
        return least.seconds(self.target)

    def _read_bytes(self, nodes: Sequence[Node], results: Sequence[Value]) -> int:
        """Return a lower bound on the bytes that nodes, in order, read for their results."""
        needed = {v: self._size(v) for v in results}
        for node in reversed(nodes):
            count = max((needed.pop(v, 0) for v in node.outputs), default=0)
            for operand in self._operands_of(node) if count else ():
                least = operand.least
                if count < operand.results:
                    least = count * least // operand.results if operand.in_part else 0
                if least > needed.get(operand.value, 0):
                    needed[operand.value] = least
        return sum(self._bytes_of(v, count) for v, count in needed.items())

    def _operands_of(self, node: Node) -> Sequence[_Operand]:
        """Return the tensors that a node reads, with how much of them its results need."""
        known = self._operands.get(node)
        if known is None:
            known = self._operands[node] = list(self._find_operands(node))
        return known

    def _find_operands(self, node: Node) -> Iterator[_Operand]:
        if node.op.family == "scalar" or node in self._changing:
            return
        demand, results = Demand(self.fusion, node.outputs), max(map(self._size, node.outputs))
        in_part = node.op.family == "pointwise"
        for value in dict.fromkeys(node.inputs):
            if not value.is_scalar:
                least = self._size(value) if in_part else demand.of_user(node, value).least
                yield _Operand(value, least, results, in_part)

    def _size(self, value: Value) -> int:
        """Return the elements of a value, 1 of a scalar."""
        known = self._sizes.get(value)
        if known is None:
            hints = self.fusion.hints
            known = self._sizes[value] = prod(e.evaluate(hints) for e in value.shape)
        return known

    def _written(self, value: Value) -> int:
        update = self.fusion.effects.updates.get(value)
        if update is None:
            return self._size(value)
        return prod(e.evaluate(self.fusion.hints) for e in update.written)

    def _bytes_of(self, value: Value, count: int) -> int:
        """Return a lower bound on the bytes in memory of so many elements of a value."""
        entry, size = self.fusion.input_of.get(value), self._size(value)
        if entry is None or not size:
            return count * value.dtype.size
        return count * distinct_bytes(self.fusion, entry) // size

    def _is_computed(self, value: Value) -> bool:
        """Return whether a result has elements and is not a view."""
        return bool(self._size(value)) and self.fusion.producer[value].op.family not in VIEWED
