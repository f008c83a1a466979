"""Random chains that schedulers and passes look for: norms, epilogues, transposes, round trips."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fusec.ir.dim import dim
from fusec.ir.dtype import BF16, F8E4M3, F16, F32, I32, I64
from fusec.ir.graph import Value
from tools.movements import permute, reshape
from tools.sketch import Sketch, Unfit
from tools.values import axes, converted, draw_product, fresh, reduced

UNARY = ("neg", "exp", "relu", "sigmoid", "tanh", "abs", "silu", "sin", "cos")
JOINS = ("add", "mul", "sub", "maximum")


def _float(sketch: Sketch, least_rank: int = 1) -> Value:
    return sketch.tensor(least_rank, where=lambda t: t.dtype.is_float)


def normalised(sketch: Sketch) -> None:
    """Reduce rows or columns, and join the result with what was reduced."""
    x = _float(sketch)
    if x.dtype.is_half and sketch.chance(0.7):
        x = sketch.apply("cast", x, dtype=F32)
    dims = axes(sketch, x.rank)
    total = reduced(sketch, x, sketch.pick(["sum", "max", "min", "mean", "var"]), dims, True)[0]
    y = sketch.apply(sketch.pick(JOINS), x, total)
    if sketch.chance(0.4):
        # A second reduction over the same rows, of what the first one gave.
        again = reduced(sketch, sketch.apply(sketch.pick(UNARY), y), "sum", dims, True)[0]
        y = sketch.apply(sketch.pick(["mul", "sub", "add"]), y, again)
    sketch.keep(y)


def norm_gradient(sketch: Sketch) -> None:
    """Sum rows that are joined with their own sums, and columns beside them."""
    x = _float(sketch, 2)
    if x.rank > 3:
        raise Unfit
    g = fresh(sketch, x.dtype, x.shape)
    wide = [sketch.apply("cast", v, dtype=F32) if v.dtype.is_half else v for v in (x, g)]
    product = sketch.apply("mul", *wide)
    inner = [x.rank - 1] if sketch.chance(0.8) else list(range(1, x.rank))
    outer = [k for k in range(x.rank) if k not in inner]
    rows = reduced(sketch, product, "sum", inner, True)[0]
    y = sketch.apply("sub", wide[0], sketch.apply("mul", wide[1], rows))
    columns = reduced(sketch, product if sketch.chance(0.5) else y, "sum", outer, False)[0]
    narrow = sketch.apply("cast", y, dtype=x.dtype)
    sketch.keep(narrow, columns)
    if sketch.chance(0.4):
        sketch.keep(reduced(sketch, wide[1], "sum", outer, False)[0])


def epilogue(sketch: Sketch) -> None:
    """Compute with the result of a product."""
    draw_product(sketch)
    y: Any = sketch.tensors[-1]
    for _ in range(sketch.count(1, 3)):
        if sketch.chance(0.5):
            y = sketch.apply(sketch.pick(UNARY), y)
        else:
            other = fresh(sketch, y.dtype, y.shape[-1:] if sketch.chance(0.6) else y.shape)
            y = sketch.apply(sketch.pick(JOINS), y, other)
    if sketch.chance(0.5):
        with suppress(Unfit):
            y = converted(sketch, y, sketch.main)
    sketch.keep(y)


def transposed(sketch: Sketch) -> None:
    """Join a tensor with one whose last two dims lie the other way round."""
    x = sketch.tensor(2, 5)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    other = fresh(sketch, x.dtype, tuple(x.shape[k] for k in order))
    moved = sketch.apply("permute", other, dims=order)
    sketch.keep(sketch.apply(sketch.pick(JOINS), x, moved))


def split_and_join(sketch: Sketch) -> None:
    """Cut a tensor into neighbouring slices and put them together, in order or not."""
    x = sketch.tensor(1)
    axis = sketch.count(0, x.rank - 1)
    if sketch.size_of(x.shape[axis]) < 2:
        raise Unfit
    cut = dim(sketch.count(1, sketch.size_of(x.shape[axis]) - 1))
    pieces: list[Value] = []
    for low, high in ((dim(0), cut), (cut, x.shape[axis])):
        starts, ends = [dim(0)] * x.rank, list(x.shape)
        starts[axis], ends[axis] = low, high
        pieces.append(sketch.apply("slice", x, start_indices=starts, end_indices=ends))
    if sketch.chance(0.5):
        pieces.reverse()
    if sketch.chance(0.3):
        pieces[0] = sketch.apply("neg", pieces[0])
    if sketch.chance(0.3):
        pieces.append(x)
    sketch.keep(sketch.apply("cat", pieces, dim=axis))


def rotated(sketch: Sketch) -> None:
    """Rotate the halves of the last dim, as rotary embeddings do."""
    x = _float(sketch)
    size = sketch.size_of(x.shape[-1])
    if size % 2 or not x.shape[-1].is_const:
        raise Unfit
    starts, ends = [dim(0)] * x.rank, list(x.shape)
    half = dim(size // 2)
    left = sketch.apply("slice", x, start_indices=starts, end_indices=[*ends[:-1], half])
    right = sketch.apply("slice", x, start_indices=[*starts[:-1], half], end_indices=ends)
    turned_ = sketch.apply("cat", [sketch.apply("neg", right), left], dim=x.rank - 1)
    sketch.keep(sketch.apply("add", sketch.apply("cos", x), turned_))


def padded_twice(sketch: Sketch) -> None:
    """Pad, compute, and pad again."""
    x = sketch.tensor(1)
    y = sketch.apply("pad", x, 0, pad_widths=[1, 0])
    if x.dtype.is_float:
        y = sketch.apply(sketch.pick(UNARY), y)
    sketch.keep(sketch.apply("pad", y, sketch.pick([0, 1]), pad_widths=[0, 2]))


def outer_product(sketch: Sketch) -> None:
    """Multiply a column by a row with `matmul`."""
    x = _float(sketch)
    if sketch.elements((*x.shape, x.shape[-1])) > sketch.cap:
        raise Unfit
    column = sketch.apply("broadcast", x, is_broadcast_dim=[*[False] * x.rank, True])
    row = sketch.apply("broadcast", x, is_broadcast_dim=[*[False] * (x.rank - 1), True, False])
    sketch.keep(sketch.apply("matmul", column, row))


def round_trip(sketch: Sketch) -> None:
    """Cast, move or reshape there and back."""
    x = sketch.tensor()
    match sketch.pick(["cast", "permute", "reshape"]):
        case "cast":
            middle = sketch.apply("cast", x, dtype=sketch.dtype())
            sketch.keep(sketch.apply("cast", middle, dtype=x.dtype))
        case "permute":
            sketch.keep(permute(sketch, permute(sketch, x)))
        case _:
            sketch.keep(sketch.apply("reshape", reshape(sketch, x), new_shape=x.shape))


def twin(sketch: Sketch) -> None:
    """Apply one operation twice: an expression to share."""
    x = sketch.tensor()
    op = sketch.pick(["neg", "abs", "add"])
    operands = [x, 2] if op == "add" else [x]
    first, second = (sketch.apply(op, *operands) for _ in range(2))
    sketch.keep(sketch.apply("mul", first, second))


def grouped_product(sketch: Sketch) -> None:
    """Multiply groups of rows, of columns or of summed elements, some by scales of f8."""
    dtype = sketch.pick([BF16, F16, F32, F8E4M3])
    rows, inner, columns = (dim(sketch.pick([8, 16, 24, 64, 100])) for _ in range(3))
    groups = dim(sketch.count(1, 5))
    form = sketch.pick(["rows", "columns", "sums"])
    left = fresh(sketch, dtype, (*([groups] if form == "columns" else []), rows, inner))
    right = fresh(sketch, dtype, (*([groups] if form == "rows" else []), inner, columns))
    name = sketch.builder.fresh_name("ends")
    ends = sketch.builder.input(name, sketch.pick([I32, I64]), (groups,))
    operands = [left, right, ends]
    if dtype == F8E4M3:
        operands += [fresh(sketch, F32, (dim(1),)), fresh(sketch, F32, (dim(1),))]
    sketch.keep(sketch.apply("grouped_mm", *operands))


def attention(sketch: Sketch) -> None:
    """Attend, causally or not."""
    dtype = sketch.pick([BF16, F16])
    batch, heads, width = (dim(sketch.pick(c)) for c in ([1, 2], [1, 3], [8, 16, 64]))
    queries, keys = (dim(sketch.pick([1, 8, 17, 32])) for _ in range(2))
    q = fresh(sketch, dtype, (batch, heads, queries, width))
    k, v = (fresh(sketch, dtype, (batch, heads, keys, width)) for _ in range(2))
    scale = sketch.pick([None, 0.25])
    causal = sketch.chance(0.4)
    result = sketch.call("sdpfa_fwd", [q, k, v, None, None, None, scale], is_causal=causal)
    sketch.keep(result[0])


def channel_norm(sketch: Sketch) -> None:
    """Apply batch, instance or group norm."""
    x = sketch.tensor(2, 5, where=lambda t: t.dtype.is_float)
    name = sketch.pick(["batch_norm", "instance_norm", "group_norm"])
    channels = (x.shape[1],)
    weight, bias = (
        (fresh(sketch, x.dtype, channels), fresh(sketch, x.dtype, channels))
        if sketch.chance(0.5)
        else (None, None)
    )
    if name == "group_norm":
        groups = [g for g in (1, 2, 4, 8) if sketch.size_of(x.shape[1]) % g == 0]
        sketch.keep(sketch.apply(name, x, weight, bias, num_groups=sketch.pick(groups)))
        return
    results = sketch.call(name, [x, weight, bias, None, None])
    sketch.keep(*(results if sketch.chance(0.4) else results[:1]))


IDIOMS = (
    normalised, norm_gradient, epilogue, transposed, split_and_join, rotated, padded_twice,
    outer_product, round_trip, twin, channel_norm, grouped_product, attention,
)  # fmt: skip


def draw_idiom(sketch: Sketch) -> None:
    """Draw one of the chains."""
    sketch.pick(IDIOMS)(sketch)
