"""Random inputs: shapes that go together, and layouts of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.ir.dim import Dim, dim, product
from fusec.ir.dtype import F32, F64, I32, I64, DType
from fusec.ir.graph import Value
from tools.sketch import Sketch, Unfit

RANKS = {0: 3, 1: 16, 2: 38, 3: 26, 4: 12, 5: 5}


def draw_inputs(sketch: Sketch) -> None:
    """Declare one to four tensors, most of them of related shapes, and a few scalars."""
    first = sketch.shape(sketch.weighed(RANKS))
    for k in range(sketch.weighed({1: 30, 2: 40, 3: 25, 4: 5})):
        shape = first if k == 0 else _related(sketch, first)
        sketch.keep(draw_input(sketch, f"x{k}", sketch.dtype() if k else sketch.main, shape))
    if sketch.chance(0.3):
        dtype = sketch.pick([F32, F64])
        default = sketch.pick([0.25, 1.5, -0.75, None])
        sketch.keep(sketch.builder.input("s", dtype, None, default=default))
    if sketch.chance(0.2):
        dtype = sketch.pick([I64, I64, I32])
        sketch.keep(sketch.builder.input("n", dtype, None, default=sketch.count(1, 4)))


def _related(sketch: Sketch, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the shape itself, one that broadcasts against it, or another one."""
    match sketch.pick(["same", "same", "same", "tail", "ones", "other"]):
        case "same":
            return tuple(shape)
        case "tail":
            return tuple(shape[sketch.count(0, len(shape)) :])
        case "ones":
            return tuple(dim(1) if sketch.chance(0.4) else e for e in shape)
        case _:
            return sketch.shape(sketch.weighed(RANKS))


def draw_input(sketch: Sketch, name: str, dtype: DType, shape: Sequence[Dim]) -> Value:
    """Declare a tensor: dense, transposed, sliced, expanded, overlapping or on the host."""
    options = _layout(sketch, tuple(shape)) if sketch.chance(0.45) else {}
    return sketch.builder.input(name, dtype, shape, **options)


def _layout(sketch: Sketch, shape: tuple[Dim, ...]) -> dict[str, Any]:
    rank = len(shape)
    if not rank:
        return {"on_cpu": True}
    kinds = ["order", "order", "flags", "flags", "both", "sliced", "expanded", "strides"]
    match sketch.pick(kinds):
        case "order":
            return {"stride_order": sketch.rng.sample(range(rank), rank)}
        case "flags":
            return {"contiguity": _flags(sketch, rank)}
        case "both":
            order = sketch.rng.sample(range(rank), rank)
            return {"stride_order": order, "contiguity": _flags(sketch, rank)}
        case "sliced":
            # Every stride is larger by what another dim of the sliced tensor was cut from.
            factor = sketch.pick([2, 3, 8])
            axis = sketch.count(0, rank - 1)
            dense = [product(shape[k + 1 :]) for k in range(rank)]
            return {"strides": [s * factor if k <= axis else s for k, s in enumerate(dense)]}
        case "expanded":
            return {"contiguity": [None if sketch.chance(0.4) else True for _ in range(rank)]}
        case _:
            # Small strides overlap, as the windows of an unfold do.
            return {"strides": [dim(sketch.pick([0, 1, 1, 2, 3])) for _ in range(rank)]}


def _flags(sketch: Sketch, rank: int) -> list[bool | None]:
    return [sketch.pick([True, True, False, None]) for _ in range(rank)]


def draw_index(sketch: Sketch, shape: Sequence[Dim], extent: Dim) -> Value:
    """Return a tensor of positions below `extent`: an input, or computed ones."""
    if sketch.size_of(extent) < 1 and sketch.elements(shape):
        raise Unfit
    if sketch.chance(0.15) and len(shape) == 1 and extent == shape[0]:
        return sketch.apply("iota", shape[0], dtype=I64)
    name = f"i{len(sketch.indices)}"
    dtype = I64 if sketch.chance(0.65) else I32
    sketch.indices.add(name)
    if len(shape) > 1 and sketch.chance(0.2):
        order = sketch.rng.sample(range(len(shape)), len(shape))
        moved = [shape[k] for k in order]
        turned = draw_input(sketch, name, dtype, moved)
        back = [order.index(k) for k in range(len(shape))]
        return sketch.apply("permute", turned, dims=back)
    return draw_input(sketch, name, dtype, shape)
