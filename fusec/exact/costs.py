"""The least traffic with which some scheduler accepts a set of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.exact.conflicts import Conflicts
from fusec.exact.space import Space, bits
from fusec.segment.offers import Offers, Surroundings
from fusec.segment.protocol import Scheduler
from fusec.target import Target


class Costs:
    """Queries every scheduler that may accept, once for each structure."""

    def __init__(
        self, space: Space, schedulers: Sequence[Scheduler], target: Target, conflicts: Conflicts
    ) -> None:
        """Take the fusion and the schedulers."""
        self.space, self.conflicts = space, conflicts
        self.offers = tuple(Offers((s,), target) for s in schedulers)
        self.mutable = space.fusion.effects.overwritten
        self.asked = 0
        self._sets: dict[tuple[int, int, int], int | None] = {}
        self._known: dict[Any, int | None] = {}

    def of(self, nodes: int, results: int, crossing: int) -> int | None:
        """Return the bytes to compute `results` with `nodes`; None if no scheduler accepts them.

        crossing: the results that other segments read.
        """
        key = (nodes, results, crossing)
        if key not in self._sets:
            self._sets[key] = self._asked(nodes, results, crossing)
        return self._sets[key]

    def _asked(self, nodes: int, results: int, crossing: int) -> int | None:
        part = self.space.part(nodes, results)
        read = frozenset(self.space.values[k] for k in bits(crossing))
        around = Surroundings(self.mutable, read)
        own = tuple(k for k, o in enumerate(part.outputs) if o.value in read)
        key = (part.structure(), around.written(part), own)
        if key not in self._known:
            self.asked += 1
            able, done = self.conflicts.everyone, 0
            for node in bits(nodes):
                able, done = self.conflicts.left(able, done, node), done | 1 << node
            estimates = (self.offers[k].ask(part, around).estimate for k in bits(able))
            found = [e.bytes + e.workspace_bytes for e in estimates if e is not None]
            self._known[key] = min(found, default=None)
        return self._known[key]
