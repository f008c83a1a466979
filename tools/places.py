"""Random operations whose places are data or follow from order: gathers, scatters, scans, sorts."""

from __future__ import annotations

from typing import Any

from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import I64
from fusec.ir.graph import Value
from fusec.ops import TABLE
from tools.entries import draw_index
from tools.sketch import Sketch, Unfit
from tools.values import LONGEST_PRODUCT, fresh, of_family


def draw_indexing(sketch: Sketch) -> None:
    """Read at positions that an index holds."""
    name = sketch.pick(
        ["index_select", "select", "gather", "take_along_axis", "take_along_axis", "embedding_fwd"]
    )
    if name == "embedding_fwd":
        sketch.keep(_embedding(sketch))
        return
    tensor = sketch.tensor(1)
    axis = sketch.count(0, tensor.rank - 1)
    extent = tensor.shape[axis]
    if name == "select":
        size = sketch.size_of(extent)
        if not size:
            raise Unfit
        position = sketch.count(0, min(size - 1, 4))
        index: Any = draw_index(sketch, (), extent) if sketch.chance(0.4) else position
        sketch.keep(sketch.apply("select", tensor, index, dim=axis))
    elif name == "index_select":
        shape = () if sketch.chance(0.1) else (sketch.extent(_room(sketch, tensor, axis)),)
        index = draw_index(sketch, shape, extent)
        sketch.keep(sketch.apply("index_select", tensor, index, dim=axis))
    else:
        index = draw_index(sketch, _index_shape(sketch, tensor, axis, name), extent)
        sketch.keep(sketch.apply(name, tensor, index, dim=axis))


def _room(sketch: Sketch, tensor: Value, axis: int) -> int:
    rest = [e for k, e in enumerate(tensor.shape) if k != axis]
    return sketch.room(rest)


def _index_shape(sketch: Sketch, tensor: Value, axis: int, name: str) -> tuple[Dim, ...]:
    """Return the shape of an index: another extent at the axis, the others equal or less."""
    shape = list(tensor.shape)
    shape[axis] = sketch.extent(_room(sketch, tensor, axis))
    for k, extent in enumerate(tensor.shape):
        if k == axis or not sketch.chance(0.2):
            continue
        if name == "take_along_axis":
            shape[k] = dim(1)
        elif extent.is_const and extent.value:
            shape[k] = dim(sketch.count(1, extent.value))
    return tuple(shape)


def _embedding(sketch: Sketch) -> Value:
    weight = sketch.tensor(2, 2)
    shape = sketch.shape(sketch.count(1, 2))
    if sketch.elements((*shape, weight.shape[1])) > 4 * sketch.cap:
        shape = (sketch.extent(_room(sketch, weight, 0)),)
    index = draw_index(sketch, shape, weight.shape[0])
    return sketch.apply("embedding_fwd", index, weight)


def draw_scatter(sketch: Sketch) -> None:
    """Write or add at positions that an index holds."""
    name = sketch.pick([*of_family("scatter"), "index_put_accumulate"])
    tensor = sketch.tensor(1, 4)
    if name == "index_put_accumulate":
        index = draw_index(sketch, (sketch.extent(64),), tensor.shape[0])
        values = fresh(sketch, tensor.dtype, (*index.shape, *tensor.shape[1:]))
        sketch.keep(sketch.apply(name, tensor, index, values))
        return
    axis = sketch.count(0, tensor.rank - 1)
    shape = list(tensor.shape)
    shape[axis] = sketch.extent(min(512, _room(sketch, tensor, axis)))
    if name == "index_add":
        index = draw_index(sketch, (shape[axis],), tensor.shape[axis])
        source: Any = fresh(sketch, tensor.dtype, tuple(shape))
    else:
        index = draw_index(sketch, shape, tensor.shape[axis])
        number = sketch.chance(0.2)
        source = sketch.pick([0, 1, 2]) if number else fresh(sketch, tensor.dtype, index.shape)
    attributes: dict[str, Any] = {"dim": axis}
    if sketch.chance(0.2) and any(p.name == "deterministic" for p in TABLE[name].params):
        attributes["deterministic"] = False
    sketch.keep(sketch.apply(name, tensor, index, source, **attributes))


def draw_scan(sketch: Sketch) -> None:
    """Accumulate along a dim."""
    tensor = sketch.tensor(1)
    axis = sketch.count(0, tensor.rank - 1) if sketch.chance(0.5) else tensor.rank - 1
    name = sketch.pick(of_family("scan"))
    length = sketch.size_of(tensor.shape[axis])
    if name == "cumprod" and tensor.dtype.is_float and length > LONGEST_PRODUCT:
        raise Unfit
    if name == "cumprod" and tensor.dtype.is_float and not tensor.name[1:].isdigit():
        tensor = sketch.apply("clamp", tensor, 0.5, 1.5)
    sketch.keep(sketch.apply(name, tensor, dim=axis))


def draw_sort(sketch: Sketch) -> None:
    """Order along a dim, or take the largest elements."""
    tensor = sketch.tensor(1)
    axis = sketch.count(0, tensor.rank - 1) if sketch.chance(0.5) else tensor.rank - 1
    name = sketch.pick(of_family("sort"))
    if name == "topk":
        size = sketch.size_of(tensor.shape[axis])
        k = sketch.count(0 if sketch.chance(0.1) else min(1, size), min(size, 40))
        largest = sketch.chance(0.6)
        sketch.keep(*sketch.call(name, [tensor], k=k, dim=axis, largest=largest))
        return
    sketch.keep(*sketch.call(name, [tensor], dim=axis, descending=sketch.chance(0.4)))


def draw_loss(sketch: Sketch) -> None:
    """Take the cross entropy against class numbers."""
    scores = sketch.tensor(1, 4, where=lambda t: t.dtype.is_float)
    axis = min(1, scores.rank - 1)
    shape = tuple(e for k, e in enumerate(scores.shape) if k != axis)
    target = draw_index(sketch, shape, scores.shape[axis])
    if target.dtype != I64 and sketch.chance(0.7):
        target = sketch.apply("cast", target, dtype=I64)
    reduction = sketch.pick(["mean", "sum", "none"])
    name = sketch.pick(["cross_entropy", "nll_loss"])
    sketch.keep(sketch.apply(name, scores, target, reduction=reduction))
