"""Nodes that no scheduler accepts in one segment, for any other nodes in the segment.

A refusal counts only if it holds for every larger segment: an operation that the scheduler does not
support stays unsupported, and so does a second GEMM. Other refusals say nothing about larger
segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusec.diagnostics import Unsupported
from fusec.exact.space import Space, bits
from fusec.properties import cached_property
from fusec.segment.protocol import Refusal, Scheduler
from fusec.target import Target

LASTING = frozenset({"operation", "computed"})
"""Rules that reject every segment with a certain node."""
ONE = frozenset({"contraction", "scans", "scatters", "operations"})
"""Rules that reject every segment with two nodes of the same kind."""
FED = frozenset({"operand"})
"""Rules that reject a GEMM together with the node that computes its operand."""
KINDS = ("contraction", "scan", "scatter", "sort")


class Conflicts:
    """The schedulers that accept a growing set of nodes, as bits."""

    def __init__(self, space: Space, schedulers: Sequence[Scheduler], target: Target) -> None:
        """Take the fusion, whose storable values conflicts may extend, and the schedulers."""
        self.space, self.schedulers, self.target = space, tuple(schedulers), target
        self.everyone = (1 << len(self.schedulers)) - 1
        self._known: dict[object, int] = {}
        makers = space.maker
        for user in range(len(space.nodes)):
            # A value that no scheduler computes together with its user must be stored between them.
            read = bits(space.reads[user] & space.made)
            space.keep(space.values[v] for v in read if self.separated(makers[v], user))

    def _refusing(self, nodes: int, rules: frozenset[str]) -> int:
        """Return the schedulers that reject every segment with some nodes, by given rules."""
        results = 0
        for node in bits(nodes):
            results |= self.space.results[node]
        part = self.space.part(nodes, results)
        key = (part.structure(), rules)
        if key not in self._known:
            self._known[key] = 0
            for k, scheduler in enumerate(self.schedulers):
                try:
                    proposal = scheduler.propose(part, self.target)
                except Unsupported:
                    continue
                if isinstance(proposal, Refusal) and proposal.rule in rules:
                    self._known[key] |= 1 << k
        return self._known[key]

    @cached_property
    def alone(self) -> tuple[int, ...]:
        """Return for each node the schedulers that may accept it."""
        count = len(self.space.nodes)
        return tuple(self.everyone & ~self._refusing(1 << k, LASTING) for k in range(count))

    @cached_property
    def pairs(self) -> tuple[dict[int, int], ...]:
        """Return for each node those that it conflicts with, and the schedulers left for both."""
        heavy, nodes = list(bits(self.space.once)), self.space.nodes
        found: tuple[dict[int, int], ...] = tuple({} for _ in self.space.nodes)
        for place, one in enumerate(heavy):
            for other in heavy[place + 1 :]:
                both = self.alone[one] & self.alone[other]
                if both and nodes[one].op.family == nodes[other].op.family in KINDS:
                    left = both & ~self._refusing(1 << one | 1 << other, ONE)
                    if left != both:
                        found[one][other] = found[other][one] = left
        for node, feeder in self._feeders():
            both = self.alone[node] & self.alone[feeder]
            left = both & ~self._refusing(1 << node | 1 << feeder, FED)
            if left != both:
                found[node][feeder] = found[feeder][node] = left
        return found

    def _feeders(self) -> Iterator[tuple[int, int]]:
        """Yield the GEMMs with nodes that compute their operands, except movement and widening."""
        space = self.space
        for node in bits(space.once):
            if space.nodes[node].op.family != "contraction":
                continue
            for value in bits(space.reads[node] & space.made):
                feeder = space.maker[value]
                maker = space.nodes[feeder]
                widens = maker.op.converts and any(
                    v.dtype.bits < maker.output.dtype.bits for v in maker.inputs
                )
                if maker.op.family != "movement" and not widens:
                    yield node, feeder

    def left(self, able: int, nodes: int, node: int) -> int:
        """Return which of the `able` schedulers remain when a node joins others."""
        able &= self.alone[node]
        for other, left in self.pairs[node].items():
            if nodes >> other & 1:
                able &= left
        return able

    def separated(self, one: int, other: int) -> bool:
        """Return whether no scheduler ever accepts two nodes in one segment."""
        both = self.alone[one] & self.alone[other]
        return not self.pairs[one].get(other, both) & both
