"""Maximum flow and minimum cut by Dinic's algorithm, with integer capacities."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from math import inf


class Unbounded(Exception):
    """A path of unlimited capacity leads from the source to the sink: no cut separates them."""


class Flow:
    """A directed graph with capacities, whose maximum flow is computed once.

    Dinic (1970): level graphs by breadth-first search, a blocking flow in each by depth-first
    search.
    """

    def __init__(self) -> None:
        """Start without nodes."""
        self._number: dict[Hashable, int] = {}
        self._edges: list[list[int]] = []
        self._heads: list[int] = []
        self._rest: list[float] = []

    def __contains__(self, node: Hashable) -> bool:
        return node in self._number

    def add_edge(self, tail: Hashable, head: Hashable, capacity: int | None = None) -> None:
        """Add an edge; None is an unlimited capacity. Parallel edges add up."""
        for start, end, most in ((tail, head, inf if capacity is None else capacity),
                                 (head, tail, 0)):  # fmt: skip
            self._edges[self._of(start)].append(len(self._heads))
            self._heads.append(self._of(end))
            self._rest.append(most)

    def minimum_cut(self, source: Hashable, sink: Hashable) -> tuple[int, frozenset[Hashable]]:
        """Return the capacity of the minimum cut and its source side.

        Of several minimum cuts, the one with most nodes on the source side: those without residual
        capacity to the sink. Raise Unbounded if every cut is unlimited.
        """
        start, end = self._of(source), self._of(sink)
        total = 0
        while (level := self._levels(start, end))[end] >= 0:
            later = [0] * len(self._edges)
            while pushed := self._push(start, end, level, later):
                total += pushed
        near_sink = self._reaching(end)
        side = frozenset(node for node, k in self._number.items() if k not in near_sink)
        return total, side

    def _of(self, node: Hashable) -> int:
        number = self._number.get(node)
        if number is None:
            number = self._number[node] = len(self._edges)
            self._edges.append([])
        return number

    def _levels(self, start: int, end: int) -> list[int]:
        """Return the distance of each node from the source, -1 if it is unreachable."""
        level = [-1] * len(self._edges)
        level[start] = 0
        front = deque([start])
        while front and level[end] < 0:
            node = front.popleft()
            for edge in self._edges[node]:
                head = self._heads[edge]
                if self._rest[edge] and level[head] < 0:
                    level[head] = level[node] + 1
                    front.append(head)
        return level

    def _push(self, start: int, end: int, level: list[int], later: list[int]) -> int:
        """Push flow along one path of the level graph and return how much; 0 if no path is left.

        later: for each node the index of the first edge that may still have capacity.
        """
        path: list[int] = []
        node = start
        while node != end:
            edges = self._edges[node]
            while later[node] < len(edges):
                edge = edges[later[node]]
                if self._rest[edge] and level[self._heads[edge]] == level[node] + 1:
                    break
                later[node] += 1
            else:
                if not path:
                    return 0
                node = self._heads[path.pop() ^ 1]
                later[node] += 1
                continue
            path.append(edge)
            node = self._heads[edge]
        most = min(self._rest[edge] for edge in path)
        if most == inf:
            raise Unbounded
        for edge in path:
            self._rest[edge] -= most
            self._rest[edge ^ 1] += most
        return int(most)

    def _reaching(self, end: int) -> set[int]:
        """Return the nodes with residual capacity to the sink."""
        found, stack = {end}, [end]
        while stack:
            for edge in self._edges[stack.pop()]:
                tail = self._heads[edge]
                if self._rest[edge ^ 1] and tail not in found:
                    found.add(tail)
                    stack.append(tail)
        return found
