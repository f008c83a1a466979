"""The least traffic of nodes that are always in different segments."""

from __future__ import annotations

from collections.abc import Hashable

from fusec.exact.conflicts import Conflicts
from fusec.exact.space import Space, bits
from fusec.segment.flow import Flow, Unbounded


class Cuts:
    """Bounds from nodes in pairwise distinct segments, and from one more node of another kind.

    A segment of such a node reads at least the smallest cut between it and everything that cannot
    be computed there; it writes at least the smallest cut between it and what cannot follow there.
    """

    def __init__(self, space: Space, conflicts: Conflicts) -> None:
        """Find the nodes and their cuts."""
        self.space, self.conflicts = space, conflicts
        self.separate: list[int] = []
        for node in bits(space.once):
            if all(conflicts.separated(node, other) for other in self.separate):
                self.separate.append(node)
        self.others = [
            n
            for n in bits(space.once)
            if n not in self.separate
            and all(conflicts.separated(n, other) for other in self.separate)
        ]
        chosen = (*self.separate, *self.others) if len(self.separate) > 1 or self.others else ()
        self.read = {n: self._read(n) for n in chosen}
        self.written = {n: self._written(n) for n in chosen}
        self._sums: dict[int, tuple[int, int]] = {}

    def least(self, needed: int) -> tuple[int, int]:
        """Return the least bytes read and written by segments that compute the needed nodes."""
        if not self.read:
            return 0, 0
        if needed not in self._sums:
            separate = [n for n in self.separate if needed >> n & 1]
            others = [n for n in self.others if needed >> n & 1]
            self._sums[needed] = (
                sum(self.read[n] for n in separate)
                + max((self.read[n] for n in others), default=0),
                sum(self.written[n] for n in separate)
                + max((self.written[n] for n in others), default=0),
            )
        return self._sums[needed]

    def _read(self, node: int) -> int:
        """Return the minimum cut, in bytes read, between a node and what is computed elsewhere."""
        space, graph, seen, stack = self.space, Flow(), set[int](), [node]
        while stack:
            current = stack.pop()
            for value in bits(space.reads[current]):
                stored = not space.made >> value & 1 or space.storable >> value & 1
                graph.add_edge(("out", value), current)
                if value in seen:
                    continue
                seen.add(value)
                most = space.least[value] if stored else None
                graph.add_edge(("in", value), ("out", value), most)
                maker = space.maker[value] if space.made >> value & 1 else None
                if maker is None or self._elsewhere(node, maker):
                    graph.add_edge("source", ("in", value))
                else:
                    graph.add_edge(maker, ("in", value))
                    if not space.reads[maker]:
                        graph.add_edge("source", maker, 0)
                    stack.append(maker)
        return _least_cut(graph, "source", node)

    def _written(self, node: int) -> int:
        """Return the minimum cut, in bytes written, between a node and what follows elsewhere."""
        space, graph, seen, stack = self.space, Flow(), set[int](), [node]
        while stack:
            current = stack.pop()
            for value in bits(space.results[current]):
                if value in seen:
                    continue
                seen.add(value)
                most = space.roots[value][1] if space.storable >> value & 1 else None
                graph.add_edge(current, ("in", value))
                graph.add_edge(("in", value), ("out", value), most)
                if space.outputs >> value & 1:
                    graph.add_edge(("out", value), "sink")
                for user in space.fusion.users.get(space.values[value], ()):
                    after = space.number.get(user)
                    if after is None:
                        continue
                    if self._elsewhere(node, after):
                        graph.add_edge(("out", value), "sink")
                    else:
                        graph.add_edge(("out", value), after)
                        stack.append(after)
        return _least_cut(graph, node, "sink")

    def _elsewhere(self, node: int, other: int) -> bool:
        return other != node and self.conflicts.separated(node, other)


def _least_cut(graph: Flow, source: Hashable, sink: Hashable) -> int:
    """Return the capacity of the minimum cut; 0 if the ends are unconnected or it is unbounded."""
    if source not in graph or sink not in graph:
        return 0
    try:
        return graph.minimum_cut(source, sink)[0]
    except Unbounded:
        return 0
