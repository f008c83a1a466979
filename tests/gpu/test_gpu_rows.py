"""Scans, positions of extrema, sorts, top-k and scatters on the GPU."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_check import check_on_gpu
from graphs import scattered
from rows_on_cpu import one_operation

from fusec.ir.dtype import BF16, BOOL, F8E4M3, F16, F32, F64, I8, I32, I64, U8, DType

pytestmark = pytest.mark.gpu

Shape = tuple[int, ...]
SHAPES: list[tuple[Shape, int]] = [
    ((1, 1), 1), ((7, 31), 1), ((257, 33), 1), ((64, 8192), 1), ((3, 100001), 1), ((1, 1 << 20), 1),
    ((1 << 18,), 0), ((300, 64), 0), ((5000, 7), 0), ((8192, 1000), 0), ((6, 70, 12), 1),
    ((20000, 5), 1),
]  # fmt: skip


# -- scans


@pytest.mark.parametrize("op", ["cumsum", "cummax"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_scans(op: str, shape: Shape, dim: int) -> None:
    check_on_gpu(one_operation(op, F32, shape, dim), scheduler="scan", repeats=2)


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("dtype", [BF16, F16, F64, I32, I64, I8, BOOL], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((33, 260), 1), ((260, 33), 0)], ids=str)
def test_scans_of_every_type(op: str, dtype: DType, shape: Shape, dim: int) -> None:
    check_on_gpu(one_operation(op, dtype, shape, dim), scheduler="scan")


# -- positions of extrema


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_positions(op: str, shape: Shape, dim: int) -> None:
    check_on_gpu(one_operation(op, F32, shape, dims=[dim]))


@pytest.mark.parametrize("dtype", [BF16, F64, I64, I8, BOOL], ids=str)
@pytest.mark.parametrize("dims", [[0], [1], [0, 1]], ids=str)
def test_positions_of_every_type(dtype: DType, dims: list[int]) -> None:
    check_on_gpu(one_operation("argmax", dtype, (300, 520), dims=dims))


def test_position_of_nan_and_of_ties() -> None:
    x = np.zeros((4, 5000), np.float32)
    x[1, [77, 4000]] = np.nan
    x[2, [900, 4100]] = 5.0
    x[3] = -np.inf
    fusion = one_operation("argmax", F32, x.shape, dims=[1])
    found = check_on_gpu(fusion, inputs={"x": x}).outputs
    assert next(iter(found.values())).tolist() == [0, 77, 900, 0]


# -- sorts


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_sorts(shape: Shape, dim: int, descending: bool) -> None:
    fusion = one_operation("sort", F32, shape, dim, descending=descending)
    check_on_gpu(fusion, scheduler="sort", repeats=2)


@pytest.mark.parametrize("dtype", [BF16, F16, F64, I32, I64, I8, U8, BOOL, F8E4M3], ids=str)
@pytest.mark.parametrize("length", [100, 3000, 20000])
def test_argsorts_of_every_type(dtype: DType, length: int) -> None:
    check_on_gpu(one_operation("argsort", dtype, (5, length), 1), scheduler="sort")


@pytest.mark.parametrize("length", [60, 5000, 30000])
def test_sort_of_special_values(length: int) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40], np.float32)
    x = np.random.default_rng(1).choice(special, (3, length))
    for descending in (False, True):
        fusion = one_operation("sort", F32, x.shape, 1, descending=descending)
        check_on_gpu(fusion, inputs={"x": x})


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 8, 50, 1000])
@pytest.mark.parametrize("length", [1000, 8192, 131072])
def test_top_k(length: int, k: int, largest: bool) -> None:
    check_on_gpu(one_operation("topk", F32, (17, length), k, 1, largest=largest), repeats=2)


@pytest.mark.parametrize("dtype", [BF16, F64, I64, I8], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((40, 9000), 1), ((9000, 40), 0), ((1, 500000), 1)])
def test_top_k_of_every_type(dtype: DType, shape: Shape, dim: int) -> None:
    check_on_gpu(one_operation("topk", dtype, shape, 12, dim))


# -- scatters


@pytest.mark.parametrize("dtype", [F32, BF16, F16, F64, I32, I64, I8, BOOL], ids=str)
@pytest.mark.parametrize("op", ["scatter", "scatter_add"])
@pytest.mark.parametrize(
    ("shape", "index", "dim"),
    [((1000,), (50000,), 0), ((64, 200), (64, 3000), 1), ((300, 520), (77, 500), 0),
     ((20000, 30), (20000, 9), 1), ((90, 7, 40), (12, 7, 40), 0)],
    ids=str,
)  # fmt: skip
def test_scatters(op: str, dtype: DType, shape: Shape, index: Shape, dim: int) -> None:
    chosen = np.random.default_rng(2).integers(0, shape[dim], index)
    fusion = scattered(op, dtype, shape, index, index, dim)
    check_on_gpu(fusion, inputs={"places": chosen}, scheduler="scatter", repeats=2)


@pytest.mark.parametrize("dtype", [F32, BF16, I64], ids=str)
@pytest.mark.parametrize("rows", [5, 1000])
def test_rows_added_at_places(dtype: DType, rows: int) -> None:
    chosen = np.random.default_rng(3).integers(0, rows, 3000)
    fusion = scattered("index_add", dtype, (rows, 256), (3000,), (3000, 256), 0)
    check_on_gpu(fusion, inputs={"places": chosen}, scheduler="scatter", repeats=2)


@pytest.mark.parametrize("dtype", [F32, BF16, F64, I64, I8], ids=str)
@pytest.mark.parametrize("op", ["scatter", "scatter_add"])
@pytest.mark.parametrize(
    ("shape", "index", "dim"),
    [((1000,), (50000,), 0), ((70000, 200), (60, 200), 0), ((64, 200), (64, 3000), 1),
     ((20000, 30), (20000, 9), 1)],
    ids=str,
)  # fmt: skip
def test_scatters_into_inputs(op: str, dtype: DType, shape: Shape, index: Shape, dim: int) -> None:
    chosen = np.random.default_rng(2).integers(0, shape[dim], index)
    fusion = scattered(op, dtype, shape, index, index, dim, in_place=True)
    check_on_gpu(fusion, inputs={"places": chosen}, scheduler="scatter", repeats=2)


@pytest.mark.parametrize("tokens", [1, 64, 3000])
def test_rows_added_into_a_cache(tokens: int) -> None:
    chosen = np.random.default_rng(3).integers(0, 8192, tokens)
    fusion = scattered("index_add", BF16, (8192, 512), (tokens,), (tokens, 512), 0, in_place=True)
    check_on_gpu(fusion, inputs={"places": chosen}, scheduler="scatter", repeats=2)
