"""A partition of nodes into groups, with the DAG between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from heapq import heappop, heappush

from fusec.ir.graph import Fusion, Node, Value
from fusec.segment.segmented import extract

Group = frozenset[Node]


class Graph:
    """What stays fixed while groups are merged: the fusion, and which nodes are copied."""

    def __init__(self, fusion: Fusion, copied: Collection[Node]) -> None:
        """Take a fusion in canonical order and the nodes that every group computes for itself."""
        self.fusion = fusion
        self.copied = frozenset(copied)
        self.position = {node: k for k, node in enumerate(fusion.nodes)}
        self.final = {o.value: o for o in fusion.outputs}
        self.writers = {
            fusion.producer[o.value]: o.alias for o in fusion.outputs if o.alias is not None
        }
        self.mutable = frozenset(self.writers.values())
        self._reads: dict[Group, tuple[frozenset[Node], tuple[Value, ...]]] = {}

    @cached_property
    def owned(self) -> tuple[Node, ...]:
        """Return the nodes that must stand in some group: all but copies that are no output."""
        return tuple(
            n
            for n in self.fusion.nodes
            if n not in self.copied or any(v in self.final for v in n.outputs)
        )

    def members(self, group: Group) -> frozenset[Node]:
        """Return the nodes of a group with the copies that it computes."""
        return self._expanded(group)[0]

    def leaves(self, group: Group) -> tuple[Value, ...]:
        """Return the values that a group reads: inputs, and what other groups make."""
        return self._expanded(group)[1]

    def _expanded(self, group: Group) -> tuple[frozenset[Node], tuple[Value, ...]]:
        if group not in self._reads:
            members, leaves = self.expanded(group)
            self._reads[group] = frozenset(members), tuple(leaves)
        return self._reads[group]

    def expanded(
        self, group: Iterable[Node], copied: Collection[Node] | None = None
    ) -> tuple[set[Node], dict[Value, None]]:
        """Return some nodes with the copies that they need, and the values that these read.

        `copied`: the nodes to copy, where they are others than the graph's.
        """
        copies = self.copied if copied is None else copied
        members, leaves = set(group), dict[Value, None]()
        stack = sorted(members, key=self.position.__getitem__, reverse=True)
        producer = self.fusion.producer
        while stack:
            for value in stack.pop().inputs:
                node = producer.get(value)
                if node is None or (node not in members and node not in copies):
                    leaves[value] = None
                elif node not in members:
                    members.add(node)
                    stack.append(node)
        return members, leaves

    def first(self, group: Iterable[Node]) -> int:
        """Return the position of a group's first node: its rank wherever groups are compared."""
        return min(self.position[n] for n in group)

    def crosses_boundary(self, group: Group) -> bool:
        """Return whether a `segment_set` and a user of it stand in one group."""
        members = self.members(group)
        return any(
            user in members
            for node in group
            if node.op.ends_segment
            for user in self.fusion.users.get(node.output, ())
        )


class Partition:
    """Groups of nodes; immutable, merging returns a new one."""

    def __init__(self, graph: Graph, groups: Iterable[Group]) -> None:
        """Take disjoint groups that together hold every owned node."""
        self.graph = graph
        self.groups = tuple(sorted(groups, key=graph.first))

    @cached_property
    def owner(self) -> Mapping[Node, Group]:
        """Return the group of each node."""
        return {node: group for group in self.groups for node in group}

    @cached_property
    def readers(self) -> Mapping[Value, tuple[Group, ...]]:
        """Return the groups that read each value, in order."""
        found: dict[Value, list[Group]] = {}
        for group in self.groups:
            for value in self.graph.leaves(group):
                found.setdefault(value, []).append(group)
        return {value: tuple(groups) for value, groups in found.items()}

    def sources(self, group: Group) -> tuple[Group, ...]:
        """Return the groups whose values `group` reads."""
        producer = self.graph.fusion.producer
        found = (self.owner[producer[v]] for v in self.graph.leaves(group) if v in producer)
        return tuple(dict.fromkeys(found))

    def readers_before(self, group: Group) -> tuple[Group, ...]:
        """Return the groups that read an input which `group` writes into: they must run first."""
        names = {alias for node, alias in self.graph.writers.items() if node in group}
        if not names:
            return ()
        values = (i.value for i in self.graph.fusion.inputs if i.value.name in names)
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

    def depths(self, breaks: Collection[Group]) -> dict[Group, int]:
        """Return how many of `breaks` lie before each group on a longest path, without cycles.

        A `segment_set` is a break too, and an alias edge: a writer lies deeper than every reader.
        """
        producer = self.graph.fusion.producer
        depth: dict[Group, int] = {}
        for group in self.order() or ():
            deepest = 0
            for value in self.graph.leaves(group):
                if value in producer:
                    source = self.owner[producer[value]]
                    ends = source in breaks or producer[value].op.ends_segment
                    deepest = max(deepest, depth[source] + ends)
            late = (depth[g] + 1 for g in self.readers_before(group))
            depth[group] = max([deepest, *late])
        return depth

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

    def crossing(self, chosen: Collection[Group]) -> frozenset[Value]:
        """Return the values of the chosen groups that others read."""
        inside = frozenset(chosen)
        return frozenset(
            value
            for value in self.results(chosen)
            if any(r not in inside for r in self.readers.get(value, ()))
        )

    def fusion_of(self, chosen: Collection[Group], name: str) -> Fusion:
        """Return the chosen groups as one fusion of its own."""
        union = frozenset[Node]().union(*chosen)
        return extract(
            self.graph.fusion, self.graph.members(union), name, frozenset(self.results(chosen))
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
