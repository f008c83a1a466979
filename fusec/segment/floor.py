"""Compulsory traffic: what no segmentation of a fusion can save.

Every element of an input that some output depends on is read once, every output is written once.
An output that is a view costs no more than what it is a view of. Where it is hard to say which
elements are needed, fewer are counted: the floor holds for every segmentation that the schedulers'
estimates price at `traffic` of each segment or above.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from itertools import product as combinations
from math import prod

from fusec.ir.dim import Shape
from fusec.ir.effects import Update, update_by
from fusec.ir.graph import Fusion, Input, Node, Output, Value
from fusec.ops.communication import RANK_SLICE, stands_alone
from fusec.segment.views import may_be_view, view_of

Range = tuple[int, int]
Box = tuple[Range, ...]
MOST_CELLS = 20_000
"""Cells of a union beyond which only its largest box counts."""


@dataclass(frozen=True)
class Need:
    """Elements of a value that are needed: at least `count`; which ones, where `boxes` says it."""

    count: int
    boxes: frozenset[Box] | None = None


def floor_bytes(fusion: Fusion) -> int:
    """Return the bytes that every segmentation moves at least, at hint sizes."""
    return Floor(fusion).bytes


class Floor:
    """What a fusion needs of each value, and what its outputs cost at least."""

    def __init__(self, fusion: Fusion) -> None:
        """Take the fusion; everything else is found when it is asked for."""
        self.fusion = fusion
        self._needs: dict[Value, Need] = {}
        self._sizes: dict[Value, tuple[int, ...]] = {}

    @property
    def bytes(self) -> int:
        """Return the compulsory bytes of reads and writes."""
        reads = sum(self.input_bytes(i) for i in self.fusion.inputs if not i.value.is_scalar)
        return reads + sum(self.written.values())

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return a value's extents at hint sizes."""
        if value not in self._sizes:
            hints = self.fusion.hints
            self._sizes[value] = tuple(e.evaluate(hints) for e in value.shape)
        return self._sizes[value]

    def size(self, value: Value) -> int:
        """Return the number of elements of a value."""
        return 0 if value.is_scalar else prod(self.shape(value))

    @cached_property
    def bases(self) -> Mapping[Value, tuple[Value, ...]]:
        """Return of each output that may be a view the values that it may be a view of."""
        found: dict[Value, tuple[Value, ...]] = {}
        for output in self.fusion.effects.fresh:
            chain = tuple(self._chain(output.value))
            if chain:
                found[output.value] = chain
        return found

    def _chain(self, value: Value) -> Iterable[Value]:
        node, bases = self.fusion.producer.get(value), list[Value]()
        while node is not None and may_be_view(node):
            source = node.inputs[0]
            bases.append(source)
            if view_of(self.fusion, value, frozenset({source})) is not None:
                yield source
            node = self.fusion.producer.get(source)

    @cached_property
    def written(self) -> Mapping[Value, int]:
        """Return the bytes that are written for sure, by the value that causes them."""
        roots: dict[Value, int] = {}
        for output in self.fusion.outputs:
            value = output.value
            chain = self.bases.get(value, ())
            if any(v in self.fusion.input_of for v in chain) or value in self.fusion.input_of:
                continue
            least = min(self.size(v) * v.dtype.size for v in (value, *chain))
            update = self._update(output)
            if update is not None:
                least = min(least, self._count(update.written) * value.dtype.size)
            root = chain[-1] if chain else value
            roots[root] = max(roots.get(root, 0), least)
        return roots

    def _update(self, output: Output) -> Update | None:
        """Return how an output, or what is copied to it, changes the input that it overwrites."""
        node = self.fusion.producer.get(output.value)
        while node is not None and node.op.copies:
            node = self.fusion.producer.get(node.inputs[0])
        given = self.fusion.effects.into.get(output.value)
        return None if given is None else update_by(node, given.value)

    @cached_property
    def _in_place(self) -> frozenset[Node]:
        """Return the nodes that leave where it is what they do not change."""
        found = (self._update(o) for o in self.fusion.outputs)
        return frozenset(u.node for u in found if u is not None)

    def _count(self, shape: Shape) -> int:
        return prod(e.evaluate(self.fusion.hints) for e in shape)

    def _of_update(self, update: Update, value: Value, needed: int) -> Need:
        user = update.node
        into, *indices, source = user.operands
        if value in indices:
            return self.whole(value)
        count, changed = 1, self._count(update.written)
        if value is into:
            overwritten = 0 if update.reads else changed
            count = 0 if user in self._in_place else max(0, needed - overwritten)
        if value is source and needed == self.size(user.output):
            count = max(count, changed)
        return Need(min(count, self.size(value)))

    def input_bytes(self, entry: Input) -> int:
        """Return the bytes of one input that are read for sure."""
        value, need = entry.value, self.need(entry.value)
        strides = tuple(s.evaluate(self.fusion.hints) for s in entry.strides)
        shape, size = self.shape(value), value.dtype.size
        distinct = prod(e for e, s in zip(shape, strides, strict=True) if s)
        if need.boxes is None:
            repeats = prod(e for e, s in zip(shape, strides, strict=True) if not s)
            return min(-(-need.count // max(1, repeats)), distinct) * size
        boxes = (
            tuple(
                (0, 1) if not s and b > a else (a, b)
                for (a, b), s in zip(box, strides, strict=True)
            )
            for box in need.boxes
        )
        return min(union(boxes), distinct) * size

    def need(self, value: Value) -> Need:
        """Return what of a value some output depends on."""
        if value not in self._needs:
            self._needs[value] = Need(0, frozenset())
            self._needs[value] = self._found(value)
        return self._needs[value]

    def _found(self, value: Value) -> Need:
        bases, count = self.bases, 0
        boxes: set[Box] = set()
        for output in self.fusion.outputs:
            if output.value is value and not any(
                v in self.fusion.input_of for v in bases.get(value, ())
            ):
                return self.whole(value)
        for user in self.fusion.users.get(value, ()):
            if user.op.family == "scalar":
                continue
            need = self.through(user, value)
            if need.boxes is None:
                count = max(count, need.count)
            else:
                boxes |= need.boxes
        known = union(boxes)
        return Need(known, frozenset(boxes)) if known >= count else Need(count)

    def whole(self, value: Value) -> Need:
        """Return the need for all of a value."""
        return Need(self.size(value), frozenset({tuple((0, e) for e in self.shape(value))}))

    def through(self, user: Node, value: Value) -> Need:
        """Return what of `value` one of its users needs for what is needed of its results."""
        needs = [self.need(v) for v in user.outputs]
        most = max(needs, key=lambda n: n.count)
        if most.count == 0:
            return Need(0, frozenset())
        lookup = user.op.lookup
        if lookup and user.op.family == "indexing" and value is user.operands[lookup.table]:
            # Estimates count what is looked up, also where an element is looked up twice.
            return Need(min(self.size(user.output), self.size(value)))
        into = user.operands[0] if user.operands else None
        update = update_by(user, into) if isinstance(into, Value) else None
        if update is not None:
            return self._of_update(update, value, most.count)
        if user.op.family == "scatter":
            return Need(min(1, self.size(value)))
        if stands_alone(user):
            return self._exchanged(user, value, most)
        if user.op.family in ("movement", "pointwise") and len(user.outputs) == 1:
            return self._moved(user, value, most)
        if user.op.family in ("reduction", "contraction", "scan", "sort"):
            # An element of the operand reaches as many results as any other.
            parts = ((n.count, self.size(v)) for n, v in zip(needs, user.outputs, strict=True))
            return Need(max(self.size(value) * c // max(1, total) for c, total in parts))
        return Need(1)

    def _exchanged(self, user: Node, value: Value, need: Need) -> Need:
        """Return what is needed of what ranks exchange, or of what slices of a loop are of."""
        if user.op is RANK_SLICE:
            return Need(need.count)
        return self.whole(value) if need.count == self.size(user.output) else Need(1)

    def _moved(self, user: Node, value: Value, need: Need) -> Need:
        shape, target = self.shape(value), self.shape(user.output)
        boxes = None if need.boxes is None else [_moved(user, b, shape) for b in need.boxes]
        if boxes is not None and all(b is not None for b in boxes):
            exact = frozenset(b for b in boxes if b is not None)
            return Need(union(exact), exact)
        missing = prod(target) - need.count
        access = user.op.access
        if access is not None and access.reached is not None:
            return Need(max(0, prod(access.reached(user, shape, target)) - missing))
        if access is not None and access.window is not None:
            return Need(need.count)
        if missing == 0:
            return self.whole(value)
        repeats = -(-prod(target) // max(1, prod(shape)))
        return Need(min(prod(shape), -(-need.count // max(1, repeats))))


def _moved(user: Node, box: Box, shape: tuple[int, ...]) -> Box | None:
    """Return the box of the operand under a box of the result; None where it is no box."""
    access = user.op.access
    if user.op.family == "pointwise" and len(shape) == len(box):
        return tuple((0, 1) if e == 1 else r for r, e in zip(box, shape, strict=True))
    if access is None or access.along is None or access.repeats:
        return None
    if access.window is not None:
        starts, steps = access.window(user)
        if any(step != 1 for step in steps) or any(not s.is_const for s in starts):
            return None
        box = tuple(
            (a + int(s.value), b + int(s.value)) for (a, b), s in zip(box, starts, strict=True)
        )
    found = {place: r for place, r in zip(access.along(user), box, strict=True)}
    return tuple(found.get(k, (0, 1)) for k in range(len(shape)))


def union(boxes: Iterable[Box]) -> int:
    """Return the number of elements in a union of boxes, or fewer where that is hard to say."""
    dense = sorted({b for b in boxes if prod(end - start for start, end in b) > 0})
    if not dense:
        return 0
    largest = max(prod(end - start for start, end in b) for b in dense)
    if len(dense) == 1:
        return largest
    cuts = [sorted({x for b in dense for x in b[axis]}) for axis in range(len(dense[0]))]
    if prod(max(1, len(c)) for c in cuts) * len(dense) > MOST_CELLS:
        return largest
    return sum(
        prod(high - low for low, high in cell)
        for cell in combinations(*(list(pairwise(c)) for c in cuts))
        if any(
            all(s <= low and high <= e for (low, high), (s, e) in zip(cell, b, strict=True))
            for b in dense
        )
    )
