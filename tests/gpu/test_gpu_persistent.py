"""Kernels that read rows or columns again: softmax, norms and their gradients on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_check import check_on_gpu

from fusec.diagnostics import FusecError
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, DType
from fusec.ir.graph import Fusion, Value
from fusec.ops.builder.build import GraphBuilder

pytestmark = pytest.mark.gpu

Shape = tuple[int, ...]
LENGTHS = (1, 2, 7, 33, 64, 1000, 4097, 8192, 32768, 131072)


def wide(builder: GraphBuilder, x: Value) -> Any:
    return builder.apply("cast", x, dtype=F32) if x.dtype.is_half else x


def narrow(builder: GraphBuilder, value: Any, dtype: DType) -> Any:
    return builder.apply("cast", value, dtype=dtype) if dtype.is_half else value


def begin(name: str, dtype: DType, shape: Shape) -> tuple[GraphBuilder, Value]:
    builder = GraphBuilder(name)
    dims = [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)]
    return builder, builder.input("x", dtype, dims)


def softmax(dtype: DType, shape: Shape, axis: int, op: str = "softmax") -> Fusion:
    builder, x = begin(op, dtype, shape)
    y = builder.apply(op, wide(builder, x), axis)
    builder.output(narrow(builder, y, dtype))
    return builder.finish()


def norm(op: str, dtype: DType, shape: Shape, last: int = 1) -> Fusion:
    """Return a norm over the last axes with a weight (and a bias, for layer norm)."""
    builder, x = begin(op, dtype, shape)
    extents = x.shape[len(shape) - last :]
    given = [builder.input(n, F32, extents) for n in ("w", "b")[: 2 if op == "layer_norm" else 1]]
    y = builder.apply(op, wide(builder, x), list(extents), *given)
    builder.output(narrow(builder, y, dtype))
    return builder.finish()


def standardise(dtype: DType, shape: Shape, dims: tuple[int, ...]) -> Fusion:
    """Return (x - mean) / sqrt(var + eps) over some axes, with the statistics."""
    builder, x = begin("standardise", dtype, shape)
    xf = wide(builder, x)
    var, mean = builder.call("var_mean", [xf], {"dims": dims, "correction": 0, "keepdim": True})
    rstd = builder.apply("rsqrt", builder.apply("add", var, 1e-5))
    y = builder.apply("mul", builder.apply("sub", xf, mean), rstd)
    builder.output(narrow(builder, y, dtype))
    builder.output(mean)
    builder.output(rstd)
    return builder.finish()


@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_rows(op: str, length: int, dtype: DType) -> None:
    shape = (max(3, min(130, (1 << 19) // length)), length)
    fusion = softmax(dtype, shape, 1, op) if "softmax" in op else norm(op, dtype, shape)
    check_on_gpu(fusion)


@pytest.mark.parametrize("length", [700_000, 1 << 20, 262_145])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_rows_that_do_not_fit_on_chip(length: int, dtype: DType) -> None:
    check_on_gpu(standardise(dtype, (2, length), (1,)))
    check_on_gpu(softmax(dtype, (2, length), 1))


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64], ids=str)
@pytest.mark.parametrize(
    "shape", [(64, 1000), (1000, 64), (7, 33), (4097, 5), (512, 8192)], ids=str
)
def test_columns(shape: Shape, dtype: DType) -> None:
    check_on_gpu(softmax(dtype, shape, 0))
    check_on_gpu(standardise(dtype, shape, (0,)))


@pytest.mark.parametrize("rows", [1, 2, 33, 1024, 8192, 40_000])
@pytest.mark.parametrize("columns", [1, 8, 40, 4096])
def test_column_lengths(rows: int, columns: int) -> None:
    if rows * columns > 1 << 24:
        columns = 64
    check_on_gpu(standardise(F32, (rows, columns), (0,)))


MIDDLE: list[tuple[Shape, tuple[int, ...]]] = [
    ((4, 33, 16), (1,)), ((4, 33, 17), (1,)), ((8, 128, 256), (1,)), ((3, 5, 7, 8), (1,)),
    ((3, 5, 7, 8), (2,)), ((3, 5, 7, 8), (1, 2)), ((3, 5, 7, 8), (0, 3)), ((3, 5, 7, 8), (0, 2)),
    ((8, 16, 14, 14), (0, 2, 3)), ((32, 3, 57, 8), (0, 2, 3)), ((4, 6, 32, 32), (2, 3)),
    ((2, 3, 4, 5, 6), (1, 3)), ((2, 3, 4, 5, 6), (0, 2, 4)), ((5, 7, 9), (0, 1, 2)),
    ((1, 1, 64), (1,)), ((16, 1, 64), (0,)), ((1, 300, 1), (1,)), ((64, 1, 1), (1, 2)),
    # Rows that come through a ring in pieces, also halves of pieces.
    ((24, 50, 1024), (0, 2)), ((64, 40, 56, 56), (0, 2, 3)), ((15, 40, 8192), (0, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dims"), MIDDLE, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_any_axes(shape: Shape, dims: tuple[int, ...], dtype: DType) -> None:
    check_on_gpu(standardise(dtype, shape, dims))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(16, 24, 40), (5, 7, 11), (1, 129, 8)], ids=str)
def test_softmax_over_any_axis(op: str, axis: int, shape: Shape) -> None:
    check_on_gpu(softmax(BF16, shape, axis, op))


@pytest.mark.parametrize("last", [1, 2, 3])
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_norms_over_several_axes(op: str, last: int) -> None:
    check_on_gpu(norm(op, F16, (6, 5, 8, 24), last))


def test_large_offsets_do_not_spoil_the_variance() -> None:
    x = (np.random.default_rng(1).normal(0, 1, (64, 4096)) + 300).astype(np.float32)
    check_on_gpu(standardise(F32, (64, 4096), (1,)), inputs={"x": x})
    check_on_gpu(standardise(F32, (4096, 64), (0,)), inputs={"x": x.T.copy()})


@pytest.mark.parametrize("axis", [0, 1])
def test_masked_rows(axis: int) -> None:
    """Rows with -inf, rows of nothing but -inf (whose softmax is NaN), and NaN."""
    x = np.random.default_rng(2).normal(0, 2, (64, 64)).astype(np.float32)
    x[np.triu_indices(64, 1)] = -np.inf
    x[7], x[9, 9], x[11, 3] = -np.inf, np.nan, np.inf
    x = x if axis else x.T.copy()
    (found,) = check_on_gpu(softmax(F32, (64, 64), axis), inputs={"x": x}).outputs.values()
    rows = found if axis else found.T
    assert np.isnan(rows[[7, 9, 11]]).all()
    assert not np.isnan(np.delete(rows, [7, 9, 11], axis=0)).any()


def test_a_mask_that_is_broadcast() -> None:
    builder = GraphBuilder("masked")
    b, h, q, k = (builder.declare_dim(n, e) for n, e in zip("BHQK", (3, 4, 17, 129), strict=True))
    scores, keep = builder.input("scores", BF16, [b, h, q, k]), builder.input("keep", BOOL, [b, k])
    bias = builder.input("bias", F32, [h, 1, k])
    mask = builder.apply("broadcast", keep, is_broadcast_dim=[False, True, True, False])
    scaled = builder.apply("add", builder.apply("mul", wide(builder, scores), 0.125), bias)
    y = builder.apply("softmax", builder.apply("where", mask, scaled, -1e9), -1)
    builder.output(narrow(builder, y, BF16))
    check_on_gpu(builder.finish(), scheduler="inner_persistent")


def test_softmax_of_a_permuted_and_reshaped_tensor() -> None:
    builder, x = begin("permuted", BF16, (4, 6, 40, 24))
    moved = builder.apply("permute", x, dims=[0, 2, 1, 3])
    flat = builder.apply(
        "reshape", moved, new_shape=[*moved.shape[:2], moved.shape[2] * moved.shape[3]]
    )
    y = builder.apply("softmax", wide(builder, flat), -1)
    builder.output(narrow(builder, y, BF16))
    check_on_gpu(builder.finish())


def test_reductions_of_reductions() -> None:
    """Three phases: a maximum, a sum of what it shifts, a sum of what that normalises."""
    builder, x = begin("phases", F32, (100, 777))
    y = builder.apply("softmax", x, 1)
    entropy = builder.apply("mul", y, builder.apply("log", builder.apply("add", y, 1e-6)))
    total = builder.apply("sum", entropy, dims=[1], keepdim=True)
    builder.output(builder.apply("mul", y, total))
    builder.output(builder.apply("squeeze", total, dims=[1]))
    check_on_gpu(builder.finish())


def layer_norm_backward(
    dtype: DType, rows: int, columns: int, *, outer: tuple[str, ...] = ("dw", "db")
) -> Fusion:
    """Return the gradients of layer norm: sums along rows and down columns of the same data."""
    builder = GraphBuilder("backward")
    b, h = builder.declare_dim("B", rows), builder.declare_dim("H", columns)
    dy, x = builder.input("dy", dtype, [b, h]), builder.input("x", dtype, [b, h])
    w = builder.input("w", F32, [h])
    mean, rstd = builder.input("mean", F32, [b, 1]), builder.input("rstd", F32, [b, 1])
    dyf = wide(builder, dy)
    xn = builder.apply("mul", builder.apply("sub", wide(builder, x), mean), rstd)
    dxn = builder.apply("mul", dyf, w)
    first = builder.apply("mean", builder.apply("mul", dxn, xn), dims=[1], keepdim=True)
    second = builder.apply("mean", dxn, dims=[1], keepdim=True)
    inner = builder.apply("add", builder.apply("mul", xn, first), second)
    dx = builder.apply("mul", builder.apply("sub", dxn, inner), rstd)
    builder.output(narrow(builder, dx, dtype))
    if "dw" in outer:
        builder.output(builder.apply("sum", builder.apply("mul", dyf, xn), dims=[0]))
    if "db" in outer:
        builder.output(builder.apply("sum", dyf, dims=[0]))
    return builder.finish()


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize(
    "shape",
    [(1, 8), (7, 33), (129, 1000), (1024, 1024), (333, 4096), (8192, 256), (64, 8192)],
    ids=str,
)
def test_gradients_of_layer_norm(shape: tuple[int, int], dtype: DType) -> None:
    check_on_gpu(layer_norm_backward(dtype, *shape), repeats=2)


def test_gradients_in_one_reading() -> None:
    check_on_gpu(
        layer_norm_backward(BF16, 2048, 2048), scheduler="inner_outer_persistent", repeats=5
    )
    check_on_gpu(layer_norm_backward(BF16, 2048, 1024, outer=("db",)), repeats=2)


def test_gradients_are_built_for_one_number_of_rows() -> None:
    with pytest.raises(FusecError, match="not compiled for these sizes: `B == 512`"):
        check_on_gpu(layer_norm_backward(BF16, 512, 1024), run_sizes={"B": 100})


@pytest.mark.parametrize("rows", [1, 5, 1025])
def test_rows_at_other_sizes_than_compiled_for(rows: int) -> None:
    check_on_gpu(norm("layer_norm", BF16, (128, 4096)), run_sizes={"D0": rows})
    check_on_gpu(softmax(F32, (128, 300), 1), run_sizes={"D0": rows})


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0, 0), (3, 0, 4)], ids=str)
def test_empty_tensors(shape: Shape) -> None:
    for axis in range(len(shape)):
        check_on_gpu(softmax(F32, shape, axis))
        check_on_gpu(standardise(F32, shape, (axis,)))


def test_an_input_with_padded_rows() -> None:
    builder = GraphBuilder("padded")
    b, h = builder.declare_dim("B", 77), builder.declare_dim("H", 515)
    x = builder.input("x", BF16, [b, h], contiguity=[False, True])
    builder.output(narrow(builder, builder.apply("softmax", wide(builder, x), 1), BF16))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("axis", [0, 1])
def test_a_transposed_input(axis: int) -> None:
    builder = GraphBuilder("transposed")
    b, h = builder.declare_dim("B", 120), builder.declare_dim("H", 264)
    x = builder.input("x", F32, [b, h], stride_order=[0, 1])
    builder.output(builder.apply("softmax", x, axis))
    check_on_gpu(builder.finish())


def test_channels_last() -> None:
    """Batch norm of an NHWC tensor: statistics over all axes but the innermost in memory."""
    builder = GraphBuilder("nhwc")
    shape = [builder.declare_dim(n, e) for n, e in zip("NCHW", (8, 24, 13, 15), strict=True)]
    x = builder.input("x", F16, shape, stride_order=[3, 0, 2, 1])
    xf = wide(builder, x)
    var, mean = builder.call(
        "var_mean", [xf], {"dims": [0, 2, 3], "correction": 0, "keepdim": True}
    )
    rstd = builder.apply("rsqrt", builder.apply("add", var, 1e-5))
    y = builder.apply("mul", builder.apply("sub", xf, mean), rstd)
    builder.output(narrow(builder, y, F16), stride_order=[3, 0, 2, 1])
    builder.output(mean)
    check_on_gpu(builder.finish())


def test_running_statistics_are_updated_in_place() -> None:
    """Batch norm in training: the statistics of the batch are mixed into inputs."""
    builder = GraphBuilder("training")
    n, c, s = (builder.declare_dim(k, e) for k, e in (("N", 16), ("C", 12), ("S", 100)))
    x = builder.input("x", F32, [n, c, s])
    old_mean, old_var = builder.input("old_mean", F32, [c]), builder.input("old_var", F32, [c])
    var, mean = builder.call("var_mean", [x], {"dims": [0, 2], "correction": 0})
    for old, new in ((old_mean, mean), (old_var, var)):
        kept = builder.apply("mul", old, 0.9)
        mixed = builder.apply("add", kept, builder.apply("mul", new, 0.1))
        builder.output(mixed, alias=old)
    wide_mean = builder.apply("broadcast", mean, is_broadcast_dim=[True, False, True])
    wide_old = builder.apply("broadcast", old_var, is_broadcast_dim=[True, False, True])
    y = builder.apply("sub", x, wide_mean)
    builder.output(builder.apply("mul", y, builder.apply("rsqrt", builder.apply("abs", wide_old))))
    check_on_gpu(builder.finish(), repeats=2)
