"""What a fusion costs at least: bytes read and written, each distinct element once, and work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from itertools import product as combinations
from math import prod

from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Input, Node, Value
from fusec.segment.protocol import Estimate

SECTOR = 32
"""Bytes that DRAM moves at least: a step inside a sector saves nothing."""

Range = tuple[int, int, int]
"""start, end, step."""

Box = tuple[Range, ...]
Touched = frozenset[Box] | None
"""The boxes of a value that are read; None: all of it."""


def bytes_read(fusion: Fusion) -> int:
    """Return the bytes of distinct input elements that the nodes read, at hint sizes.

    A slice is not charged whole, an expanded input once, and what only `size` looks at not at all.
    """
    return sum(_input_bytes(fusion, i) for i in fusion.inputs if not i.value.is_scalar)


def bytes_written(fusion: Fusion) -> int:
    """Return the bytes of all outputs, at hint sizes: of an update what it writes."""
    return sum(_written(fusion, o.value) * o.value.dtype.size for o in fusion.outputs)


def _written(fusion: Fusion, value: Value) -> int:
    update = fusion.effects.updates.get(value)
    return prod(e.evaluate(fusion.hints) for e in (update.written if update else value.shape))


def traffic(fusion: Fusion) -> int:
    """Return the bytes that a single kernel for the fusion must move, at hint sizes."""
    return bytes_read(fusion) + bytes_written(fusion)


def with_writes(estimate: Estimate, fusion: Fusion) -> Estimate:
    """Return an estimate that knows how many of the moved bytes are written."""
    if estimate.written is not None:
        return estimate
    return replace(estimate, written=min(bytes_written(fusion), estimate.bytes))


def work(fusion: Fusion) -> tuple[float, float]:
    """Return (operations, special-function operations) at hint sizes."""
    flops = sfu = 0.0
    for node in fusion.nodes:
        made = node.inputs[0] if node.op.family == "reduction" else node.output
        update = fusion.effects.updates.get(node.output)
        shape = made.shape if update is None else update.written
        count = product(shape).evaluate(fusion.hints)
        flops += node.op.cost.flops * count
        sfu += node.op.cost.sfu * count
    return flops, sfu


def elements(value: Value, sizes: Mapping[str, int]) -> int:
    """Return the number of elements of a tensor; 0 for a scalar."""
    return 0 if value.is_scalar else prod(e.evaluate(sizes) for e in value.shape)


def _input_bytes(fusion: Fusion, entry: Input) -> int:
    value = entry.value
    update = fusion.effects.update_of(value)
    if update is not None and set(fusion.users.get(value, ())) <= {update.node}:
        changed = prod(e.evaluate(fusion.hints) for e in update.written)
        return changed * value.dtype.size if update.reads else 0
    shape = tuple(e.evaluate(fusion.hints) for e in value.shape)
    strides = tuple(s.evaluate(fusion.hints) for s in entry.strides)
    boxes = _touched(fusion, value, {})
    if boxes is None:
        picked = _picked(fusion, value)
        if picked is not None:
            return min(picked, _union({_whole(shape)})) * value.dtype.size
        boxes = frozenset({_whole(shape)})
    size = value.dtype.size
    flat = {
        tuple(_sectors(where, stride * size) for where, stride in zip(box, strides, strict=True))
        for box in boxes
    }
    return _union(flat) * size


def _picked(fusion: Fusion, value: Value) -> int | None:
    """Return how many elements are looked up in a table; None if it is also read otherwise."""
    count = 0
    for user in fusion.users.get(value, ()):
        if user.op.lookup is None or user.op.family != "indexing":
            return None
        table = user.operands[user.op.lookup.table]
        others = [o for o in user.operands if o is not table]
        if table is not value or value in others:
            return None
        count += elements(user.output, fusion.hints)
    return None if any(o.value is value for o in fusion.outputs) else count


def _whole(shape: Iterable[int]) -> Box:
    return tuple((0, e, 1) for e in shape)


def _sectors(where: Range, pitch: int) -> Range:
    """Return the range as it is charged: one element of an expanded dim, whole sectors."""
    start, end, step = where
    if pitch == 0 and end > start:
        return (0, 1, 1)
    return (start, end, 1) if step > 1 and step * pitch < SECTOR else where


def _touched(fusion: Fusion, value: Value, known: dict[Value, Touched]) -> Touched:
    """Return the boxes of `value` that the fusion's nodes or outputs read."""
    if value in known:
        return known[value]
    known[value] = None
    found: set[Box] = set()
    whole = any(o.value is value for o in fusion.outputs)
    for user in fusion.users.get(value, ()):
        if whole:
            break
        if user.op.family == "scalar":
            continue
        boxes = _through(fusion, user, value, known)
        whole = boxes is None
        found |= boxes or frozenset()
    known[value] = None if whole else frozenset(found)
    return known[value]


def _through(fusion: Fusion, user: Node, value: Value, known: dict[Value, Touched]) -> Touched:
    access = user.op.access
    if access is None or access.along is None or access.repeats or user.op.copies:
        return None
    sizes = fusion.hints
    boxes = _touched(fusion, user.output, known)
    if boxes is None:
        if access.window is None:
            return None
        boxes = frozenset({_whole(e.evaluate(sizes) for e in user.output.shape)})
    moved: set[Box] = set()
    for box in boxes:
        if access.window is not None:
            starts, steps = access.window(user)
            box = tuple(
                _scaled(r, begin.evaluate(sizes), step)
                for r, begin, step in zip(box, starts, steps, strict=True)
            )
        found = {place: r for place, r in zip(access.along(user), box, strict=True)}
        moved.add(tuple(found.get(k, (0, 1, 1)) for k in range(value.rank)))
    return frozenset(moved)


def _scaled(inner: Range, begin: int, step: int) -> Range:
    start, end, by = inner
    return (begin + start * step, begin + (end - 1) * step + 1 if end > start else begin, by * step)


def _count(box: Box) -> int:
    return prod(max(0, -(-(end - start) // step)) for start, end, step in box)


def _union(boxes: Iterable[Box]) -> int:
    """Return the number of elements in a union of boxes; steps other than 1 are counted apart."""
    dense = sorted(b for b in boxes if all(step == 1 for _, _, step in b) and _count(b))
    total = sum(_count(b) for b in boxes if any(step != 1 for _, _, step in b))
    if len(dense) < 2:
        return total + sum(_count(b) for b in dense)
    cuts = [sorted({x for b in dense for x in b[axis][:2]}) for axis in range(len(dense[0]))]
    if prod(max(1, len(c)) for c in cuts) > 10_000:
        return total + sum(_count(b) for b in dense)
    cells = combinations(*(list(pairwise(c)) for c in cuts))
    for cell in cells:
        if any(
            all(s <= low and high <= e for (low, high), (s, e, _) in zip(cell, b, strict=True))
            for b in dense
        ):
            total += prod(high - low for low, high in cell)
    return total
