"""The writes of a fusion into its inputs, and the orders of nodes that they allow.

An output may be written into the memory of an input. This module answers where values are stored,
which pointers may alias, and whether an order or a fusion is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, Shape, product
from fusec.ir.expression import Index, contiguous_strides
from fusec.ir.graph import Fusion, Input, Node, Output, Value
from fusec.properties import cached_property

Axes = tuple["int | None", ...]
"""For each dim of a value, the dim of the input along which it runs."""


ALIGNMENT = 16
"""Required alignment of tensor addresses in bytes: the width of the widest access."""


def slices_overlap(node: Node) -> bool:
    """Return whether a node takes or stacks slices and the last one overlaps the previous one."""
    return bool(node.attributes.get("uneven") or node.attributes.get("of"))


@dataclass(frozen=True)
class Touch:
    """An access of a kernel to a buffer: at an index map (None: anywhere), in a phase."""

    buffer: str
    where: Index | None
    phase: int = 0


def conflict(store: Touch, loads: Iterable[Touch]) -> Touch | None:
    """Return the first load that may see what a store overwrites, or None.

    None if each reads, for the element that it stores, only that element, and no later.
    """
    own = (load for load in loads if load.buffer == store.buffer)
    return next((r for r in own if r.where != store.where or r.phase > store.phase), None)


@dataclass(frozen=True)
class Update:
    """How an output changes some elements of the input that it overwrites; all others stay.

    node: passes the unchanged elements on. written: the shape of the written elements, counting
    elements that are written twice as two; reads: whether it adds to the old elements. source: the
    values whose elements are contiguous in the overwritten range; None if they are not.
    """

    node: Node
    written: Shape
    reads: bool = False
    source: Value | None = None


def update_by(node: Node | None, target: Value) -> Update | None:
    """Return how a node updates a part of a tensor, or None."""
    if node is None or not node.operands or node.operands[0] is not target:
        return None
    if target in node.operands[1:]:
        return None
    if node.op.access is not None and node.op.access.overlays:
        source = node.inputs[1]
        return Update(node, source.shape, source=source)
    if node.op.family != "scatter":
        return None
    lookup = node.op.lookup
    slices = lookup is not None and lookup.slices
    shape = node.operands[2 if slices else 1].shape
    return Update(node, shape, node.op.combine is not None)


class Effects:
    """The writes of a fusion into its inputs."""

    def __init__(self, fusion: Fusion) -> None:
        """Take the fusion; everything is computed lazily."""
        self.fusion = fusion

    @cached_property
    def into(self) -> Mapping[Value, Input]:
        """Return the input into whose memory each output without its own memory is written."""
        inputs = {i.value.name: i for i in self.fusion.inputs}
        written = (o for o in self.fusion.outputs if o.alias is not None)
        return {o.value: inputs[o.alias] for o in written if o.alias in inputs}

    @cached_property
    def in_place(self) -> tuple[Output, ...]:
        """Return the outputs that are written into inputs."""
        return tuple(o for o in self.fusion.outputs if o.value in self.into)

    @cached_property
    def fresh(self) -> tuple[Output, ...]:
        """Return the outputs with their own memory."""
        return tuple(o for o in self.fusion.outputs if o.value not in self.into)

    @cached_property
    def overwritten(self) -> frozenset[str]:
        """Return the names of the inputs that are written into."""
        return frozenset(i.value.name for i in self.into.values())

    @cached_property
    def writers(self) -> Mapping[Node, Value]:
        """Return the nodes with results that overwrite an input, and that input."""
        return {self.fusion.producer[v]: i.value for v, i in self.into.items()}

    def buffer(self, value: Value) -> str:
        """Return the name of the buffer that holds a value."""
        target = self.into.get(value)
        return value.name if target is None else target.value.name

    def strides(self, value: Value) -> tuple[Dim, ...]:
        """Return the strides in elements with which a node's result is stored."""
        if value in self.into:
            return self.into[value].strides
        larger = self.inside(value)
        if larger is not None:
            return self._strides_of(larger)
        return own_strides(self.fusion.output_of.get(value) or Output(value))

    def _strides_of(self, value: Value) -> tuple[Dim, ...]:
        entry = self.fusion.input_of.get(value)
        return self.strides(value) if entry is None else entry.strides

    def inside(self, value: Value) -> Value | None:
        """Return the tensor whose memory contains a result of a node, or None.

        If the only reader of a node's result puts it into a larger tensor, it is computed there
        directly.
        """
        node = self.fusion.producer.get(value)
        if node is not None and node.op.lies == "inside":
            return node.inputs[0] if self.shares(node) else None
        users = self.fusion.users.get(value, ())
        alone = len(users) == 1 and users[0].op.lies == "around"
        if node is None or not alone or value in self.fusion.output_of:
            return None
        return users[0].output if self.shares(users[0]) else None

    def shares(self, node: Node) -> bool:
        """Return whether a node's part and whole share memory.

        They do if every part begins, at hint sizes, at an address as aligned as kernels assume. A
        part that is not dense is accessed in vectors along dims divisible by their width, so its
        start is aligned enough, unless the node says that other kernels access it, too.
        """
        ends = node.inputs[0], node.output
        part, whole = ends if node.op.lies == "around" else ends[::-1]
        axis: int = node.attributes["dim"]
        strides = self._strides_of(whole)
        if slices_overlap(node):  # the last may begin at any element
            return strides[axis].evaluate(self.fusion.hints) * part.dtype.size % ALIGNMENT == 0
        dense = zip(part.shape, strides, contiguous_strides(part.shape), strict=True)
        vectors = any(extent != 1 and stride != own for extent, stride, own in dense)
        if vectors and not node.attributes.get("aligned"):
            return True
        step = part.shape[axis] * strides[axis] * part.dtype.size
        return step.evaluate(self.fusion.hints) % ALIGNMENT == 0

    def placed(self, value: Value) -> tuple[Dim, ...] | None:
        """Return the strides of a value that is computed in place in a larger tensor, else None."""
        node = self.fusion.producer.get(value)
        if self.inside(value) is None or node is None or node.op.lies:
            return None
        return self.strides(value)

    def inputs_for(
        self, read: Collection[Value], outputs: Iterable[Output] | None = None
    ) -> tuple[Input, ...]:
        """Return the inputs that are read, or into which some outputs (None: all) are written."""
        results = self.fusion.outputs if outputs is None else outputs
        written = {self.into[o.value].value for o in results if o.value in self.into}
        if written:
            return tuple(i for i in self.fusion.inputs if i.value in read or i.value in written)
        found = (self.fusion.input_of.get(v) for v in read)
        place = self.fusion.input_position
        return tuple(sorted((i for i in found if i is not None), key=lambda i: place[i.value]))

    # -- partial updates

    @cached_property
    def updates(self) -> Mapping[Value, Update]:
        """Return the outputs that are equal to what they overwrite except for some elements."""
        producer = self.fusion.producer.get
        found = {v: update_by(producer(v), i.value) for v, i in self.into.items()}
        return {v: update for v, update in found.items() if update is not None}

    @cached_property
    def changes(self) -> Mapping[Value, Update]:
        """Return `updates`, extended to outputs that are copies of such outputs."""
        found = dict[Value, Update]()
        for value, entry in self.into.items():
            node = self.fusion.producer.get(value)
            while node is not None and node.op.copies:
                node = self.fusion.producer.get(node.inputs[0])
            update = update_by(node, entry.value)
            if update is not None:
                found[value] = update
        return found

    # -- whether a write is safe

    def reads_in_place(self, written: Value) -> bool:
        """Return whether values computed from an overwritten input keep its dims in position.

        Then an element of the input is read only for the element that overwrites it, or in sums.
        """
        target = self.into[written].value
        identity: Axes = tuple(range(target.rank))
        axes: dict[Value, Axes] = {target: identity}
        for node in self.fusion.nodes:
            if node.op.family == "scalar" or not any(v in axes for v in node.inputs):
                continue
            results = _carried(node, axes)
            if results is None or _is_stretched(node.output, results, target):
                return False
            axes.update(dict.fromkeys(node.outputs, results))
        return _agree(axes.get(written, identity), identity)

    def late(self, written: Value, before: Mapping[Node, Iterable[Node]]) -> bool:
        """Return whether an input is read by a node that must come after the output overwriting it.

        Or must, since nodes of `before` (each a writer with its readers) come in that order.
        """
        after: dict[Node, list[Node]] = {}
        for writer, readers in before.items():
            for reader in readers:
                after.setdefault(reader, []).append(writer)
        start = self.fusion.producer[written]
        wanted, seen, stack = set(self.readers(written)), {start}, [start]
        while stack and wanted:
            node = stack.pop()
            users = [u for v in node.outputs for u in self.fusion.users.get(v, ())]
            for follower in (*users, *after.get(node, ())):
                if follower in wanted:
                    return True
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)
        return False

    def readers(self, written: Value) -> list[Node]:
        """Return the readers of the input that an output overwrites, except its writer."""
        writer = self.fusion.producer[written]
        users = self.fusion.users.get(self.into[written].value, ())
        return [n for n in users if n is not writer]

    def is_copied_last(self, written: Value) -> bool:
        """Return whether an output is a copy that no node reads: it can be written last."""
        return self.fusion.producer[written].op.copies and written not in self.fusion.users

    def can_be_last(self, written: Value) -> bool:
        """Return whether kernels can be split so that all reads precede an output's write.

        Nodes that read other elements than they write are in no kernel with an update: they come
        before.
        """
        return written in self.updates or self.reads_in_place(written)

    def unsafe(self) -> Iterator[Output]:
        """Yield the outputs that a single kernel must not write in place."""
        for output in self.in_place:
            update = self.updates.get(output.value)
            if update is None:
                safe = self.reads_in_place(output.value)
            else:
                users = self.fusion.users.get(self.into[output.value].value, ())
                others = (n for n in users if n is not update.node and n.op.family != "scalar")
                # A reader of the result here would read all of the input while it is being written.
                safe = not any(others) and output.value not in self.fusion.users
            if not safe:
                yield output

    def may_repeat(self, node: Node, moving: Collection[Value] = ()) -> bool:
        """Return whether a node may be recomputed later: it reads nothing that is overwritten.

        moving: values that depend on what is overwritten.
        """
        return not any(v in moving or v.name in self.overwritten for v in node.inputs)


def own_strides(output: Output) -> tuple[Dim, ...]:
    """Return the strides of a fresh output in elements: row-major, or as it specifies."""
    shape, order = output.value.shape, output.stride_order
    if output.strides is not None:
        return output.strides
    order = range(len(shape) - 1, -1, -1) if order is None else order
    return tuple(
        product(e for e, other in zip(shape, order, strict=True) if other < rank) * output.step
        for rank in order
    )


def _agree(left: Axes, right: Axes) -> bool:
    return len(left) == len(right) and all(
        a is None or b is None or a == b for a, b in zip(left, right, strict=True)
    )


def _carried(node: Node, axes: Mapping[Value, Axes]) -> Axes | None:
    """Return the dims of the input along which a node's results run; None if complicated."""
    if node.op.family == "pointwise":
        merged: Axes = (None,) * node.output.rank
        for value in node.inputs:
            own = axes.get(value)
            if own is None or value.is_scalar:
                continue
            if not _agree(merged, own):
                return None
            merged = tuple(b if a is None else a for a, b in zip(merged, own, strict=True))
        return merged
    own = axes.get(node.inputs[0])
    if own is None:
        return None
    if node.op.family == "reduction":
        return tuple(a for k, a in enumerate(own) if k not in node.attributes["dims"])
    access = node.op.access
    if access is None or access.along is None or access.window is not None:
        return None
    along = access.along(node)
    kept = [place for place in along if place is not None]
    if kept != sorted(kept):
        return None
    return tuple(None if place is None else own[place] for place in along)


def _is_stretched(value: Value, axes: Axes, target: Value) -> bool:
    """Return whether the input's elements, rather than sums, are repeated along another dim."""
    present = {a for a in axes if a is not None}
    whole = all(k in present or target.shape[k] == 1 for k in range(target.rank))
    repeated = any(
        extent != 1 and (a is None or target.shape[a] == 1)
        for extent, a in zip(value.shape, axes, strict=True)
    )
    wide = [a for extent, a in zip(value.shape, axes, strict=True) if a is not None and extent != 1]
    # An outer product of the input with itself runs along one of its dims twice.
    return whole and (repeated or len(set(wide)) < len(wide))
