"""Loops over streams in a local fusion: nodes in order, each slice in the loop that reads it."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import replace
from fusec.ir.dim import Dim, dim
from fusec.ir.effects import slices_overlap
from fusec.ir.graph import Fusion, Node, Type, Value
from fusec.ops.communication import (
    ALL_GATHER,
    LEAVE,
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
    """Return the fusion with the nodes of each loop contiguous.

    Loop-invariant nodes come before the loops that may read them. A slice that several loops read
    is taken in each. A stack reads a computed value that nothing else reads: it is written in
    place. A stack outside of loops, since passes found all slices alike, is repeated instead, and
    what is sent is gathered. The fusion itself is returned if it has no loops.
    """
    if all(slices_begun(node) is None and node.op not in LEAVE for node in fusion.nodes):
        return fusion
    work = _Settling(fusion)
    for node in fusion.nodes:
        work.add(node)
    return replace(fusion, nodes=tuple(work.nodes()))


class _Settling:
    """The partially placed nodes: after how many loops each is, and in which loop."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self._names = fusion.names
        self._placed: list[tuple[tuple[int, int, int], Node]] = []
        self._level: dict[Value, int] = {}
        self._parts: dict[Value, Dim] = {}
        self._maker: dict[Value, Node] = {}
        self._loops: list[Dim] = []
        self._again: dict[tuple[Value, int], Value] = {}

    def add(self, node: Node) -> None:
        """Place a node after those that it reads."""
        if node.op in LEAVE and not any(v in self._parts for v in node.inputs):
            for instead in self._of_no_loop(node):
                self.add(instead)
            return
        level = max((self._level.get(v, 0) for v in node.inputs), default=0)
        slices = {v: self._slice(v, level) for v in node.inputs}
        if any(new is not old for old, new in slices.items()):
            operands = tuple(slices.get(o, o) if isinstance(o, Value) else o for o in node.operands)
            node = replace(node, operands=operands)
        varying = (self._parts[v] for v in node.inputs if v in self._parts)
        self._place(node, level, next(varying, slices_begun(node)))

    def _of_no_loop(self, node: Node) -> Iterator[Node]:
        """Yield nodes that compute from a loop-invariant value what a loop would have collected."""
        (value,), (result,) = node.inputs, node.outputs
        if node.op is SEND_SLICE:
            given = {k: v for k, v in node.attributes.items() if k != "pieces"}
            pieces = node.attributes["pieces"]
            if pieces == 1:
                yield Node(ALL_GATHER, (value,), given, node.outputs, node.span)
                return
            (kind,) = ALL_GATHER.infer((value,), given)
            blocks = Value(self._fresh(f"{result.name}_blocks"), kind)
            yield Node(ALL_GATHER, (value,), given, (blocks,), node.span)
            shape = (dim(given["ranks"]), *value.shape)
            split = Value(self._fresh(f"{result.name}_split"), Type(value.dtype, shape))
            attributes = {"new_shape": shape}
            yield Node(find_op("reshape"), (blocks,), attributes, (split,), node.span)
            yield from self._repeated(split, 1, dim(pieces), result, node)
            return
        yield from self._stacked(
            value, node.attributes["dim"], node.attributes["parts"], result, node
        )

    def _stacked(
        self, value: Value, at: int, parts: Dim, result: Value, node: Node
    ) -> Iterator[Node]:
        """Yield nodes that stack a loop-invariant value."""
        if not slices_overlap(node):
            yield from self._repeated(value, at, parts, result, node)
            return
        shape = (*value.shape[:at], value.shape[at] * parts, *value.shape[at + 1 :])
        longer = Value(self._fresh(f"{result.name}_longer"), Type(value.dtype, shape))
        yield from self._repeated(value, at, parts, longer, node)
        zeros = (dim(0),) * len(shape)
        attributes = {
            "start_indices": zeros,
            "end_indices": result.shape,
            "strides": (1,) * len(shape),
            "manual_normalization": False,
        }
        yield Node(find_op("slice"), (longer,), attributes, node.outputs, node.span)

    def _repeated(
        self, value: Value, at: int, parts: Dim, result: Value, node: Node
    ) -> Iterator[Node]:
        """Yield nodes that repeat a value `parts` times along one of its dims."""
        shape = (*value.shape[:at], parts, *value.shape[at:])
        kept = tuple(k for k in range(len(shape)) if k != at)
        wide = Value(self._fresh(f"{result.name}_repeated"), Type(value.dtype, shape))
        attributes = {"shape": shape, "broadcast_dims": kept}
        yield Node(find_op("broadcast_in_dim"), (value,), attributes, (wide,), node.span)
        attributes = {"new_shape": result.shape}
        yield Node(find_op("reshape"), (wide,), attributes, (result,), node.span)

    def _place(self, node: Node, level: int, parts: Dim | None) -> None:
        key = (level, 0, 0)
        if parts is not None:
            if parts not in self._loops:
                self._loops.append(parts)
            key = (level, 1, self._loops.index(parts))
        self._placed.append((key, node))
        for value in node.outputs:
            self._maker[value] = node
            self._level[value] = level + (node.op in LEAVE)
            if parts is not None and node.op not in LEAVE:
                self._parts[value] = parts

    def _slice(self, value: Value, level: int) -> Value:
        """Return a value as a loop at some level reads it: slices are taken in each loop."""
        maker = self._maker.get(value)
        if maker is None or maker.op is not STREAM_SLICE or self._level[value] == level:
            return value
        if (value, level) not in self._again:
            again = Value(self._fresh(value.name), value.type)
            node = replace(maker, outputs=(again,))
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
                    node = replace(node, operands=(copy,))
            yield node

    def _fresh(self, base: str) -> str:
        return fresh_name(self._names, base)
