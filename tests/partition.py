"""Groups of nodes made anew at each merge, to compare groups that are merged in place with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from heapq import heappop, heappush

from fusec.ir.graph import Node, Value
from fusec.segment.graph import Graph, Group


class Partition:
    """Groups of nodes; immutable, merging returns a new one."""

    def __init__(self, graph: Graph, groups: Iterable[Group]) -> None:
        """Take disjoint groups that together hold every owned node."""
        self.graph = graph
        self.groups = tuple(sorted(groups, key=graph.first))

    def members(self, group: Group) -> frozenset[Node]:
        """Return the nodes of a group with the copies that it computes."""
        return frozenset(self.graph.expanded(group)[0])

    def leaves(self, group: Group) -> tuple[Value, ...]:
        """Return the values that a group reads: inputs, and what other groups make."""
        return tuple(self.graph.expanded(group)[1])

    @cached_property
    def owner(self) -> Mapping[Node, Group]:
        """Return the group of each node."""
        return {node: group for group in self.groups for node in group}

    @cached_property
    def readers(self) -> Mapping[Value, tuple[Group, ...]]:
        """Return the groups that read each value, in order."""
        found: dict[Value, list[Group]] = {}
        for group in self.groups:
            for value in self.leaves(group):
                found.setdefault(value, []).append(group)
        return {value: tuple(groups) for value, groups in found.items()}

    def sources(self, group: Group) -> tuple[Group, ...]:
        """Return the groups whose values `group` reads."""
        producer = self.graph.fusion.producer
        found = (self.owner[producer[v]] for v in self.leaves(group) if v in producer)
        return tuple(dict.fromkeys(found))

    def readers_before(self, group: Group) -> tuple[Group, ...]:
        """Return the groups that read an input which `group` writes into: they must run first."""
        writers = self.graph.fusion.effects.writers
        values = [v for node, v in writers.items() if node in group]
        readers = (r for v in values for r in self.readers.get(v, ()) if r != group)
        return tuple(dict.fromkeys(readers))

    @cached_property
    def before(self) -> Mapping[Group, tuple[Group, ...]]:
        """Return the groups that must run before each group, directly."""
        return {
            g: tuple(dict.fromkeys((*self.sources(g), *self.readers_before(g))))
            for g in self.groups
        }

    @cached_property
    def after(self) -> Mapping[Group, tuple[Group, ...]]:
        """Return the groups that must run after each group, directly."""
        found: dict[Group, list[Group]] = {g: [] for g in self.groups}
        for group in self.groups:
            for source in self.before[group]:
                found[source].append(group)
        return {group: tuple(groups) for group, groups in found.items()}

    def order(self) -> tuple[Group, ...] | None:
        """Return the groups in execution order, ties in canonical order; None for a cycle."""
        waiting = {g: len(self.before[g]) for g in self.groups}
        rank = {g: k for k, g in enumerate(self.groups)}
        ready = [rank[g] for g in self.groups if not waiting[g]]
        done: list[Group] = []
        while ready:
            group = self.groups[heappop(ready)]
            done.append(group)
            for later in self.after[group]:
                waiting[later] -= 1
                if not waiting[later]:
                    heappush(ready, rank[later])
        return tuple(done) if len(done) == len(self.groups) else None

    def closure(self, chosen: Iterable[Group]) -> frozenset[Group]:
        """Return the groups with all on paths between them: what a merge must hold."""
        seeds = frozenset(chosen)
        return seeds | (_reach(seeds, self.after) & _reach(seeds, self.before))

    def merged(self, chosen: Collection[Group]) -> Partition:
        """Return the partition with the chosen groups made one."""
        union = frozenset[Node]().union(*chosen)
        return Partition(self.graph, (*(g for g in self.groups if g not in chosen), union))

    def results(self, chosen: Collection[Group]) -> tuple[Value, ...]:
        """Return the values that the chosen groups together put out."""
        inside = frozenset(chosen)
        return tuple(
            value
            for group in sorted(inside, key=self.graph.first)
            for node in sorted(group, key=self.graph.position.__getitem__)
            for value in node.outputs
            if value in self.graph.final
            or any(r not in inside for r in self.readers.get(value, ()))
        )


def _reach(seeds: frozenset[Group], step: Mapping[Group, tuple[Group, ...]]) -> frozenset[Group]:
    seen: set[Group] = set()
    stack = [g for seed in seeds for g in step[seed]]
    while stack:
        group = stack.pop()
        if group not in seen:
            seen.add(group)
            stack.extend(step[group])
    return frozenset(seen)
