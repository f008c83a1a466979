"""Loops over streams in a local fusion: nodes in order, each slice in the loop that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusec.diagnostics import Unsupported
from fusec.ir.dim import Dim
from fusec.ir.graph import Fusion, Node, Value
from fusec.ops.communication import (
    LEAVE,
    RECEIVE_SLICE,
    SEND_SLICE,
    STREAM_SLICE,
    STREAM_STACK,
    communicates,
    places,
    slices_begun,
)
from fusec.ops.find import find_op
from fusec.ops.names import fresh_name


def settle_loops(fusion: Fusion) -> Fusion:
    """Return the fusion with the nodes of each loop side by side.

    What no loop varies stands before the loops that may read it. A slice that several loops read is
    taken in each. A stack reads a computed value that nothing else reads: it is written in place.
    The fusion itself is returned where it has no loops.
    """
    if all(slices_begun(node) is None for node in fusion.nodes):
        return fusion
    work = _Settling(fusion)
    for node in fusion.nodes:
        work.add(node)
    return replace(fusion, nodes=tuple(work.nodes()))


class _Settling:
    """The nodes half placed: behind how many loops each is, and in which."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self._names = {v.name for v in fusion.values} | {d.name for d in fusion.dims}
        self._placed: list[tuple[tuple[int, int, int], Node]] = []
        self._level: dict[Value, int] = {}
        self._parts: dict[Value, Dim] = {}
        self._maker: dict[Value, Node] = {}
        self._loops: list[Dim] = []
        self._axis: dict[tuple[int, int, int], str] = {}
        self._again: dict[tuple[Value, int], Value] = {}

    def add(self, node: Node) -> None:
        """Place a node behind what it reads."""
        level = max((self._level.get(v, 0) for v in node.inputs), default=0)
        slices = {v: self._slice(v, level) for v in node.inputs}
        if any(new is not old for old, new in slices.items()):
            operands = tuple(slices.get(o, o) if isinstance(o, Value) else o for o in node.operands)
            node = Node(node.op, operands, node.attributes, node.outputs, node.span)
        varying = (self._parts[v] for v in node.inputs if v in self._parts)
        self._place(node, level, next(varying, slices_begun(node)))

    def _place(self, node: Node, level: int, parts: Dim | None) -> None:
        key = (level, 0, 0)
        if parts is not None:
            if parts not in self._loops:
                self._loops.append(parts)
            key = (level, 1, self._loops.index(parts))
            self._check_ring(key, node)
        self._placed.append((key, node))
        for value in node.outputs:
            self._maker[value] = node
            self._level[value] = level + (node.op in LEAVE)
            if parts is not None and node.op not in LEAVE:
                self._parts[value] = parts

    def _check_ring(self, key: tuple[int, int, int], node: Node) -> None:
        """Refuse a loop whose slices go around the ranks of two axes."""
        if node.op in (RECEIVE_SLICE, SEND_SLICE):
            axis = node.attributes["axis"]
            if self._axis.setdefault(key, axis) != axis:
                raise Unsupported(
                    f"slices that go around `{self._axis[key]}` and `{axis}` in one loop",
                    span=node.span,
                )

    def _slice(self, value: Value, level: int) -> Value:
        """Return a value as a loop at some level has it: slices are taken in each loop."""
        maker = self._maker.get(value)
        if maker is None or maker.op is not STREAM_SLICE or self._level[value] == level:
            return value
        if (value, level) not in self._again:
            again = Value(self._fresh(value.name), value.type)
            node = Node(maker.op, maker.operands, maker.attributes, (again,), maker.span)
            self._place(node, level, self._parts[value])
            self._again[value, level] = again
        return self._again[value, level]

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes in order."""
        entries = sorted(self._placed, key=lambda entry: entry[0])
        readers = dict[Value, int]()
        for _, node in entries:
            for value in dict.fromkeys(node.inputs):
                readers[value] = readers.get(value, 0) + 1
        for _, node in entries:
            if node.op is STREAM_STACK:
                (value,) = node.inputs
                maker = self._maker[value]
                if readers[value] > 1 or communicates(maker) or places(maker):
                    copy = Value(self._fresh(f"{value.name}_copy"), value.type)
                    yield Node(find_op("set"), (value,), {}, (copy,), node.span)
                    node = Node(node.op, (copy,), node.attributes, node.outputs, node.span)
            yield node

    def _fresh(self, base: str) -> str:
        return fresh_name(self._names, base)
