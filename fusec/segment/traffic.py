"""The minimum cost of a fusion: bytes read and written, each distinct element once, and work."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from fusec.dataclasses import replace
from fusec.index.boxes import Box, Range, union, volume
from fusec.index.demanded import demand
from fusec.index.regions import By, Demanded, Region
from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Input, Node, Value
from fusec.ir.identity_cache import IdentityCache
from fusec.segment.protocol import Estimate

SECTOR = 32
"""Bytes of a DRAM transaction: a step within a sector saves nothing."""

LINE = 128
"""Bytes of a cache line."""

PULLED = frozenset({"pointwise", "movement", "indexing", "factory", "random"})
"""Families for which a kernel computes only those elements that are needed."""


def bytes_read(fusion: Fusion) -> int:
    """Return the bytes of distinct input elements that the nodes read, at hint sizes.

    A slice is not charged whole, an expanded input once, and an input only used by `size` not at
    all.
    """
    return sum(_input_bytes(fusion, i) for i in fusion.inputs if not i.value.is_scalar)


def bytes_written(fusion: Fusion) -> int:
    """Return the bytes of all outputs, at hint sizes: for an update, those it writes."""
    return sum(_written(fusion, o.value) * o.value.dtype.size for o in fusion.outputs)


def _written(fusion: Fusion, value: Value) -> int:
    update = fusion.effects.updates.get(value)
    return prod(e.evaluate(fusion.hints) for e in (update.written if update else value.shape))


def traffic(fusion: Fusion) -> int:
    """Return the compulsory traffic of a single kernel for the fusion in bytes, at hint sizes."""
    return _TRAFFIC.of(fusion, None, lambda: bytes_read(fusion) + bytes_written(fusion))


_TRAFFIC = IdentityCache[int]()


def with_writes(estimate: Estimate, fusion: Fusion) -> Estimate:
    """Return an estimate with the number of written bytes filled in."""
    if estimate.written is not None:
        return estimate
    return replace(estimate, written=min(bytes_written(fusion), estimate.bytes))


def work(fusion: Fusion) -> tuple[float, float]:
    """Return (operations, special-function operations) at hint sizes, in operations on f32."""
    flops = sfu = 0.0
    needed = demand(fusion)
    for node in fusion.nodes:
        update = fusion.effects.updates.get(node.output)
        if update is not None:
            count = product(update.written).evaluate(fusion.hints)
        elif node.op.family in PULLED and len(node.outputs) == 1:
            count = needed.of(node.output).most
        else:
            made = node.inputs[0] if node.op.family == "reduction" else node.output
            count = prod(needed.shape(made))
        flops += node.op.cost.flops * count * _weight(node)
        sfu += node.op.cost.sfu * count
    return flops, sfu


def _weight(node: Node) -> int:
    """Return the cost of one operation of a node, in f32 operations.

    It is two for 64 bits, at half the rate or in two words; integers are computed at half the rate
    of f32 (CUDA programming guide, throughput of native arithmetic instructions, 9.0).
    """
    values = (*node.inputs, *node.outputs)
    is_wide = any(v.dtype.bits == 64 for v in values)
    is_float = any(v.dtype.is_float or v.dtype.is_complex for v in values)
    return (2 if is_wide else 1) * (1 if is_float else 2)


def elements(value: Value, sizes: Mapping[str, int]) -> int:
    """Return the number of elements of a tensor; 0 for a scalar."""
    return 0 if value.is_scalar else prod(e.evaluate(sizes) for e in value.shape)


def _input_bytes(fusion: Fusion, entry: Input) -> int:
    """Return the bytes of an input that a kernel reads: whole sectors of the needed elements."""
    strides = tuple(s.evaluate(fusion.hints) for s in entry.strides)
    return demanded_bytes(demand(fusion).of(entry.value), strides, entry.value.dtype.size)


def demanded_bytes(needed: Demanded, strides: tuple[int, ...], size: int) -> int:
    """Return the bytes of reading the needed elements of a tensor, in whole sectors.

    strides: in elements, 0 of an expanded dim; size: bytes of an element.
    """
    dense, places = set[Box](), 0
    for region in needed.regions:
        picked = frozenset(k for k in region.picked if strides[k])
        box = _charged(region.box, needed.shape, strides, size)
        if picked:
            places += _picked(replace(region, box=box, picked=picked), strides, size)
        else:
            dense.add(box)
    distinct = prod(e for e, s in zip(needed.shape, strides, strict=True) if s)
    return min(distinct * size, union(dense)[1] * size + places)


def picked_bytes(fusion: Fusion) -> int:
    """Return the bytes of inputs that are read in runs shorter than a cache line.

    These are gathered by index, or columns of longer rows, less than half of all.
    """
    found = 0
    for entry in fusion.inputs:
        needed, size = demand(fusion).of(entry.value), entry.value.dtype.size
        strides = tuple(s.evaluate(fusion.hints) for s in entry.strides)
        columns = set[Box]()
        for region in needed.regions:
            picked = frozenset(k for k in region.picked if strides[k])
            if picked and region.by is By.INDEX:
                region = replace(region, picked=picked)
                short = _run(region, strides) * size < LINE
                found += short * _picked(region, strides, size)
            elif not picked and _is_separate(region.box, needed.shape, strides, size):
                columns.add(_charged(region.box, needed.shape, strides, size))
        few = union(columns)[1] if columns else 0
        found += few * size if 2 * few < prod(needed.shape) else 0
    return found


def _is_separate(box: Box, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Return whether a box has short contiguous runs with more than a sector between them."""
    inner = next((k for k, s in enumerate(strides) if s == 1 and shape[k] > 1), None)
    if inner is None:
        return False
    start, end, step = box[inner]
    left_out = (shape[inner] - (end - start)) * size
    return step == 1 and (end - start) * size < LINE and left_out > SECTOR


def _run(region: Region, strides: tuple[int, ...]) -> int:
    """Return the number of contiguous elements at each index that is gathered."""
    row = (r for k, r in enumerate(region.box) if strides[k] == 1 and k not in region.picked)
    return max(1, prod(end - start for start, end, _ in row))


def _picked(region: Region, strides: tuple[int, ...], size: int) -> int:
    """Return the bytes of the gathered indices: each takes its own sectors.

    For a non-affine index map it is unknown how many elements are contiguous: its box is charged.
    """
    least = size
    if region.by is By.MAP:
        return volume(region.box) * size
    if region.by is By.INDEX:
        least = max(size, SECTOR // _run(region, strides))
    return min(region.count * least, volume(region.box) * size)


def _charged(box: Box, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Box:
    """Return a box as charged: whole sectors."""
    places = zip(box, shape, strides, strict=True)
    return tuple(_sectors(where, stride * size, extent) for where, extent, stride in places)


def _sectors(where: Range, pitch: int, extent: int) -> Range:
    """Return a range as charged: one element of an expanded dim, whole sectors.

    pitch: bytes between consecutive indices. If steps are longer than a sector, each index takes
    one sector, charged as if they were adjacent.
    """
    start, end, step = where
    if end <= start or pitch >= SECTOR:
        return where
    if pitch == 0:
        return (0, 1, 1)
    side_by_side = SECTOR // pitch
    if step >= side_by_side:
        charged = min(extent, -(-(end - start) // step) * side_by_side)
        start = min(start, extent - charged)
        return (start, start + charged, 1)
    first = start // side_by_side * side_by_side
    return (first, min(extent, -(-end // side_by_side) * side_by_side), 1)
