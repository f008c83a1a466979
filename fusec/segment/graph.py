"""The part of a search that is fixed while nodes are grouped: the fusion, and its copied nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fusec.ir.graph import Fusion, Node, Value
from fusec.properties import cached_property

Group = frozenset[Node]


class Graph:
    """A fusion in canonical order, and the nodes that every group recomputes."""

    def __init__(self, fusion: Fusion, copied: Collection[Node]) -> None:
        """Take the fusion and the nodes to copy."""
        self.fusion = fusion
        self.copied = frozenset(copied)
        self.position = fusion.position
        self.final = fusion.output_of

    @cached_property
    def owned(self) -> tuple[Node, ...]:
        """Return the nodes that must belong to a group: all except copies that are not outputs."""
        return tuple(
            n
            for n in self.fusion.nodes
            if n not in self.copied or any(v in self.final for v in n.outputs)
        )

    def expanded(self, group: Iterable[Node]) -> tuple[set[Node], dict[Value, None]]:
        """Return some nodes with the copies that they need, and the values that these read."""
        members, leaves = set(group), dict[Value, None]()
        stack = sorted(members, key=self.position.__getitem__, reverse=True)
        producer = self.fusion.producer
        while stack:
            for value in stack.pop().inputs:
                node = producer.get(value)
                if node is None or (node not in members and node not in self.copied):
                    leaves[value] = None
                elif node not in members:
                    members.add(node)
                    stack.append(node)
        return members, leaves

    def first(self, group: Iterable[Node]) -> int:
        """Return the position of a group's first node, which orders groups in comparisons."""
        return min(self.position[n] for n in group)
