"""Random reshapes across dims, before and behind permutes."""

from __future__ import annotations

from fusec.dev.epilogues import UNARY
from fusec.dev.operands import draw_operand, ragged
from fusec.dev.sketch import Sketch
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import BF16, F8E4M3, F16, F32, F64, I8, I32
from fusec.ir.graph import Value

DTYPES = {BF16: 30, F16: 10, F8E4M3: 10, I8: 15, F32: 25, F64: 5, I32: 5}


def regrouped(sketch: Sketch) -> None:
    """Draw reshapes and permutes of one tensor, with a little arithmetic."""
    shape = [dim(sketch.pick([3, 7, 16, 33, 64, 128])) for _ in range(sketch.count(1, 3))]
    if sketch.chance(0.3):
        shape[-1] = dim(ragged(sketch))
    x = draw_operand(sketch, sketch.weighed(DTYPES), shape, "x")
    for _ in range(sketch.count(2, 4)):
        match sketch.pick(["reshape", "reshape", "permute", "permute", "compute"]):
            case "reshape":
                x = sketch.apply("reshape", x, new_shape=_split(sketch, sketch.elements(x.shape)))
            case "permute":
                x = _permuted(sketch, x)
            case _ if x.dtype.is_float:
                x = sketch.apply(sketch.pick(UNARY), x)
            case _:
                x = sketch.apply("cast", x, dtype=F32)
    if sketch.chance(0.4):
        x = sketch.apply("cast", x, dtype=sketch.pick([F32, BF16]))
    sketch.keep(x)


def _permuted(sketch: Sketch, x: Value) -> Value:
    order = list(range(x.rank))
    sketch.rng.shuffle(order)
    return sketch.apply("permute", x, dims=order)


def _split(sketch: Sketch, total: int) -> list[Dim]:
    """Return extents whose product is `total`."""
    extents: list[Dim] = []
    for _ in range(sketch.pick([0, 1, 1, 1, 2, 3])):
        factors = [f for f in range(1, total + 1) if total % f == 0]
        part = sketch.pick([f for f in factors if 8 <= f <= 1000] or factors)
        extents.append(dim(part))
        total //= part
    return [*extents, dim(total)]
