"""Evaluation time with expected errors, in seconds of one core.

Measured on graphs of the corpus on one core of a Xeon (2.1 GHz, NumPy 2.3, 2026-11): the cost per
element of the largest operand or result, and of judging one element of an output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fusec.ir.evaluate import Sizes, extents
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.reference.sweeps import Sweep

SECONDS = 1e-9
"""Unit of the numbers below."""
FAMILIES: Mapping[str, float] = {
    "movement": 4,
    "factory": 4,
    "indexing": 20,
    "scalar": 0,
    "random": 120,
    "reduction": 40,
    "scan": 150,
    "sort": 300,
    "scatter": 150,
}
POINTWISE = 30.0
"""Of an operation with declared slopes, or with exact operands."""
MOVED = 60.0
"""Of one that is also evaluated at the ends of its operands."""
CONVERTED = 4.0
ROWS = 150.0
"""Of a sum over the last axis: repeated terms are found by sorting."""
HALF = 40.0
"""Of rounding a computed operand to a 16-bit float."""
MULTIPLIED = 0.25
"""Of one multiplication in a contraction, which is evaluated as five GEMMs in double precision."""
JUDGED = 40.0
"""Of comparing one element of an output."""
SERIAL = 0.15
"""Fraction of an evaluation in which a thread holds the GIL, so that other threads wait."""


def useful_threads(processors: int) -> int:
    """Return how many threads are useful on a number of processors, limited by the GIL."""
    return max(1, min(processors, round(1 / SERIAL)))


def speedup(processors: int) -> float:
    """Return the speedup of a number of processors over one, by Amdahl's law."""
    return 1 / (SERIAL + (1 - SERIAL) / useful_threads(processors))


class Costs:
    """The costs of a fusion's nodes and outputs at given sizes; see the numbers above."""

    def __init__(self, fusion: Fusion, sizes: Sizes) -> None:
        """Find which values have errors."""
        self._fusion, self._sizes = fusion, sizes
        self._count: dict[Operand, int] = {}
        self._seconds: dict[Node, float] = {}
        self._exact: set[Operand] = {entry.value for entry in fusion.inputs}
        for node in fusion.nodes:
            kept = node.op.family == "movement" or node.op.converts
            if node.op.family in ("factory", "scalar") or (
                kept and all(v in self._exact for v in node.inputs)
            ):
                self._exact.update(node.outputs)

    def evaluated(self, nodes: Sequence[Node]) -> float:
        """Return the seconds that one core takes for some nodes."""
        return sum(map(self._of_node, nodes)) * SECONDS

    def judged(self, outputs: Sequence[Value]) -> float:
        """Return the seconds that one core takes to judge some outputs."""
        return sum(map(self._elements, outputs)) * JUDGED * SECONDS

    def of_sweep(self, sweep: Sweep) -> float:
        """Return the seconds that one core takes for all blocks of a sweep."""
        return self.evaluated([*sweep.nodes, *sweep.sums]) + self.judged(sweep.outputs)

    def _of_node(self, node: Node) -> float:
        if node not in self._seconds:
            count = max(self._elements(o) for o in (*node.outputs, *node.operands))
            own = count * self._of_element(node)
            self._seconds[node] = own + sum(map(self._of_rounding, node.outputs))
        return self._seconds[node]

    def _of_element(self, node: Node) -> float:
        op = node.op
        if op.family == "contraction":
            terms = extents(node.operands[0].type, self._sizes)[-1:]
            products = self._elements(node.output) * prod(terms) * MULTIPLIED
            return POINTWISE + products / max(1, self._elements(node.output))
        if op.converts:
            return CONVERTED
        if op.is_elementwise:
            exact = all(v in self._exact for v in node.inputs)
            return POINTWISE if exact or op.slopes is not None or op.chooses else MOVED
        if op.family == "reduction":
            last = len(extents(node.operands[0].type, self._sizes)) - 1
            return ROWS if last in node.attributes["dims"] else FAMILIES["reduction"]
        return FAMILIES[op.family]

    def _of_rounding(self, value: Value) -> float:
        """Return the cost of rounding a value where it is read, once for all readers."""
        if not value.dtype.is_half or value in self._exact:
            return 0.0
        readers = self._fusion.users.get(value, ())
        is_read = any(reader.op.family != "movement" for reader in readers)
        return self._elements(value) * HALF if is_read else 0.0

    def _elements(self, operand: Operand) -> int:
        if operand not in self._count:
            self._count[operand] = prod(extents(operand.type, self._sizes))
        return self._count[operand]
