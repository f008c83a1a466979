"""Column-persistent kernels: where a column stays, refusals, and the kernels on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import assert_builds, estimate, plan_of, refused_rule, run_on_host, text_of

from fusec.ir.dtype import BF16, F16, F32, F64, I64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder


def standardise(dtype: DType, *shape: int, dims: tuple[int, ...] = (0,)) -> Fusion:
    """Return (x - mean) / sqrt(var + eps) down the columns, with the statistics."""
    builder = GraphBuilder("standardise")
    x = builder.input("x", dtype, [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)])
    xf = builder.apply("cast", x, dtype=F32) if dtype.is_half else x
    var, mean = builder.call("var_mean", [xf], {"dims": dims, "correction": 0, "keepdim": True})
    rstd = builder.apply("rsqrt", builder.apply("add", var, 1e-5))
    y = builder.apply("mul", builder.apply("sub", xf, mean), rstd)
    builder.output(builder.apply("cast", y, dtype=dtype) if dtype.is_half else y)
    builder.output(mean)
    builder.output(rstd)
    return builder.finish()


def softmax(dtype: DType, *shape: int, axis: int = 0, alias: bool = False) -> Fusion:
    builder = GraphBuilder("softmax")
    x = builder.input("x", dtype, [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)])
    w = builder.input("w", F32, [x.shape[-1]])
    xf = builder.apply("mul", builder.apply("cast", x, dtype=F32) if dtype.is_half else x, w)
    y = builder.apply("softmax", xf, axis)
    y = builder.apply("cast", y, dtype=dtype) if dtype.is_half else y
    builder.output(y, alias=x if alias else None)
    return builder.finish()


@pytest.mark.parametrize("rows", [33, 512, 1024, 8192])
@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
def test_kernels_build_without_spills(rows: int, dtype: DType) -> None:
    assert_builds(plan_of("outer_persistent", standardise(dtype, rows, 4096)))
    if dtype != F64:
        assert_builds(plan_of("outer_persistent", softmax(dtype, rows, 777)))


def gathered_beside(rows: int, columns: int) -> Fusion:
    """Return x - mean down the columns, and rows of another tensor at places that are data."""
    builder = GraphBuilder("gathered")
    shape = [rows, columns]
    x, y = builder.input("x", F32, shape), builder.input("y", F32, shape)
    _, mean = builder.call("var_mean", [x], {"dims": [0], "correction": 0, "keepdim": True})
    builder.output(builder.apply("sub", x, mean))
    builder.output(builder.apply("gather", y, builder.input("at", I64, shape), dim=0))
    return builder.finish()


def test_blocks_that_hold_much_may_use_many_registers() -> None:
    plan = plan_of("outer_persistent", gathered_beside(249, 4))
    assert "__launch_bounds__(kThreads, " in text_of(plan)
    assert_builds(plan)
    assert "__launch_bounds__(kThreads)" in text_of(
        plan_of("outer_persistent", standardise(F32, 33, 4096))
    )


@pytest.mark.parametrize(
    "fusion",
    [
        standardise(F32, 37, 40),
        standardise(BF16, 65, 72),
        standardise(F64, 5, 3),
        standardise(F32, 3, 17, 10, dims=(1,)),
        standardise(F32, 4, 9, 16, dims=(0, 1)),
        softmax(F16, 130, 24),
        softmax(F32, 40, 33, alias=True),
        softmax(BF16, 2, 30, 8, axis=1),
        standardise(F32, 3000, 4),
    ],
    ids=lambda f: f"{f.name}-{'x'.join(str(d.default) for d in f.dims)}",
)
def test_kernels_compute_the_fusion(fusion: Fusion, tmp_path: Path) -> None:
    run_on_host("outer_persistent", fusion, tmp_path)


@pytest.mark.parametrize(("rows", "storage"), [(64, "registers"), (100_000, "none")])
def test_short_columns_stay_in_registers(rows: int, storage: str) -> None:
    plan = plan_of("outer_persistent", standardise(BF16, rows, 1024))
    assert plan.parameters.storage == storage


def test_long_columns_cost_more_readings() -> None:
    near, far = (estimate("outer_persistent", standardise(F32, n, 1024)) for n in (64, 100_000))
    results = 2 * 1024 * 4
    assert near.bytes == 2 * 64 * 1024 * 4 + results
    assert far.bytes > 1.5 * (2 * 100_000 * 1024 * 4 + results)


def test_threads_cover_a_column() -> None:
    for rows in (2, 33, 1000, 20_000):
        for columns in (3, 7, 64, 4096):
            plan = plan_of("outer_persistent", standardise(F32, rows, columns))
            p, kernel = plan.parameters, plan.kernels[0]
            assert p.threads_y * p.chunks >= rows
            assert int(np.prod(kernel.block)) % 32 == 0
            blocks = kernel.grid[0].evaluate({"D1": columns, "D0": rows})
            assert blocks * p.threads_x * p.vector_width >= columns


def refusal(make: Callable[[GraphBuilder, Any], Any]) -> Fusion:
    builder = GraphBuilder("refused")
    x = builder.input("x", F32, [16, 32])
    for value in make(builder, x):
        builder.output(value)
    return builder.finish()


def rows(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("softmax", x, 1)]


def only_results(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("sum", x, dims=[0])]


def both(b: GraphBuilder, x: Any) -> Any:
    totals = [b.apply("sum", x, dims=[d], keepdim=True) for d in (0, 1)]
    return [b.apply("add", b.apply("add", x, totals[0]), totals[1])]


def product(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("matmul", x, b.input("y", F32, [32, 4]))]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (rows, "reduction_axes"),
        (only_results, "persistence"),
        (both, "reduction_axes"),
        (product, "operation"),
    ],
)
def test_refusals(make: Callable[[GraphBuilder, Any], Any], rule: str) -> None:
    assert refused_rule("outer_persistent", refusal(make)) == rule


def test_nothing_is_refused() -> None:
    assert refused_rule("outer_persistent", standardise(F32, 0, 8)) == "empty"
