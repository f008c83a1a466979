"""A lower bound from an integer program, for fusions of any size.

Every node that may be computed only once is in the segment of one such node, the first of its
segment; the others are in as many segments as need them, or in segments of their own, which count
as one that may compute everything. A segment reads what its nodes need and it does not compute;
each value it reads is an input, or stored by another segment, or a view of either. Nodes that no
scheduler ever accepts together are in separate segments. Refusals for other reasons are ignored:
the optimum of the program is at most that of all segmentations, and so is the solver's own bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf
from typing import Any

from fusec.dataclasses import dataclass
from fusec.diagnostics import EnvironmentProblem
from fusec.exact.conflicts import Conflicts
from fusec.exact.space import Space, bits
from fusec.ir.graph import Value
from fusec.segment.views import may_be_view

POOL = -1
"""The segment of all nodes that share no segment with a node that is computed once."""
MOST_ENTRIES = 2_000_000
"""Nonzero coefficients above which the program would take too long."""


@dataclass(frozen=True)
class Proof:
    """A lower bound; `nodes`: of the solver's search tree."""

    lower: int
    nodes: int


class Rows:
    """Constraints: low <= sum of coefficients times variables <= high."""

    def __init__(self) -> None:
        """Start without variables and constraints."""
        self.costs: list[float] = []
        self.whole: list[int] = []
        self.highest: list[float] = []
        self.entries: list[tuple[int, int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def variable(self, cost: float = 0.0, whole: bool = False, highest: float = 1.0) -> int:
        """Return a new variable from 0 to `highest`."""
        self.costs.append(cost)
        self.whole.append(int(whole))
        self.highest.append(highest)
        return len(self.costs) - 1

    def add(self, terms: Iterable[tuple[int, float]], low: float, high: float = inf) -> None:
        """Add a constraint."""
        row = len(self.low)
        self.entries += [(row, column, factor) for column, factor in terms]
        self.low.append(low)
        self.high.append(high)


class Program:
    """The program of one fusion."""

    def __init__(self, space: Space, conflicts: Conflicts) -> None:
        """Write the constraints."""
        self.space, self.conflicts, self.rows = space, conflicts, Rows()
        self.once = list(bits(space.once))
        self.slots = (*self.once, POOL)
        self.unit = float(max(1, max(space.least, default=1)))
        self.inside: dict[tuple[int, int], int] = {}
        self.stored: dict[tuple[int, int], int] = {}
        self.read: dict[tuple[int, int], int] = {}
        self.shown: dict[int, int] = {}
        self._nodes()
        self._values()
        self._operands()
        self._outputs()
        self._inputs()
        self._order()

    def solve(self, seconds: float) -> Proof | None:
        """Return the bound that the solver proves within some seconds; None if it proves none."""
        try:
            import numpy
            import scipy.optimize  # pyright: ignore[reportMissingTypeStubs]
            import scipy.sparse  # pyright: ignore[reportMissingTypeStubs]
        except ImportError:
            raise EnvironmentProblem(
                "the exact bound of a large fusion requires scipy",
                help="pip install 'fusec[exact]'",
            ) from None
        if len(self.rows.entries) > MOST_ENTRIES:
            return None
        milp: Any = scipy.optimize
        sparse: Any = scipy.sparse
        rows = self.rows
        places = ([e[0] for e in rows.entries], [e[1] for e in rows.entries])
        shape = (len(rows.low), len(rows.costs))
        matrix = sparse.csr_matrix(([e[2] for e in rows.entries], places), shape=shape)
        result = milp.milp(
            numpy.array(rows.costs),
            integrality=numpy.array(rows.whole),
            bounds=milp.Bounds(0, numpy.array(rows.highest)),
            constraints=milp.LinearConstraint(matrix, rows.low, rows.high),
            options={"time_limit": max(0.1, seconds), "mip_rel_gap": 0.0},
        )
        proven = getattr(result, "mip_dual_bound", None)
        if proven is None or not numpy.isfinite(proven):
            return None
        # The solver works in floats: subtract what its tolerances may add.
        lower = ceil(float(proven) * self.unit * (1 - 1e-6) - 1e-3)
        return Proof(max(0, lower), int(result.mip_node_count or 0))

    def _nodes(self) -> None:
        """Every node that is computed once has one segment, which its first node leads."""
        rows, conflicts = self.rows, self.conflicts
        for place, node in enumerate(self.once):
            for lead in self.once[: place + 1]:
                if lead == node or not conflicts.separated(lead, node):
                    self.inside[node, lead] = rows.variable(whole=True)
            leads = [lead for lead in self.once if (node, lead) in self.inside]
            rows.add([(self.inside[node, lead], 1) for lead in leads], 1, 1)
            for lead in leads:
                if lead != node:
                    rows.add([(self.inside[lead, lead], 1), (self.inside[node, lead], -1)], 0)
        for place, one in enumerate(self.once):
            for other in self.once[place + 1 :]:
                if conflicts.separated(one, other):
                    for lead in self.once:
                        both = [(one, lead), (other, lead)]
                        if lead not in (one, other) and all(b in self.inside for b in both):
                            terms = [(self.inside[b], -1.0) for b in both]
                            rows.add([(self.inside[lead, lead], 1), *terms], 0)
        for node in range(len(self.space.nodes)):
            if not self.space.once >> node & 1:
                for slot in self.slots:
                    if slot == POOL or not conflicts.separated(node, slot):
                        self.inside[node, slot] = rows.variable(whole=True)

    def _values(self) -> None:
        """A value is stored by one segment that computes it, or it is a view of a stored value."""
        space, rows = self.space, self.rows
        for value in bits(space.storable):
            size = space.floor.size(space.values[value]) * space.values[value].dtype.size
            terms: list[tuple[int, float]] = []
            for slot in self.slots:
                inside = self.inside.get((space.maker[value], slot))
                if inside is not None:
                    self.stored[value, slot] = column = rows.variable(size / self.unit, whole=True)
                    rows.add([(inside, 1), (column, -1)], 0)
                    terms.append((column, 1))
            bases = list(self._bases(space.values[value]))
            if bases:
                self.shown[value] = rows.variable(whole=True)
                terms.append((self.shown[value], 1))
            rows.add(terms, 0, 1)
        for value, shown in self.shown.items():
            bases = list(self._bases(space.values[value]))
            if not any(b in space.fusion.input_of for b in bases):
                kept = (space.id[b] for b in bases)
                terms = [t for b in kept if space.storable >> b & 1 for t in self._kept(b)]
                rows.add([*terms, (shown, -1)], 0)

    def _bases(self, value: Value) -> Iterable[Value]:
        node = self.space.fusion.producer.get(value)
        while node is not None and may_be_view(node):
            yield node.inputs[0]
            node = self.space.fusion.producer.get(node.inputs[0])

    def _kept(self, value: int) -> list[tuple[int, float]]:
        """Return the terms whose sum is 1 if a value is in memory."""
        terms = [(self.stored[value, s], 1.0) for s in self.slots if (value, s) in self.stored]
        return terms + ([(self.shown[value], 1.0)] if value in self.shown else [])

    def _operands(self) -> None:
        """A segment computes the operands of its nodes, or reads them from memory."""
        space, rows = self.space, self.rows
        for (node, slot), inside in tuple(self.inside.items()):
            for value in bits(space.reads[node]):
                terms: list[tuple[int, float]] = [(inside, -1)]
                made = space.made >> value & 1
                if made and (space.maker[value], slot) in self.inside:
                    terms.append((self.inside[space.maker[value], slot], 1))
                if not made or space.storable >> value & 1:
                    terms.append((self._reading(value, slot), 1))
                rows.add(terms, 0)

    def _reading(self, value: int, slot: int) -> int:
        if (value, slot) not in self.read:
            space, rows = self.space, self.rows
            made = space.made >> value & 1
            cost = space.least[value] / self.unit if made else 0.0
            self.read[value, slot] = column = rows.variable(cost, whole=True)
            if made:
                rows.add([*self._kept(value), (column, -1)], 0)
                if slot != POOL and (value, slot) in self.stored:
                    rows.add([(self.stored[value, slot], 1), (column, 1)], 0, 1)
        return self.read[value, slot]

    def _outputs(self) -> None:
        for value in bits(self.space.outputs):
            self.rows.add(self._kept(value), 1, 1)

    def _inputs(self) -> None:
        """Each input is read by the segments that need it, at least as far as the fusion needs."""
        space, rows = self.space, self.rows
        entries = {space.id[i.value]: i for i in space.fusion.inputs if not i.value.is_scalar}
        for value, entry in entries.items():
            least, most = space.least[value], space.floor.input_bytes(entry)
            column = rows.variable(1.0, highest=inf)
            terms = [(self.read[value, s], -least / self.unit) for s in self.slots
                     if (value, s) in self.read]  # fmt: skip
            rows.add([(column, 1), *terms], 0)
            rows.add([(column, 1)], most / self.unit)

    def _order(self) -> None:
        """Nodes on a path between two nodes of a segment are in that segment, too."""
        above = {n: self.space.above[next(bits(self.space.results[n]))] for n in self.once}
        for last in self.once:
            for middle in self.once:
                if middle == last or not above[last] >> middle & 1:
                    continue
                for first in self.once:
                    if first == middle or not above[middle] >> first & 1:
                        continue
                    for lead in self.once:
                        ends = [self.inside.get((n, lead)) for n in (first, last)]
                        terms = [(e, -1.0) for e in ends if e is not None]
                        if len(terms) < 2:
                            continue
                        between = self.inside.get((middle, lead))
                        self.rows.add(
                            [*terms, *([(between, 1.0)] if between is not None else [])], -1
                        )


def prove(space: Space, conflicts: Conflicts, seconds: float) -> Proof | None:
    """Return the lower bound that the program proves for a fusion; None if it proves none."""
    return Program(space, conflicts).solve(seconds) if space.once else None
