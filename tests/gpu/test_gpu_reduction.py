"""Reductions on the GPU: every operation, dtypes, axes, row lengths, and rows split over blocks."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_check import check_on_gpu
from graphs import pinned, reduce

from fusec.diagnostics import FusecError
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, DType
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.evaluate import evaluate

pytestmark = pytest.mark.gpu

STATISTICS = ("var", "var_mean", "welford")
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", *STATISTICS)


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)], ids=["outer", "inner", "all"])
@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", [BF16, F32, F64, I32, I64, I8, BOOL], ids=str)
def test_every_operation_and_dtype(op: str, dtype: DType, dims: tuple[int, ...]) -> None:
    # Fewer factors where their product must not overflow.
    shape = (20, 13) if op == "prod" else (96, 264)
    try:
        fusion = reduce(op, dtype, shape, dims)
    except FusecError:
        assert op in STATISTICS
        assert not dtype.is_float
        return
    # A variance may be two passes over what stays on chip.
    free = dims == (0,) or op in STATISTICS
    check_on_gpu(fusion, scheduler=None if free else "reduction")


@pytest.mark.parametrize("op", ["sum", "max", "var_mean"])
@pytest.mark.parametrize("length", [1, 2, 7, 33, 1000, 4097, 8192, 131072])
@pytest.mark.parametrize("others", [1, 3, 257])
@pytest.mark.parametrize("inner", [True, False], ids=["inner", "outer"])
def test_lengths(op: str, length: int, others: int, inner: bool) -> None:
    if length * others > 1 << 24:
        others = 16
    shape = (others, length) if inner else (length, others)
    check_on_gpu(reduce(op, F32, shape, (1,) if inner else (0,)))


@pytest.mark.parametrize("dtype", [BF16, F16, F64, I32], ids=str)
@pytest.mark.parametrize("shape", [(1, 1 << 20), (5, 300_000), (3, 262_147)], ids=str)
@pytest.mark.parametrize("op", ["sum", "min", "var_mean"])
def test_inner_rows_split_over_blocks(op: str, shape: tuple[int, int], dtype: DType) -> None:
    if op == "var_mean" and not dtype.is_float:
        return
    fusion = pinned(reduce(op, dtype, shape, (1,)), "reduction")
    checked = check_on_gpu(fusion, scheduler="reduction", repeats=3)
    (plan,) = checked.compiled.program.plans
    assert plan.parameters.splits > 1


@pytest.mark.parametrize("dtype", [BF16, F32, F64, I64], ids=str)
@pytest.mark.parametrize("shape", [(50_000, 64), (65536, 8), (40_003, 31), (100_000, 1)], ids=str)
@pytest.mark.parametrize("op", ["sum", "max", "var_mean"])
def test_outer_columns_split_over_blocks(op: str, shape: tuple[int, int], dtype: DType) -> None:
    if op == "var_mean" and not dtype.is_float:
        return
    fusion = pinned(reduce(op, dtype, shape, (0,)), "reduction")
    checked = check_on_gpu(fusion, scheduler="reduction", repeats=3)
    (plan,) = checked.compiled.program.plans
    assert plan.parameters.splits > 1


@pytest.mark.parametrize("dtype", [BF16, F32, F64, I64], ids=str)
@pytest.mark.parametrize(
    "shape", [(2, 700_002), (3, 1 << 20), (9, 600_303), (17, 300_000)], ids=str
)
@pytest.mark.parametrize("op", ["sum", "max", "var_mean"])
def test_few_rows_of_many_columns(op: str, shape: tuple[int, int], dtype: DType) -> None:
    if op == "var_mean" and not dtype.is_float:
        return
    check_on_gpu(pinned(reduce(op, dtype, shape, (0,)), "reduction"), scheduler="reduction")


MIXED = [
    ((6, 7, 8), (0, 2)), ((6, 7, 8), (1,)), ((6, 7, 8), (0, 1)), ((16, 8, 4, 8), (0, 2, 3)),
    ((16, 8, 4, 8), (1, 3)), ((5, 3, 9, 2, 7), (0, 2, 4)), ((5, 3, 9, 2, 7), (1, 3)),
    ((32, 64, 28, 28), (0, 2, 3)), ((4, 1, 1000), (0, 2)), ((64, 1, 7), (0,)), ((1, 1, 1), (1,)),
    ((2, 3, 4, 5, 6), (0, 1, 2, 3, 4)), ((100_003,), (0,)), ((1,), (0,)), ((300, 200, 3), (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dims"), MIXED, ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_axes(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> None:
    check_on_gpu(reduce("sum", F32, shape, dims, keepdim=keepdim))
    check_on_gpu(reduce("var_mean", BF16, shape, dims, keepdim=keepdim, correction=0))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (4, 0, 3)], ids=str)
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "any", "all"])
def test_nothing_to_reduce(op: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """A reduction over nothing is its identity; results without elements are not computed."""
    kept = [extent for axis, extent in enumerate(shape) if axis not in dims]
    if op in ("max", "min") and 0 not in kept:
        with pytest.raises(FusecError, match="maximum and minimum of no elements are undefined"):
            reduce(op, F32, shape, dims)
        return
    check_on_gpu(reduce(op, F32, shape, dims))


def test_the_mean_of_nothing_is_nan() -> None:
    builder = GraphBuilder("mean")
    x = builder.input("x", F32, [builder.declare_dim("B", 3), builder.declare_dim("H", 0)])
    builder.output(builder.apply("mean", x, dims=[1]))
    (found,) = check_on_gpu(builder.finish()).outputs.values()
    assert np.isnan(found).all()


@pytest.mark.parametrize("dims", [(0,), (1,)], ids=["outer", "inner"])
@pytest.mark.parametrize("op", ["sum", "max", "min", "prod", "var"])
def test_nan_and_infinity_pass_through(op: str, dims: tuple[int, ...]) -> None:
    x = np.ones((64, 64), np.float32)
    x[3, 5], x[10, 20], x[30, 40] = np.nan, np.inf, -np.inf
    x[50, 51], x[50, 52], x[53, 51] = np.inf, -np.inf, -np.inf
    fusion = reduce(op, F32, (64, 64), dims)
    (found,) = check_on_gpu(fusion, inputs={"x": x}).outputs.values()
    (expected,) = evaluate(fusion, {"x": x}, fusion.hints).values()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    if op != "var":
        np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))
        np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))


def test_all_rows_are_infinite() -> None:
    for op, value in (("max", -np.inf), ("min", np.inf)):
        x = np.full((4, 100), value, np.float32)
        (found,) = check_on_gpu(reduce(op, F32, (4, 100), (1,)), inputs={"x": x}).outputs.values()
        np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("shape", [(37, 1000), (1000, 37), (8, 131072)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_work_before_and_after(shape: tuple[int, int], axis: int) -> None:
    """Several reductions of several inputs, an epilogue of the results, and mixed dtypes."""
    builder = GraphBuilder("around")
    dims = [builder.declare_dim("B", shape[0]), builder.declare_dim("H", shape[1])]
    x, y = builder.input("x", BF16, dims), builder.input("y", F32, dims)
    w = builder.input("w", F32, [dims[1]])
    product = builder.apply("mul", builder.apply("cast", x, dtype=F32), y)
    total = builder.apply("sum", builder.apply("mul", product, w), dims=[axis])
    top = builder.apply("max", builder.apply("abs", product), dims=[axis])
    scaled = builder.apply("div", total, builder.apply("add", top, 1.0))
    builder.output(builder.apply("cast", scaled, dtype=BF16))
    builder.output(top)
    builder.output(builder.apply("any", builder.apply("gt", y, 1.9), dims=[axis]))
    check_on_gpu(builder.finish(), scheduler="reduction")


@pytest.mark.parametrize("axis", [0, 1])
def test_elements_are_stored_beside_the_reduction(axis: int) -> None:
    builder = GraphBuilder("beside")
    dims = [builder.declare_dim("B", 123), builder.declare_dim("H", 456)]
    x = builder.input("x", F16, dims)
    y = builder.apply("exp", builder.apply("cast", x, dtype=F32))
    builder.output(builder.apply("cast", y, dtype=F16))
    builder.output(builder.apply("sum", y, dims=[axis]))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("dims", [(0,), (2,), (0, 1), (1, 2)], ids=str)
def test_reductions_of_moved_elements(dims: tuple[int, ...]) -> None:
    """Sums of a permuted, a sliced, a padded and a reshaped tensor."""
    builder = GraphBuilder("moved")
    x = builder.input("x", F32, [8, 12, 30])
    moved = [
        builder.apply("permute", x, dims=[2, 0, 1]),
        builder.apply(
            "slice", x, start_indices=[1, 0, 3], end_indices=[8, 12, 30], strides=[2, 1, 3]
        ),
        builder.apply("pad", x, [1, 2, 0, 3], 0.5),
        builder.apply("reshape", x, new_shape=[24, 4, 30]),
        builder.apply("cat", [x, builder.apply("neg", x)], dim=2),
    ]
    for value in moved:
        builder.output(builder.apply("sum", value, dims=dims))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("dtype", [I16, U8, BOOL, I32], ids=str)
def test_integer_sums_are_wide(dtype: DType) -> None:
    checked = check_on_gpu(reduce("sum", dtype, (3, 100_000), (1,)))
    (found,) = checked.outputs.values()
    assert found.dtype == np.int64


def test_correction_of_the_variance() -> None:
    for correction in (0, 1, 2):
        check_on_gpu(reduce("var", F32, (16, 64), (1,), correction=correction))
        check_on_gpu(reduce("var", F32, (64, 16), (0,), correction=correction))


def test_means_far_from_zero() -> None:
    """A variance must not be the difference of two large sums."""
    x = (np.random.default_rng(0).normal(0, 1, (8, 8192)) + 1000).astype(np.float32)
    for shape, dims in (((8, 8192), (1,)), ((8192, 8), (0,))):
        given = {"x": x.reshape(shape)}
        checked = check_on_gpu(reduce("var_mean", F32, shape, dims), inputs=given)
        variance = next(iter(checked.outputs.values()))
        exact = given["x"].astype(np.float64).var(axis=dims, ddof=1)
        np.testing.assert_allclose(variance, exact, rtol=1e-3)


def test_other_sizes_than_compiled_for() -> None:
    fusion = reduce("sum", F32, (64, 512), (1,))
    for rows in (1, 63, 65, 1000, 0):
        check_on_gpu(fusion, run_sizes={"D0": rows})
