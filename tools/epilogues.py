"""Operations before, between and behind random products, and the outputs made of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import BF16, F8E4M3, F16, F32, I64
from fusec.ir.graph import Value
from tools.operands import draw_operand
from tools.sketch import Sketch, Unfit

UNARY = ("neg", "exp", "relu", "sigmoid", "tanh", "abs", "silu", "gelu", "sin")
JOINS = ("add", "add", "mul", "sub", "maximum")
MOST_RESULTS = 4


def prologue(sketch: Sketch, x: Value) -> Value:
    """Return a product's operand after up to two elementwise operations or a norm of its rows."""
    for _ in range(sketch.weighed({0: 70, 1: 22, 2: 8})):
        match sketch.pick(["unary", "column", "row", "gate", "cast", "norm"]):
            case "unary":
                x = sketch.apply(sketch.pick(["relu", "silu", "neg", "tanh"]), x)
            case "column":
                x = sketch.apply("mul", x, draw_operand(sketch, x.dtype, x.shape[-1:], "g"))
            case "row":
                shape = (*x.shape[:-1], dim(1))
                x = sketch.apply("mul", x, draw_operand(sketch, x.dtype, shape, "g"))
            case "gate":
                x = sketch.apply("mul", x, draw_operand(sketch, x.dtype, x.shape, "g"))
            case "cast":
                wide = sketch.apply("mul", sketch.apply("cast", x, dtype=F32), 0.5)
                x = sketch.apply("cast", wide, dtype=x.dtype)
            case _:
                x = normalised(sketch, x)
    return x


def normalised(sketch: Sketch, x: Value) -> Value:
    """Return x after a norm or a softmax of its rows, computed in f32 and cast back."""
    wide = sketch.apply("cast", x, dtype=F32) if x.dtype.is_half else x
    match sketch.pick(["rms_norm", "layer_norm", "softmax", "unit"]):
        case "softmax":
            y = sketch.apply("softmax", wide, dim=wide.rank - 1)
        case "unit":
            squares = sketch.apply("mul", wide, wide)
            total = sketch.apply("sum", squares, dims=[wide.rank - 1], keepdim=True)
            y = sketch.apply("mul", wide, sketch.apply("rsqrt", sketch.apply("add", total, 1e-3)))
        case name:
            weight = None
            if sketch.chance(0.5):
                weight = draw_operand(sketch, wide.dtype, wide.shape[-1:], "w")
            y = sketch.apply(name, wide, weight, norm_shape=wide.shape[-1:])
    return sketch.apply("cast", y, dtype=x.dtype) if y.dtype != x.dtype else y


def epilogue(sketch: Sketch, y: Value, most: int = 3) -> Value:
    """Return the result of a product after some elementwise operations, or a norm."""
    for _ in range(sketch.weighed({0: 30, 1: 30, 2: 25, most: 15})):
        y = _step(sketch, y)
    return y


def _step(sketch: Sketch, y: Value) -> Value:
    match sketch.weighed(STEPS):
        case "unary":
            return sketch.apply(sketch.pick(UNARY), y)
        case "number":
            return sketch.apply(sketch.pick(["add", "mul"]), y, sketch.pick([0.125, -1.5, 2.0]))
        case "bias":
            return _joined_with(sketch, y, y.shape[-1:], "bias")
        case "rows" if y.rank > 1:
            return _joined_with(sketch, y, (y.shape[-2], dim(1)), "c")
        case "full" | "rows":
            return _joined_with(sketch, y, y.shape[sketch.count(0, max(0, y.rank - 2)) :], "r")
        case "turned" if y.rank > 1:
            order = [*range(y.rank - 2), y.rank - 1, y.rank - 2]
            other = draw_operand(sketch, y.dtype, [y.shape[k] for k in order], "r")
            return sketch.apply("add", y, sketch.apply("permute", other, dims=order))
        case "masked" | "turned":
            test = sketch.apply("gt", draw_operand(sketch, y.dtype, y.shape, "r"), 0)
            return sketch.apply("where", test, y, sketch.pick([0.0, 1.0]))
        case "dropout":
            return sketch.call("dropout", [y, 0.25])[0]
        case "cast":
            return sketch.apply("cast", y, dtype=F32 if y.dtype.is_half else BF16)
        case _:
            return normalised(sketch, y)


def _joined_with(sketch: Sketch, y: Value, shape: Sequence[Dim], name: str) -> Value:
    """Return y joined with an operand, or with what is computed of one and an output, too."""
    other = draw_operand(sketch, y.dtype, shape, name)
    if sketch.chance(0.15):
        other = sketch.apply(sketch.pick(["tanh", "neg", "exp"]), other)
        sketch.keep(other)
    return sketch.apply(sketch.pick(JOINS), y, other)


STEPS = {
    "unary": 20, "number": 12, "bias": 18, "rows": 8, "full": 18, "turned": 5, "masked": 6,
    "dropout": 2, "cast": 12, "norm": 5,
}  # fmt: skip


def draw_results(sketch: Sketch, y: Value, *others: Value) -> None:
    """Keep one to four values made of a result: as it is, cast, moved, reduced, joined."""
    before = len(sketch.tensors)
    count = sketch.weighed({1: 40, 2: 30, 3: 18, MOST_RESULTS: 12})
    kinds = sketch.rng.choices(list(RESULTS), list(RESULTS.values()), k=count)
    for kind in dict.fromkeys(kinds):
        source = sketch.pick([y, y, y, *others])
        with suppress(Unfit):
            sketch.keep(kind(sketch, source))
    if len(sketch.tensors) == before:
        sketch.keep(y)


def _plain(sketch: Sketch, y: Value) -> Value:
    return y


def _cast(sketch: Sketch, y: Value) -> Value:
    other = sketch.pick([t for t in (BF16, F16, F32, F32, F8E4M3) if t != y.dtype])
    return sketch.apply("cast", y, dtype=other)


def _half(sketch: Sketch, y: Value) -> Value:
    scaled = sketch.apply("mul", sketch.apply("cast", y, dtype=F32), 0.5)
    return sketch.apply("cast", scaled, dtype=y.dtype if y.dtype.is_half else BF16)


def _transposed(sketch: Sketch, y: Value) -> Value:
    order = list(range(y.rank))
    if sketch.chance(0.7):
        order[-2:] = reversed(order[-2:])
    else:
        sketch.rng.shuffle(order)
    if order == sorted(order):
        raise Unfit
    return sketch.apply("permute", y, dims=order)


def _transposed_copy(sketch: Sketch, y: Value) -> Value:
    return _transposed(sketch, _half(sketch, y))


def _reshaped(sketch: Sketch, y: Value) -> Value:
    shape: list[Dim] = list(y.shape)
    if len(shape) > 1 and sketch.chance(0.6):
        at = sketch.count(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        last = shape[-1]
        factors = [f for f in (2, 3, 4, 8) if last.is_const and last.value % f == 0]
        factor = sketch.pick(factors)
        shape[-1:] = [dim(last.value // factor), dim(factor)]
    return sketch.apply("reshape", y, new_shape=shape)


def _flipped(sketch: Sketch, y: Value) -> Value:
    return sketch.apply("flip", y, dims=[sketch.count(0, y.rank - 1)])


def _sliced(sketch: Sketch, y: Value) -> Value:
    axis = sketch.count(0, y.rank - 1)
    size = sketch.size_of(y.shape[axis])
    if size < 2 or not y.shape[axis].is_const:
        raise Unfit
    starts, ends, steps = [0] * y.rank, list(y.shape), [1] * y.rank
    starts[axis] = sketch.count(0, size // 2)
    ends[axis] = dim(sketch.count(starts[axis] + 1, size))
    steps[axis] = sketch.pick([1, 1, 2])
    return sketch.apply("slice", y, start_indices=starts, end_indices=ends, strides=steps)


def _padded(sketch: Sketch, y: Value) -> Value:
    return sketch.apply("pad", y, 0, pad_widths=[sketch.count(0, 2), sketch.count(0, 3)])


def _reduced(sketch: Sketch, y: Value, dims: list[int]) -> Value:
    name = sketch.pick(["sum", "sum", "max", "amax", "argmax", "mean"])
    wide = sketch.apply("cast", y, dtype=F32) if y.dtype.is_half else y
    if name == "amax":
        return sketch.apply("max", sketch.apply("abs", wide), dims=dims)
    if name == "argmax":
        return sketch.apply("argmax", wide, dims=dims[:1], keepdim=sketch.chance(0.5))
    return sketch.apply(name, wide, dims=dims, keepdim=sketch.chance(0.3))


def _row_sums(sketch: Sketch, y: Value) -> Value:
    return _reduced(sketch, y, [y.rank - 1])


def _column_sums(sketch: Sketch, y: Value) -> Value:
    first = y.rank - 2 if sketch.chance(0.5) else 0
    return _reduced(sketch, y, list(range(max(0, first), max(1, y.rank - 1))))


def _total(sketch: Sketch, y: Value) -> Value:
    return _reduced(sketch, y, list(range(y.rank)))


def _joined(sketch: Sketch, y: Value) -> Value:
    return sketch.apply("cat", [y, sketch.apply("neg", y)], dim=sketch.count(0, y.rank - 1))


def _scattered(sketch: Sketch, y: Value) -> Value:
    rows = y.shape[0]
    if sketch.size_of(rows) < 1 or y.rank < 2:
        raise Unfit
    name = sketch.builder.fresh_name("rows")
    index = sketch.builder.input(name, I64, (rows,))
    base = draw_operand(sketch, y.dtype, y.shape, "base")
    return sketch.apply("index_add", base, index, y, dim=0)


Result = Callable[[Sketch, Value], Value]
RESULTS: dict[Result, int] = {
    _plain: 34, _cast: 8, _half: 8, _transposed: 12, _transposed_copy: 6, _reshaped: 7, _flipped: 5,
    _sliced: 6, _padded: 2, normalised: 4, _row_sums: 7, _column_sums: 7, _total: 4, _joined: 3,
    _scattered: 1,
}  # fmt: skip
