"""Positions of extrema: the reduction kernels' results on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rows_on_cpu import check_build, check_on_cpu, one_operation, planned

from fusec.ir.dtype import BF16, BOOL, F32, F64, I8, I64, DType
from fusec.ops.builder.build import GraphBuilder
from fusec.run.arrays import StridedArray, dense_strides

Shape = tuple[int, ...]


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize(
    ("dtype", "shape", "dims"),
    [(F32, (6, 264), [1]), (BF16, (264, 40), [0]), (BOOL, (20, 30), [0, 1]), (F64, (1, 50000), [1]),
     (I64, (7, 5, 11), [0, 2]), (I8, (9000, 3), [0])],
)  # fmt: skip
def test_results(op: str, dtype: DType, shape: Shape, dims: list[int], tmp_path: Path) -> None:
    fusion = one_operation(op, dtype, shape, dims=dims)
    check_on_cpu(fusion, "reduction", tmp_path)


@pytest.mark.parametrize("along", [0, 1])
def test_nan_ties_and_nothing_but_the_lowest(along: int, tmp_path: Path) -> None:
    x = np.zeros((4, 5000), np.float32)
    x[1, [77, 4000]] = np.nan
    x[2, [900, 4100]] = 5.0
    x[3] = -np.inf
    x = x if along == 1 else np.ascontiguousarray(x.T)
    given = {"x": StridedArray(x.ravel(), x.shape, dense_strides(x.shape))}
    fusion = one_operation("argmax", F32, x.shape, dims=[along])
    (found,) = check_on_cpu(fusion, "reduction", tmp_path, given).values()
    assert found.tolist() == [0, 77, 900, 0]


def test_positions_count_in_the_order_of_the_dims_that_are_reduced(tmp_path: Path) -> None:
    builder = GraphBuilder("turned")
    x = builder.input("x", F32, (12, 10, 8))
    turned = builder.apply("permute", x, dims=[2, 1, 0])
    builder.output(builder.apply("argmax", x, dims=[0, 2]))
    builder.output(builder.apply("argmax", turned, dims=[0, 2]))
    rounded = np.random.default_rng(0).integers(0, 3, (12, 10, 8)).astype(np.float32)
    given = {"x": StridedArray(rounded.ravel(), (12, 10, 8), (80, 8, 1))}
    check_on_cpu(builder.finish(), "reduction", tmp_path, given)


def test_a_row_is_read_again_where_its_extremum_was_found(tmp_path: Path) -> None:
    builder = GraphBuilder("marked")
    x = builder.input("x", F32, (6, 200))
    place = builder.apply("broadcast", builder.apply("argmax", x, dims=[1]), [False, True])
    column = builder.apply("broadcast", builder.apply("iota", 200), [True, False])
    there = builder.apply("eq", builder.apply("expand", column, [6, 200]), place)
    builder.output(builder.apply("where", there, x, 0.0))
    fusion = builder.finish()
    assert len(planned(fusion, "inner_persistent").plans) == 1
    check_on_cpu(fusion, "inner_persistent", tmp_path)
    check_build(fusion, "inner_persistent")


@pytest.mark.parametrize(
    ("dtype", "shape", "dims"),
    [(F32, (64, 8192), [1]), (BF16, (8192, 640), [0]), (F64, (64, 8192), [1])],
)
def test_builds_without_spills(dtype: DType, shape: Shape, dims: list[int]) -> None:
    check_build(one_operation("argmax", dtype, shape, dims=dims), "reduction")
