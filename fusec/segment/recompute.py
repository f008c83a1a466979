"""The choice of what a segment reads and what it recomputes, by a minimum cut of preceding nodes.

Each value before the segment may be needed, and a needed value is either read or recomputed.
Reading an input costs its bytes, unless the segment reads it anyway. Reading a value of another
segment costs its bytes, and also its write if no other segment needs it in memory. Recomputing it
requires its operands. The minimum cut separates what is recomputed from what is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fusec.dataclasses import dataclass
from fusec.index.demanded import Demand
from fusec.index.regions import Demanded
from fusec.ir.expression import contiguous_strides
from fusec.ir.graph import Fusion, Node, Value
from fusec.properties import cached_property
from fusec.segment.cheap import distinct_bytes, is_injective
from fusec.segment.flow import Flow
from fusec.segment.groups import Groups
from fusec.segment.piece import Piece
from fusec.segment.segmented import tensor_bytes
from fusec.segment.traffic import demanded_bytes

REACH = 64
"""Number of nodes before a segment that are considered."""
SCALE = 1 << 10
"""Capacity per byte: of cuts with equal bytes, the one that recomputes fewer nodes wins."""

Sharers = Mapping[Value, int]
"""Number of segments that share the cost of writing a value: those that could recompute it."""


def may_repeat(node: Node) -> bool:
    """Return whether a node may be computed in several segments.

    A random value is a function of its element's index.
    """
    return is_injective(node) and not node.op.ends_segment and len(node.outputs) == 1


@dataclass(frozen=True)
class Before:
    """The nodes and leaves that precede a piece which recomputes nothing.

    nodes: those that it could recompute, in order.
    """

    groups: Groups
    piece: Piece
    leaves: tuple[Value, ...]
    nodes: tuple[Node, ...]

    @cached_property
    def owners(self) -> frozenset[Piece]:
        """Return the pieces that own the nodes, or compute the values they read."""
        producer = self.groups.graph.fusion.producer
        around = {v for n in self.nodes for v in (*n.inputs, *n.outputs)} | set(self.leaves)
        makers = (producer[v] for v in around if v in producer)
        owned = (n for n in makers if self.groups.is_owned(n))
        return frozenset(self.groups.owner(n) for n in owned) - {self.piece}

    def could_repeat(self) -> bool:
        """Return whether some value that is read could be recomputed."""
        producer, own = self.groups.graph.fusion.producer, frozenset(self.nodes)
        return any(producer.get(v) in own for v in self.leaves)


def before(groups: Groups, piece: Piece) -> Before:
    """Return the nodes that precede a piece, in the pieces that it reads from."""
    graph, producer = groups.graph, groups.graph.fusion.producer
    _, leaves = graph.expanded(piece.nodes)
    makers = {groups.maker(v) for v in (*leaves, *piece.leaves)}
    near = {p for p in makers if p is not None and p.host == piece.host}
    found: dict[Node, None] = {}
    front = [producer[v] for v in leaves if v in producer]
    for node in front:
        if node in found or len(found) >= REACH or not may_repeat(node) or node in piece.owned:
            continue
        if groups.is_owned(node) and groups.owner(node) not in near:
            continue
        found[node] = None
        front.extend(producer[v] for v in node.inputs if v in producer)
    nodes = sorted(found, key=graph.position.__getitem__)
    return Before(groups, piece, tuple(leaves), tuple(nodes))


def cheapest(seen: Before, sharers: Sharers, allowed: Collection[Value]) -> frozenset[Node]:
    """Return the nodes that the piece should recompute, for the `allowed` of its leaves."""
    groups, fusion = seen.groups, seen.groups.graph.fusion
    repeatable = frozenset(seen.nodes)
    flow = Flow()
    stack: list[Value] = []
    known: set[Value] = set()

    def need(value: Value) -> tuple[str, Value]:
        if value not in known:
            known.add(value)
            stack.append(value)
        return ("needed", value)

    for value in seen.leaves:
        flow.add_edge("source", need(value))
    while stack:
        value = stack.pop()
        node, again = fusion.producer.get(value), ("again", value)
        cost = _reading(groups, seen.piece, value, sharers)
        flow.add_edge(("needed", value), again, None if cost is None else cost * SCALE)
        free = value in allowed or value not in seen.leaves
        if node is None or node not in repeatable or not free:
            flow.add_edge(again, "sink")
            continue
        flow.add_edge(again, "sink", 1)
        for operand in node.inputs:
            part = _part_bytes(seen, node, operand)
            if part is None:
                flow.add_edge(again, need(operand))
            else:
                flow.add_edge(again, "sink", part * SCALE)
    near = flow.minimum_cut("source", "sink")[1]
    return frozenset(fusion.producer[value] for value in known if ("again", value) in near)


def _reading(groups: Groups, piece: Piece, value: Value, sharers: Sharers) -> int | None:
    """Return the cost in bytes of reading a value from memory; None if that is impossible."""
    graph = groups.graph
    fusion = graph.fusion
    if value.is_scalar:
        return 0 if value in fusion.input_of else None
    entry = fusion.input_of.get(value)
    if entry is not None:
        if value.name in fusion.effects.overwritten and value not in piece.leaves:
            return None
        return distinct_bytes(fusion, entry)
    node = fusion.producer[value]
    if not groups.is_owned(node):
        return None
    size = tensor_bytes(value, fusion.hints)
    if value in graph.final:
        return size
    others = [r for r in groups.readers.get(value, ()) if r is not piece]
    if not others:
        return 2 * size
    share = sharers.get(value, 0)
    return size + (size // share if share else 0)


def _part_bytes(seen: Before, node: Node, operand: Value) -> int | None:
    """Return the bytes of reading a part of a value in memory; None if all of it is read."""
    if node.op.access is None or operand in seen.leaves or operand.is_scalar:
        return None
    groups, fusion = seen.groups, seen.groups.graph.fusion
    entry = fusion.input_of.get(operand)
    stored = entry is not None or operand in groups.graph.final
    if not stored and operand not in groups.readers:
        return None
    if operand.name in fusion.effects.overwritten:
        return None
    result = Demand(fusion, (node.output,))
    needed = Demanded(frozenset(result.through(node, operand)), result.shape(operand))
    strides = contiguous_strides(operand.shape) if entry is None else entry.strides
    part = demanded_bytes(
        needed, tuple(s.evaluate(fusion.hints) for s in strides), operand.dtype.size
    )
    return part if part < tensor_bytes(operand, fusion.hints) else None


def cone(fusion: Fusion, nodes: Collection[Node], value: Value) -> frozenset[Node]:
    """Return those of the nodes on which a value depends."""
    found: set[Node] = set()
    stack = [value]
    while stack:
        node = fusion.producer.get(stack.pop())
        if node is not None and node in nodes and node not in found:
            found.add(node)
            stack.extend(node.inputs)
    return frozenset(found)


def leaf_bytes(groups: Groups, values: Iterable[Value]) -> int:
    """Return the bytes of reading some values from memory."""
    fusion = groups.graph.fusion
    entries = ((v, fusion.input_of.get(v)) for v in values if not v.is_scalar)
    return sum(
        tensor_bytes(v, fusion.hints) if entry is None else distinct_bytes(fusion, entry)
        for v, entry in entries
    )
