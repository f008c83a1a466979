"""Transposes, windows, reshapes, layouts of inputs and outputs, in-place outputs and views."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gpu_check import check_on_gpu

from fusec.ir.dtype import BF16, BOOL, F8E4M3, F16, F32, F64, I8, I32, I64, DType
from fusec.ops.builder.build import GraphBuilder

pytestmark = pytest.mark.gpu

Shape = tuple[int, ...]


def begin(
    name: str, dtype: DType, shape: Shape, *, fixed: bool = False, **layout: Any
) -> tuple[GraphBuilder, Any]:
    """Return a builder with one input, of named dims or of `fixed` sizes."""
    builder = GraphBuilder(name)
    dims = shape if fixed else [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)]
    return builder, builder.input("x", dtype, dims, **layout)


# -- transposes


@pytest.mark.parametrize("dtype", [BF16, F32, F64, I8, BOOL, F8E4M3], ids=str)
@pytest.mark.parametrize(
    "shape",
    [(64, 64), (63, 65), (8, 4096), (4096, 8), (1000, 33), (1, 70), (129, 257), (7, 7)],
    ids=str,
)
def test_transposes(shape: Shape, dtype: DType) -> None:
    builder, x = begin("transposed", dtype, shape)
    builder.output(builder.apply("permute", x, dims=[1, 0]))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("shape", [(40, 24, 72), (5, 33, 9)], ids=str)
def test_permutes_of_rank_3(order: tuple[int, ...], shape: Shape) -> None:
    builder, x = begin("permuted", F32, shape)
    builder.output(builder.apply("relu", builder.apply("permute", x, dims=order)))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize(
    "order",
    [(0, 2, 1, 3), (3, 2, 1, 0), (0, 3, 1, 2), (0, 2, 3, 1), (1, 3, 0, 2), (2, 3, 0, 1)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_permutes_of_rank_4(order: tuple[int, ...], dtype: DType) -> None:
    builder, x = begin("permuted", dtype, (6, 16, 33, 40))
    builder.output(builder.apply("neg", builder.apply("permute", x, dims=order)))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("order", [(4, 3, 2, 1, 0), (0, 2, 1, 4, 3), (1, 0, 4, 2, 3)], ids=str)
def test_permutes_of_rank_5(order: tuple[int, ...]) -> None:
    builder, x = begin("permuted", F16, (3, 5, 8, 9, 16))
    builder.output(builder.apply("abs", builder.apply("permute", x, dims=order)))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("shape", [(64, 128), (65, 31)], ids=str)
def test_a_tensor_and_its_transpose(shape: Shape) -> None:
    """Straight and crossed loads, a row vector and a column vector, two outputs."""
    builder = GraphBuilder("crossed")
    m, n = builder.declare_dim("M", shape[0]), builder.declare_dim("N", shape[1])
    x, y = builder.input("x", BF16, [m, n]), builder.input("y", F32, [n, m])
    row, column = builder.input("row", F32, [n]), builder.input("column", F32, [m, 1])
    total = builder.apply(
        "add", builder.apply("cast", x, dtype=F32), builder.apply("permute", y, dims=[1, 0])
    )
    builder.output(builder.apply("mul", builder.apply("add", total, row), column))
    builder.output(builder.apply("cast", total, dtype=BF16))
    check_on_gpu(builder.finish())


def test_both_orders_are_stored() -> None:
    builder, x = begin("both", F32, (70, 90))
    y = builder.apply("exp", x)
    builder.output(y)
    builder.output(builder.apply("permute", y, dims=[1, 0]))
    check_on_gpu(builder.finish())


# -- windows


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        ((0, 0), (40, 64), (1, 1)), ((1, 3), (39, 61), (1, 1)), ((0, 0), (40, 64), (2, 3)),
        ((5, 1), (6, 2), (1, 1)), ((3, 8), (40, 64), (7, 8)), ((0, 8), (40, 24), (1, 1)),
        ((10, 0), (10, 64), (1, 1)),
    ],
    ids=str,
)  # fmt: skip
def test_slices(start: Shape, end: Shape, step: Shape, dtype: DType) -> None:
    builder, x = begin("sliced", dtype, (40, 64))
    y = builder.apply("slice", x, start_indices=start, end_indices=end, strides=step)
    builder.output(builder.apply("neg", y))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("dtype", [BF16, F32, I32], ids=str)
@pytest.mark.parametrize(
    "widths",
    [(1, 2), (0, 8), (8, 8), (3, 0, 1, 5), (-3, 2), (2, -5, -1, -1), (0, 0, 2, 2)],
    ids=str,
)
@pytest.mark.parametrize("value", [0, 3])
def test_pads(widths: Shape, value: int, dtype: DType) -> None:
    builder, x = begin("padded", dtype, (40, 64))
    y = builder.apply("pad", builder.apply("neg", x), list(widths), value)
    builder.output(builder.apply("mul", y, 2))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("extents", [(8, 16), (3, 5, 9), (1, 1), (8, 0, 8)], ids=str)
def test_cats(axis: int, extents: Shape) -> None:
    builder = GraphBuilder("joined")
    pieces: list[Any] = []
    for k, extent in enumerate(extents):
        shape = [6, 10, 24]
        shape[axis] = extent
        pieces.append(builder.input(f"x{k}", F32, shape))
    joined = builder.apply("cat", [builder.apply("neg", pieces[0]), *pieces[1:]], dim=axis)
    builder.output(builder.apply("mul", joined, 3.0))
    check_on_gpu(builder.finish())


def test_rotated_halves() -> None:
    builder, x = begin("rope", BF16, (2, 4, 33, 64), fixed=True)
    parts = [
        builder.apply("slice", x, start_indices=[0, 0, 0, k], end_indices=[2, 4, 33, k + 32])
        for k in (32, 0)
    ]
    turned = builder.apply("cat", [builder.apply("neg", parts[0]), parts[1]], dim=3)
    cos = builder.input("cos", F32, [33, 64])
    total = builder.apply("add", builder.apply("mul", x, cos), builder.apply("mul", turned, cos))
    builder.output(builder.apply("cast", total, dtype=BF16))
    check_on_gpu(builder.finish())


def test_nan_beside_a_pad_does_not_leak() -> None:
    builder, x = begin("padded", F32, (8, 8))
    builder.output(builder.apply("pad", builder.apply("log", x), [2, 2, 2, 2], 1.0))
    given = np.full((8, 8), -1.0, np.float32)
    (found,) = check_on_gpu(builder.finish(), inputs={"x": given}).outputs.values()
    assert np.isnan(found[2:-2, 2:-2]).all()
    assert (found[:2] == 1).all()


# -- reshapes


RESHAPES: list[tuple[Shape, Shape]] = [
    ((24, 32), (768,)), ((768,), (24, 32)), ((6, 4, 32), (24, 32)), ((24, 32), (6, 4, 8, 4)),
    ((35, 9), (15, 21)), ((6, 35), (14, 15)), ((8, 1, 4), (4, 8)), ((1,), (1, 1, 1)), ((), (1, 1)),
    ((7, 13), (91,)), ((2, 3, 5, 7), (7, 30)),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), RESHAPES, ids=str)
def test_reshapes(before: Shape, after: Shape) -> None:
    builder = GraphBuilder("reshaped")
    x = builder.input("x", F32, before)
    y = builder.apply("reshape", builder.apply("exp", x), new_shape=after)
    builder.output(builder.apply("add", y, 1.0))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("order", [(1, 0), (0, 1)], ids=str)
def test_reshapes_after_permutes(order: Shape) -> None:
    builder, x = begin("heads", BF16, (6, 48), fixed=True)
    split = builder.apply("reshape", x, new_shape=[x.shape[0], 4, 12])
    turned = builder.apply("permute", split, dims=[1, 0, 2] if order == (1, 0) else [0, 2, 1])
    flat = builder.apply("reshape", turned, new_shape=[-1])
    builder.output(builder.apply("neg", flat))
    check_on_gpu(builder.finish())


# -- layouts of inputs


LAYOUTS: list[dict[str, Any]] = [
    {"stride_order": [0, 1]},
    {"contiguity": [False, True]},
    {"contiguity": [True, False]},
    {"contiguity": [False, False]},
    {"contiguity": [None, True]},
    {"contiguity": [True, None]},
    {"contiguity": [None, None]},
    {"contiguity": [False, True], "stride_order": [0, 1]},
    {"strides": [128, 1]},
    {"strides": [130, 2]},
    {"strides": [0, 1]},
    {"strides": [1, 41]},
    {"strides": [3, 0]},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("shape", [(40, 64), (33, 7)], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_layouts_of_inputs(layout: dict[str, Any], shape: Shape, dtype: DType) -> None:
    builder, x = begin("laid_out", dtype, shape, **layout)
    y = builder.input("y", F32, x.shape)
    total = builder.apply("add", x, y)
    builder.output(total)
    builder.output(builder.apply("sum", total, dims=[1]))
    builder.output(builder.apply("max", total, dims=[0]))
    check_on_gpu(builder.finish())


# -- layouts of outputs, views, in place


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_stride_orders_of_outputs(order: Shape) -> None:
    builder, x = begin("ordered", F32, (12, 20, 36))
    builder.output(builder.apply("exp", x), stride_order=order)
    builder.output(builder.apply("sum", x, dims=[0], keepdim=True), stride_order=order)
    check_on_gpu(builder.finish())


def test_outputs_that_are_views() -> None:
    builder, x = begin("views", BF16, (16, 24), fixed=True)
    builder.output(builder.apply("permute", x, dims=[1, 0]))
    builder.output(builder.apply("reshape", x, new_shape=[4, 96]))
    builder.output(
        builder.apply("slice", x, start_indices=[3, 2], end_indices=[9, 22], strides=[2, 5])
    )
    builder.output(builder.apply("expand", x, shape=[3, 16, 24]))
    builder.output(builder.apply("broadcast", x, is_broadcast_dim=[False, True, False]))
    builder.output(builder.apply("set", x))
    builder.output(x)
    check_on_gpu(builder.finish())


def test_views_of_a_computed_tensor() -> None:
    builder, x = begin("views", F32, (16, 24), fixed=True)
    y = builder.apply("exp", x)
    builder.output(y)
    builder.output(builder.apply("permute", y, dims=[1, 0]))
    builder.output(builder.apply("reshape", y, new_shape=[384]))
    builder.output(builder.apply("slice", y, start_indices=[0, 4], end_indices=[16, 8]))
    check_on_gpu(builder.finish())


def test_outputs_of_several_shapes_and_dtypes() -> None:
    builder = GraphBuilder("several")
    b, h = builder.declare_dim("B", 45), builder.declare_dim("H", 72)
    x, w = builder.input("x", BF16, [b, h]), builder.input("w", F32, [h])
    total = builder.apply("add", x, w)
    builder.output(total)
    builder.output(builder.apply("cast", total, dtype=F16))
    builder.output(builder.apply("gt", total, 0.0))
    builder.output(builder.apply("exp", w))
    builder.output(builder.apply("sum", total, dims=[1]))
    builder.output(builder.apply("cast", builder.apply("floor", total), dtype=I64))
    builder.output(x)
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("size", [1, 33, 4097, 8192])
def test_an_increment_in_place(size: int) -> None:
    builder, x = begin("increment", F32, (size,))
    builder.output(builder.apply("add", x, 1.0), alias=x)
    check_on_gpu(builder.finish(), repeats=3)


def test_adding_the_transpose_in_place() -> None:
    """Each element is read twice, by two threads: no thread may write before the other has read."""
    square = GraphBuilder("symmetric")
    n = square.declare_dim("N", 96)
    x = square.input("x", F32, [n, n])
    square.output(square.apply("add", x, square.apply("permute", x, dims=[1, 0])), alias=x)
    check_on_gpu(square.finish(), repeats=3)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_row_is_normalised_in_place(axis: int) -> None:
    builder, x = begin("inplace", F32, (130, 264))
    builder.output(builder.apply("softmax", x, axis), alias=x)
    check_on_gpu(builder.finish(), repeats=2)


def test_an_input_is_overwritten_and_still_read() -> None:
    """The old value feeds an output, a reduction and a value that is broadcast."""
    builder, x = begin("overwritten", F32, (64, 100))
    builder.output(builder.apply("mul", x, 2.0), alias=x)
    total = builder.apply("sum", x, dims=[0], keepdim=True)
    builder.output(builder.apply("add", x, total))
    builder.output(builder.apply("max", x, dims=[1]))
    check_on_gpu(builder.finish(), repeats=2)


def test_two_inputs_swap_places() -> None:
    builder, x = begin("swap", F32, (300,))
    y = builder.input("y", F32, x.shape)
    builder.output(builder.apply("add", y, 0.5), alias=x)
    builder.output(builder.apply("add", x, 0.5), alias=y)
    check_on_gpu(builder.finish(), repeats=2)


def test_an_output_in_place_of_a_strided_input() -> None:
    builder, x = begin("strided", F32, (31, 33), contiguity=[False, True])
    builder.output(builder.apply("mul", x, 3.0), alias=x)
    check_on_gpu(builder.finish(), repeats=2)


def test_a_rolled_row_in_place() -> None:
    shift = 1
    builder, x = begin("rolled", F32, (8, 40), fixed=True)
    last = builder.apply("slice", x, start_indices=[0, 40 - shift], end_indices=[8, 40])
    first = builder.apply("slice", x, start_indices=[0, 0], end_indices=[8, 40 - shift])
    joined = builder.apply("cat", [last, first], dim=1)
    builder.output(
        builder.apply("reshape", builder.apply("neg", joined), new_shape=list(x.shape)), alias=x
    )
    check_on_gpu(builder.finish(), repeats=2)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,), (3, 0, 4)], ids=str)
def test_movement_of_nothing(shape: Shape) -> None:
    builder, x = begin("empty", F32, shape)
    order = list(range(len(shape)))[::-1]
    builder.output(builder.apply("exp", builder.apply("permute", x, dims=order)))
    builder.output(builder.apply("pad", x, [1, 1], 2.0))
    builder.output(builder.apply("cat", [x, builder.apply("neg", x)], dim=0))
    check_on_gpu(builder.finish())


def test_nothing_is_written_in_place() -> None:
    builder, x = begin("empty", F32, (0, 8))
    builder.output(builder.apply("add", x, 1.0), alias=x)
    check_on_gpu(builder.finish())


def test_segment_set_makes_two_kernels() -> None:
    builder, x = begin("parted", F32, (50, 60))
    y = builder.apply("segment_set", builder.apply("exp", x))
    builder.output(builder.apply("add", y, builder.apply("sum", x, dims=[0], keepdim=True)))
    checked = check_on_gpu(builder.finish())
    assert len(checked.schedulers) > 1


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (8,), (3, 5)], ids=str)
def test_a_reshape_of_a_flip(shape: Shape) -> None:
    """Positions counted from the end are divided: the quotient must not become negative."""
    builder = GraphBuilder("turned")
    x = builder.input("x", F32, [int(np.prod(shape)), 3])
    turned = builder.apply("flip", x, dims=[0])
    builder.output(builder.apply("exp", builder.apply("reshape", turned, new_shape=[*shape, 3])))
    split = builder.apply("reshape", x, new_shape=[*shape, 3])
    flipped = builder.apply("flip", split, dims=list(range(len(shape))))
    builder.output(builder.apply("neg", builder.apply("reshape", flipped, new_shape=[-1, 3])))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("dtype", [BF16, F32, I8], ids=str)
@pytest.mark.parametrize("start", [0, 1, 1000])
@pytest.mark.parametrize("shape", [(64, 256), (3, 77)], ids=str)
def test_slices_of_inputs_are_written_in_place(shape: Shape, start: int, dtype: DType) -> None:
    builder, x = begin("update", dtype, (2048, shape[1]), fixed=True)
    rows = builder.input("rows", dtype, shape)
    y = builder.apply("update_slice", x, rows, start_indices=[start, 0])
    builder.output(y, alias="x")
    check_on_gpu(builder.finish(), scheduler="pointwise", repeats=2)
