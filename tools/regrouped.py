"""Random reshapes across dims, before and behind permutes."""

from __future__ import annotations

from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import BF16, F8E4M3, F16, F32, F64, I8, I32
from fusec.ir.graph import Value
from tools.epilogues import UNARY
from tools.operands import draw_operand, ragged
from tools.sketch import Sketch

DTYPES = {BF16: 30, F16: 10, F8E4M3: 10, I8: 15, F32: 25, F64: 5, I32: 5}


def regrouped(sketch: Sketch) -> None:
    """Draw reshapes and permutes of one tensor, with a little arithmetic."""
    shape = [dim(sketch.pick(c)) for c in ([3, 7, 12, 33], [7, 12, 33, 64], [64, 96, 100, 128])]
    sketch.rng.shuffle(shape)
    if sketch.chance(0.2):
        shape[-1] = dim(ragged(sketch))
    x = draw_operand(sketch, sketch.weighed(DTYPES), shape, "x")
    for _ in range(sketch.weighed({1: 70, 2: 30})):
        x = sketch.apply("reshape", x, new_shape=_split(sketch, sketch.elements(x.shape)))
        if sketch.chance(0.2):
            x = _computed(sketch, x)
        x = _permuted(sketch, x)
    if sketch.chance(0.8):
        x = _computed(sketch, x)
    sketch.keep(x)


def _computed(sketch: Sketch, x: Value) -> Value:
    if x.dtype.is_float and x.dtype != F8E4M3 and sketch.chance(0.5):
        return sketch.apply(sketch.pick(UNARY), x)
    return sketch.apply("cast", x, dtype=sketch.pick([F32, F32, BF16]))


def _permuted(sketch: Sketch, x: Value) -> Value:
    """Return a tensor with its last two dims exchanged, or all in another order."""
    order = list(range(x.rank))
    if sketch.chance(0.7):
        order[-2:] = reversed(order[-2:])
    else:
        sketch.rng.shuffle(order)
    return sketch.apply("permute", x, dims=order)


def _split(sketch: Sketch, total: int) -> list[Dim]:
    """Return two extents or more whose product is `total`, mostly neither of them small."""
    extents: list[Dim] = []
    for _ in range(sketch.weighed({1: 70, 2: 30})):
        factors = [f for f in range(1, total + 1) if total % f == 0]
        part = sketch.pick([f for f in factors if 8 <= f <= total // 8] or factors)
        extents.append(dim(part))
        total //= part
    return [*extents, dim(total)]
