"""Random movement: every way to place elements elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Value
from tools.sketch import Sketch, Unfit


def draw_movement(sketch: Sketch) -> None:
    """Move the elements of a tensor."""
    sketch.keep(sketch.pick(MOVEMENTS)(sketch, sketch.tensor()))


def broadcast(sketch: Sketch, x: Value) -> Value:
    """Insert dims of extent 1."""
    mask = [False] * x.rank
    for _ in range(sketch.count(0, 2)):
        mask.insert(sketch.count(0, len(mask)), True)
    return sketch.apply("broadcast", x, is_broadcast_dim=mask)


def broadcast_in_dim(sketch: Sketch, x: Value) -> Value:
    """Place dims anywhere in a larger shape."""
    places: list[int] = []
    shape: list[Dim] = []
    for extent in x.shape:
        if sketch.chance(0.3):
            shape.append(sketch.extent(_room(sketch, x)))
        places.append(len(shape))
        grows = extent == 1 and sketch.chance(0.5)
        shape.append(sketch.extent(_room(sketch, x)) if grows else extent)
    return sketch.apply("broadcast_in_dim", x, shape=shape, broadcast_dims=places)


def _room(sketch: Sketch, x: Value) -> int:
    """Return an extent by which a tensor may be repeated without becoming huge."""
    return sketch.room(x.shape)


def expand(sketch: Sketch, x: Value) -> Value:
    """Repeat dims of extent 1, and add dims in front."""
    room = _room(sketch, x)
    kept = [sketch.extent(room) if e == 1 and sketch.chance(0.6) else e for e in x.shape]
    new = [sketch.extent(room) for _ in range(sketch.count(0, 1))]
    return sketch.apply("expand", x, shape=[*new, *kept])


def squeeze(sketch: Sketch, x: Value) -> Value:
    """Drop dims of extent 1."""
    unit = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    return sketch.apply("squeeze", x, dims=sketch.some(unit, 1))


def permute(sketch: Sketch, x: Value) -> Value:
    """Put dims into another order; mostly the last two change places."""
    order = list(range(x.rank))
    if x.rank >= 2 and sketch.chance(0.5):
        order[-2:] = reversed(order[-2:])
    else:
        sketch.rng.shuffle(order)
    return sketch.apply("permute", x, dims=order)


def reshape(sketch: Sketch, x: Value) -> Value:
    """Merge neighbouring dims, split one, insert or drop one of extent 1, or flatten."""
    shape = list(x.shape)
    kind = sketch.pick(["merge", "merge", "split", "split", "unit", "flat", "regroup"])
    if kind == "flat" or (kind == "regroup" and x.rank < 2):
        return sketch.apply("reshape", x, new_shape=[_product(shape)])
    if kind == "merge" and x.rank >= 2:
        at = sketch.count(0, x.rank - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    elif kind == "split" and x.rank:
        at = sketch.count(0, x.rank - 1)
        parts = _parts(sketch, shape[at])
        shape[at : at + 1] = parts
    elif kind == "regroup":
        at = sketch.count(0, x.rank - 2)
        factor = sketch.pick(_factors(shape[at]))
        shape[at : at + 2] = [_quotient(shape[at], factor), dim(factor) * shape[at + 1]]
    else:
        shape.insert(sketch.count(0, len(shape)), dim(1))
    return sketch.apply("reshape", x, new_shape=shape)


def _product(shape: list[Dim]) -> Dim:
    total = dim(1)
    for extent in shape:
        total = total * extent
    return total


def _factors(extent: Dim) -> list[int]:
    """Return what a constant extent can be divided by."""
    if not extent.is_const or not extent.value:
        raise Unfit
    return [f for f in (2, 3, 4, 5, 7, 8, 16, 32, 64) if extent.value % f == 0]


def _quotient(extent: Dim, factor: int) -> Dim:
    return dim(extent.value // factor)


def _parts(sketch: Sketch, extent: Dim) -> list[Dim]:
    factor = sketch.pick(_factors(extent))
    parts = [_quotient(extent, factor), dim(factor)]
    return parts[::-1] if sketch.chance(0.5) else parts


def slice_(sketch: Sketch, x: Value) -> Value:
    """Cut a range out of each dim, in steps."""
    starts: list[int] = []
    ends: list[Dim] = []
    steps: list[int] = []
    for extent in x.shape:
        size = sketch.size_of(extent)
        if sketch.chance(0.4):
            starts.append(0)
            ends.append(extent)
            steps.append(1)
            continue
        start = sketch.count(0, min(size, sketch.pick([1, 2, size])))
        end = sketch.pick([extent, extent, extent - 1, dim(sketch.count(start, max(size, start)))])
        starts.append(start)
        ends.append(end if sketch.size_of(end) >= start else extent)
        steps.append(sketch.pick([1, 1, 1, 2, 3]))
    return sketch.apply("slice", x, start_indices=starts, end_indices=ends, strides=steps)


def pad(sketch: Sketch, x: Value) -> Value:
    """Add elements of one value around, or cut with negative widths."""
    if not x.rank:
        raise Unfit
    widths: list[int] = []
    for extent in reversed(x.shape):
        cuts = [-1] if sketch.size_of(extent) > 2 else []
        widths += [sketch.pick([0, 0, 0, 1, 2, 5, *cuts]) for _ in range(2)]
    value = sketch.pick([0, 0, 1, 0.5]) if x.dtype.is_float else sketch.pick([0, 1])
    return sketch.apply("pad", x, value, pad_widths=widths)


def cat(sketch: Sketch, x: Value) -> Value:
    """Join tensors along a dim; the pieces may differ in it."""
    if not x.rank:
        raise Unfit
    axis = sketch.count(0, x.rank - 1)

    def fits(t: Value) -> bool:
        pairs = enumerate(zip(t.shape, x.shape, strict=True)) if t.rank == x.rank else ()
        return t.dtype == x.dtype and t.rank == x.rank and all(
            k == axis or a == b for k, (a, b) in pairs
        )  # fmt: skip

    fit = [t for t in sketch.known() if fits(t)]
    pieces = [x, *(sketch.pick(fit) for _ in range(sketch.count(0, 2)))]
    sketch.rng.shuffle(pieces)
    return sketch.apply("cat", pieces, dim=axis)


def flip(sketch: Sketch, x: Value) -> Value:
    """Turn dims around."""
    return sketch.apply("flip", x, dims=sketch.some(range(x.rank), 1))


def repeat(sketch: Sketch, x: Value) -> Value:
    """Put copies of a tensor side by side."""
    times = [sketch.pick([1, 1, 2, 3]) for _ in range(x.rank)]
    return sketch.apply("repeat", x, repeats=times)


def triangle(sketch: Sketch, x: Value) -> Value:
    """Zero what lies above or below a diagonal."""
    return sketch.apply(sketch.pick(["triu", "tril"]), x, sketch.count(-2, 2))


def copy(sketch: Sketch, x: Value) -> Value:
    """Copy, perhaps across a forced boundary."""
    return sketch.apply(sketch.pick(["set", "segment_set"]), x)


def ordered(sketch: Sketch, x: Value) -> Value:
    """Ask for a layout in memory."""
    return sketch.apply("stride_order", x, stride_order=sketch.rng.sample(range(x.rank), x.rank))


def update_slice(sketch: Sketch, x: Value) -> Value:
    """Write a part of a tensor somewhere else into it."""
    taken: list[int] = []
    ends: list[Dim] = []
    starts: list[int] = []
    for extent in x.shape:
        size = extent.value if extent.is_const else 0
        length = sketch.count(1, size) if size > 1 and sketch.chance(0.7) else 0
        first = sketch.count(0, size - length) if length else 0
        taken.append(first)
        ends.append(dim(first + length) if length else extent)
        starts.append(sketch.count(0, size - length) if length else 0)
    steps = [1] * x.rank
    part = sketch.apply("slice", x, start_indices=taken, end_indices=ends, strides=steps)
    return sketch.apply("update_slice", x, part, start_indices=starts)


Movement = Callable[[Sketch, Value], Value]
MOVEMENTS: tuple[Movement, ...] = (
    broadcast, broadcast_in_dim, expand, squeeze, permute, permute, permute, reshape, reshape,
    reshape, slice_, slice_, pad, pad, cat, cat, flip, repeat, triangle, copy, ordered,
    update_slice,
)  # fmt: skip
