"""Random GEMMs with what stands before, between and behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import BF16, F8E4M3, F16, F32, I8, I32, I64, DType
from fusec.ir.graph import Value
from tools.epilogues import draw_results, epilogue, prologue
from tools.operands import PRODUCT_DTYPES, draw_operand, mostly_aligned, named, ragged
from tools.sketch import Sketch, Unfit

MOST_WORK = 1 << 22
"""Multiplications of a GEMM: the fp64 reference and the emulator do them one by one."""


def gemm(sketch: Sketch) -> None:
    """Draw one GEMM."""
    y = sketch.weighed(FORMS)(sketch)
    y = epilogue(sketch, y)
    draw_results(sketch, y)


def gemm_chain(sketch: Sketch) -> None:
    """Draw two GEMMs: one behind the other, or two that read the same operand."""
    dtype = sketch.weighed(PRODUCT_DTYPES)
    m, n, k = _extents(sketch)
    x = prologue(sketch, draw_operand(sketch, dtype, (m, k), "x"))
    first = multiply(sketch, x, n)
    if sketch.chance(0.5):
        # SwiGLU and its like.
        second = multiply(sketch, x, n)
        gated = sketch.apply(sketch.pick(["silu", "sigmoid", "relu", "gelu"]), first)
        joined = sketch.apply(sketch.pick(["mul", "add"]), gated, second)
        y = epilogue(sketch, joined, 2) if sketch.chance(0.5) else joined
        if sketch.chance(0.3):
            y = multiply(sketch, y, dim(mostly_aligned(sketch, 0.6)))
        return draw_results(sketch, y, first, second)
    between = epilogue(sketch, first)
    if between.dtype != dtype:
        between = sketch.apply("cast", between, dtype=dtype)
    y = epilogue(sketch, multiply(sketch, between, dim(mostly_aligned(sketch, 0.6))), 2)
    return draw_results(sketch, y, between)


def grouped_gemm(sketch: Sketch) -> None:
    """Draw a product of groups of rows, of columns or of summed elements, some by scales of f8."""
    dtype = sketch.pick([BF16, BF16, F16, F32, F8E4M3])
    m, n, k = _extents(sketch)
    groups = dim(sketch.count(1, 5))
    form = sketch.pick(["rows", "rows", "columns", "sums"])
    a = draw_operand(sketch, dtype, (*([groups] if form == "columns" else []), m, k), "a")
    columns = (*([groups] if form == "rows" else []), n, k)
    b = draw_operand(sketch, dtype, columns, "b")
    order = [*range(b.rank - 2), b.rank - 1, b.rank - 2]
    ends = sketch.builder.input("ends", sketch.pick([I32, I64]), (groups,))
    operands = [a, sketch.apply("permute", b, dims=order), ends]
    if dtype == F8E4M3:
        operands += [sketch.builder.input(f"scale_{s}", F32, (dim(1),)) for s in "ab"]
    y = sketch.apply("grouped_mm", *operands)
    draw_results(sketch, epilogue(sketch, y))


def _extents(sketch: Sketch) -> tuple[Dim, Dim, Dim]:
    """Return rows, columns and summed elements of a GEMM that is not too much work."""
    while True:
        m, n, k = ragged(sketch), mostly_aligned(sketch, 0.65), mostly_aligned(sketch, 0.75)
        if sketch.chance(0.08):
            k *= sketch.pick([4, 9])  # long sums are split
        if m * n * k <= MOST_WORK:
            return named(sketch, "M", m), named(sketch, "N", n), named(sketch, "K", k)


def multiply(sketch: Sketch, x: Value, n: Dim) -> Value:
    """Return the product of a matrix, or of several, with a new weight."""
    k = x.shape[-1]
    match sketch.pick(["linear", "plain", "turned", "turned"]):
        case "linear":
            weight = draw_operand(sketch, x.dtype, (n, k), "w")
            bias = draw_operand(sketch, x.dtype, (n,), "bias") if sketch.chance(0.3) else None
            return sketch.apply("linear", x, weight, bias)
        case "plain":
            return sketch.apply("matmul", x, draw_operand(sketch, x.dtype, (k, n), "w"))
        case _:
            weight = draw_operand(sketch, x.dtype, (n, k), "w")
            return sketch.apply("matmul", x, sketch.apply("permute", weight, dims=[1, 0]))


def _plain(sketch: Sketch) -> Value:
    dtype = sketch.weighed(PRODUCT_DTYPES)
    m, n, k = _extents(sketch)
    return multiply(sketch, prologue(sketch, draw_operand(sketch, dtype, (m, k), "x")), n)


def _transposed(sketch: Sketch) -> Value:
    """Return a product of operands that both lie the other way round."""
    dtype = sketch.weighed(PRODUCT_DTYPES)
    m, n, k = _extents(sketch)
    a = sketch.apply("permute", draw_operand(sketch, dtype, (k, m), "a"), dims=[1, 0])
    b = draw_operand(sketch, dtype, (k, n), "b")
    return sketch.apply("matmul", a, prologue(sketch, b))


def _batched(sketch: Sketch) -> Value:
    """Return a product of batches, some of them shared, expanded or of several dims."""
    dtype = sketch.weighed(PRODUCT_DTYPES)
    batch = [dim(sketch.pick([1, 2, 3, 5]))]
    if sketch.chance(0.3):
        batch.append(dim(sketch.pick([1, 2, 3])))
    m, n, k = _extents(sketch)
    if sketch.elements((*batch, m, n, k)) > MOST_WORK:
        raise Unfit
    a = prologue(sketch, draw_operand(sketch, dtype, (*batch, m, k), "a"))
    match sketch.pick(["own", "own", "shared", "ones", "expanded"]):
        case "shared":
            return multiply(sketch, a, n)
        case "ones":
            ones = [dim(1)] * len(batch)
            return sketch.apply("matmul", a, draw_operand(sketch, dtype, (*ones, k, n), "b"))
        case "expanded":
            one = draw_operand(sketch, dtype, (dim(1), *batch[1:], k, n), "b")
            return sketch.apply("matmul", a, sketch.apply("expand", one, shape=[*batch, k, n]))
        case _:
            shape, swaps = [*batch, k, n], sketch.chance(0.5)
            if swaps:
                shape[-2:] = [n, k]
            b = draw_operand(sketch, dtype, shape, "b")
            order = [*range(b.rank - 2), b.rank - 1, b.rank - 2]
            return sketch.apply("matmul", a, sketch.apply("permute", b, dims=order) if swaps else b)


def _vector(sketch: Sketch) -> Value:
    """Return a product with one or few rows."""
    dtype = sketch.weighed(PRODUCT_DTYPES)
    n, k = dim(mostly_aligned(sketch, 0.6)), dim(mostly_aligned(sketch, 0.7))
    if sketch.chance(0.3):
        return sketch.apply(
            "matmul",
            draw_operand(sketch, dtype, (k,), "x"),
            draw_operand(sketch, dtype, (k, n), "w"),
        )
    rows = dim(sketch.count(1, 4))
    return multiply(sketch, prologue(sketch, draw_operand(sketch, dtype, (rows, k), "x")), n)


def _scaled(sketch: Sketch) -> Value:
    """Return a product of 8-bit floats by scales: one, of rows and columns, or of blocks."""
    m, n, k = _extents(sketch)
    a = draw_operand(sketch, F8E4M3, (m, k), "a")
    b = sketch.apply("permute", draw_operand(sketch, F8E4M3, (n, k), "b"), dims=[1, 0])
    blocks = k.is_const and k.value % 128 == 0
    match sketch.pick(["one", "rows", *(["blocks"] if blocks else [])]):
        case "one":
            shapes: Sequence[Sequence[Dim]] = [(dim(1),), (dim(1),)]
        case "rows":
            shapes = [(m, dim(1)), (dim(1), n)]
        case _:
            count = dim(k.value // 128)
            shapes = [(m, count), (count, n)]
    scales = [sketch.builder.input(f"scale_{s}", F32, x) for s, x in zip("ab", shapes, strict=True)]
    attributes = {"dtype": F32} if sketch.chance(0.3) else {}
    return sketch.apply("scaled_mm", a, b, *scales, **attributes)


def _quantized(sketch: Sketch) -> Value:
    """Return a product with a weight of 8-bit integers and a scale for each column."""
    dtype: DType = sketch.pick([BF16, F16])
    m, n, k = _extents(sketch)
    x = draw_operand(sketch, dtype, (m, k), "x")
    weight = sketch.apply("cast", draw_operand(sketch, I8, (n, k), "w"), dtype=dtype)
    if sketch.chance(0.5):
        weight = sketch.apply("mul", weight, draw_operand(sketch, dtype, (n, dim(1)), "s"))
    return sketch.apply("matmul", x, sketch.apply("permute", weight, dims=[1, 0]))


FORMS: dict[Callable[[Sketch], Value], int] = {
    _plain: 50, _transposed: 10, _batched: 18, _vector: 8, _scaled: 8, _quantized: 6,
}  # fmt: skip
