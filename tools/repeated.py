"""Random outputs that are the same along an axis of the kernel that makes them."""

from __future__ import annotations

from collections.abc import Callable

from fusec.ir.dim import dim
from fusec.ir.dtype import BF16, F16, F32
from fusec.ir.graph import Value
from tools.epilogues import JOINS, UNARY
from tools.operands import draw_operand, mostly_aligned, ragged
from tools.sketch import Sketch

DTYPES = {F32: 60, BF16: 25, F16: 15}
SIZES = (3, 7, 16, 33, 40, 64, 65, 100, 130)


def repeated(sketch: Sketch) -> None:
    """Draw an operation on rows or tiles, joined with values of rows, of columns or of batches.

    What is joined is an output itself: the kernel computes it at many points, and stores it at one.
    """
    shape = [dim(sketch.pick([1, 2, 3])), dim(sketch.pick(SIZES)), dim(sketch.pick(SIZES))]
    dtype = sketch.weighed(DTYPES)
    x = draw_operand(sketch, dtype, shape[sketch.count(0, 1) :], "x")
    y = sketch.weighed(CORES)(sketch, x)
    for _ in range(sketch.weighed({1: 70, 2: 30})):
        shared = shared_by(sketch, y)
        y = sketch.apply(sketch.pick(JOINS), y, shared)
        sketch.keep(shared)
    if sketch.chance(0.2):
        sketch.keep(sketch.apply("sum", y, dims=[sketch.count(0, y.rank - 1)]))
    sketch.keep(y)


def shared_by(sketch: Sketch, y: Value) -> Value:
    """Return a computed value that is the same along some dims of another."""
    kept = [sketch.chance(0.5) for _ in y.shape]
    if all(kept):
        kept[sketch.count(0, y.rank - 1)] = False
    first = 0 if sketch.chance(0.5) else next((k for k, own in enumerate(kept) if own), y.rank - 1)
    shape = [e if own else dim(1) for e, own in zip(y.shape, kept, strict=True)]
    return sketch.apply(sketch.pick(UNARY), draw_operand(sketch, y.dtype, shape[first:], "b"))


def _sorted(sketch: Sketch, x: Value) -> Value:
    return sketch.call("sort", [x], dim=_axis(sketch, x), descending=sketch.chance(0.5))[0]


def _top(sketch: Sketch, x: Value) -> Value:
    axis = _axis(sketch, x)
    k = min(sketch.size_of(x.shape[axis]), sketch.pick([1, 2, 5, 40]))
    return sketch.call("topk", [x], k=k, dim=axis)[0]


def _scanned(sketch: Sketch, x: Value) -> Value:
    return sketch.apply(sketch.pick(["cumsum", "cummax"]), x, dim=_axis(sketch, x))


def _permuted(sketch: Sketch, x: Value) -> Value:
    return sketch.apply("permute", x, dims=[*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _normalised(sketch: Sketch, x: Value) -> Value:
    return sketch.apply("sub", x, sketch.apply("max", x, dims=[_axis(sketch, x)], keepdim=True))


def _tiled(sketch: Sketch, x: Value) -> Value:
    """Return a tensor that is repeated along a dim, and kept as it is."""
    y = sketch.apply("neg", x)
    sketch.keep(y)
    times = [1] * x.rank
    times[sketch.count(0, x.rank - 1)] = sketch.pick([2, 3])
    return sketch.apply("repeat", y, times)


def _multiplied(sketch: Sketch, x: Value) -> Value:
    columns = dim(mostly_aligned(sketch, 0.7) if sketch.chance(0.8) else ragged(sketch))
    right = draw_operand(sketch, x.dtype, (*x.shape[:-2], x.shape[-1], columns), "w")
    return sketch.apply("matmul", x, right)


def _axis(sketch: Sketch, x: Value) -> int:
    return x.rank - 1 if sketch.chance(0.7) else sketch.count(0, x.rank - 1)


Core = Callable[[Sketch, Value], Value]
CORES: dict[Core, int] = {
    _sorted: 14, _top: 14, _scanned: 14, _permuted: 16, _normalised: 14, _tiled: 10,
    _multiplied: 18,
}  # fmt: skip
