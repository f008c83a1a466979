"""Sorts, argsorts and top-k: the kernels' results on the host, their builds, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from nightly import mostly_nightly
from rows_on_cpu import OPTIONS, check_build, check_on_cpu, one_operation, planned

from fusec import driver
from fusec.ir.dtype import BF16, BOOL, F8E4M3, F16, F32, F64, I8, I32, I64, U8, DType
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.run.arrays import StridedArray, dense_strides
from fusec.schedule.sort import family as sort
from fusec.schedule.sort.top import TopParameters

CASES: list[tuple[str, DType, tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = [
    ("sort", F32, (5, 300), (1,), {}),
    ("sort", F32, (2, 5000), (1,), {"descending": True}),
    ("sort", BF16, (7, 40), (1,), {"descending": True}),
    ("argsort", I64, (2, 700), (1,), {}),
    ("argsort", I32, (3, 33), (1,), {"descending": True}),
    ("argsort", I8, (3, 1, 200), (2,), {"descending": True}),
    ("argsort", BOOL, (4, 70), (1,), {"descending": True}),
    ("sort", F64, (40, 3), (0,), {}),
    ("sort", F16, (3, 20, 4), (1,), {}),
    ("topk", F32, (6, 130), (5, 1), {}),
    ("topk", BF16, (3, 90), (90, 1), {"largest": False}),
    ("topk", U8, (60, 4), (1, 0), {}),
]


@pytest.mark.parametrize(("op", "dtype", "shape", "arguments", "keywords"), CASES)
def test_rows_in_a_block(
    op: str,
    dtype: DType,
    shape: tuple[int, ...],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    tmp_path: Path,
) -> None:
    fusion = one_operation(op, dtype, shape, *arguments, **keywords)
    check_on_cpu(fusion, "sort", tmp_path)


@pytest.mark.parametrize(
    ("op", "dtype", "shape", "arguments"),
    [("sort", BF16, (2, 4200), (1,)), ("argsort", U8, (5000,), (0,)),
     ("topk", U8, (2, 4200), (2500, 1))],
)  # fmt: skip
def test_rows_in_passes(
    op: str,
    dtype: DType,
    shape: tuple[int, ...],
    arguments: tuple[Any, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sort, "MAX_ROW", dict.fromkeys((1, 2, 4, 8), 64))
    fusion = one_operation(op, dtype, shape, *arguments)
    plan = planned(fusion, "sort").plans[0]
    assert len(plan.kernels) == 3 * plan.parameters.passes
    check_on_cpu(fusion, "sort", tmp_path)


@pytest.mark.parametrize(
    ("dtype", "shape", "k", "dim", "largest"),
    [(F32, (2, 4096), 8, 1, True), (BF16, (2, 3001), 50, 1, False), (F32, (1, 40000), 100, 1, True),
     (I8, (1500, 3), 256, 0, True), (I32, (2, 2, 1032), 1, 2, False)],
)  # fmt: skip
def test_few_of_many(
    dtype: DType, shape: tuple[int, ...], k: int, dim: int, largest: bool, tmp_path: Path
) -> None:
    fusion = one_operation("topk", dtype, shape, k, dim, largest=largest)
    assert isinstance(planned(fusion, "sort").plans[0].parameters, TopParameters)
    check_on_cpu(fusion, "sort", tmp_path)


@pytest.mark.parametrize(
    ("dtype", "shape", "k", "dim", "largest"),
    [(F32, (7, 128), 8, 1, True), (BF16, (5, 250), 16, 1, False), (F32, (3, 500), 20, 1, True),
     (U8, (40, 9), 2, 0, True), (I32, (2, 3, 31), 4, 2, False), (F32, (9, 4), 4, 1, True)],
)  # fmt: skip
def test_few_of_short_rows(
    dtype: DType, shape: tuple[int, ...], k: int, dim: int, largest: bool, tmp_path: Path
) -> None:
    fusion = one_operation("topk", dtype, shape, k, dim, largest=largest)
    parameters = planned(fusion, "sort").plans[0].parameters
    assert isinstance(parameters, TopParameters)
    assert parameters.lanes
    check_on_cpu(fusion, "sort", tmp_path)


@pytest.mark.parametrize("lanes", [8, 16, 32])
@pytest.mark.parametrize("kind", ["equal", "rising", "falling", "special"])
def test_equal_elements_of_short_rows_come_in_order(kind: str, lanes: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = {
        "equal": np.ones((5, 60)),
        "rising": np.arange(300).reshape(5, 60) // 3,
        "falling": -np.arange(300).reshape(5, 60) // 3,
        "special": rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], (5, 60)),
    }[kind].astype(np.float32)
    text = (
        "fusion: top\ninputs: {x: 'f32[5, 60]'}\nops:\n  - v, i = topk(x, k=8, dim=1)\n"
        f"outputs: [v, i]\nschedules:\n  v: {{lanes: {lanes}, items: {max(1, 16 // lanes)}}}\n"
    )
    plan = planned(read_text(text), "sort").plans[0]
    assert plan.parameters.lanes == lanes
    given = {"x": StridedArray(x.ravel(), (5, 60), (60, 1))}
    values, places = run_plan(plan, given, tmp_path).values()
    order = np.argsort(-np.nan_to_num(x, nan=1e30, posinf=1e29, neginf=-1e29), 1, kind="stable")
    np.testing.assert_array_equal(places, order[:, :8])
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))


GATE = """fusion: gate
dims: {{T: 37, E: {experts}}}
inputs:
  logits: {dtype}[T, E]
ops:
  - p = softmax(cast(logits, f32), 1)
  - best, expert = topk(p, k={k}, dim=1)
  - share = div(best, sum(best, dims=[1], keepdim=true))
outputs: [share, expert]
"""


@pytest.mark.parametrize(
    ("dtype", "experts", "k"), [("f32", 128, 8), ("f32", 60, 6), ("f32", 7, 3), ("f64", 300, 9)]
)
def test_rows_are_reduced_before_and_after(
    dtype: str, experts: int, k: int, tmp_path: Path
) -> None:
    text = GATE.format(dtype=dtype, experts=experts, k=k)
    check_on_cpu(read_text(text), "sort", tmp_path)


def test_other_reductions_and_long_rows_are_left_to_other_kernels() -> None:
    long = read_text(GATE.format(dtype="f32", experts=3000, k=8))
    found = driver.plan(long, OPTIONS)
    assert [s.scheduler for s in found.segmented.segments].count("sort") == 1
    assert len(found.segmented.segments) > 1
    across = GATE.format(dtype="f32", experts=128, k=8).replace("dims=[1]", "dims=[0]")
    found = driver.plan(read_text(across), OPTIONS)
    assert len(found.segmented.segments) > 1


@pytest.mark.parametrize("length", [20000, 40000])
@pytest.mark.parametrize("kind", ["equal", "rising", "falling", "lumps", "special"])
def test_few_of_many_where_the_first_limit_is_poor(kind: str, length: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x = {
        "equal": np.ones(length),
        "rising": np.arange(length),
        "falling": -np.arange(length),
        # The elements of one thread are larger than all others.
        "lumps": np.where(np.arange(length) // 4 % 256 == 3, rng.random(length), 0.0),
        "special": rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], length),
    }[kind].astype(np.float32)
    given = {"x": StridedArray(x, (1, length), (length, 1))}
    fusion = one_operation("topk", F32, (1, length), 200, 1)
    check_on_cpu(fusion, "sort", tmp_path, given)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64, BF16, F16])
def test_order_of_special_values(dtype: DType, descending: bool, tmp_path: Path) -> None:
    special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-7, -1e-7]
    x = np.random.default_rng(1).choice(special, (3, 77)).astype(dtype.numpy)
    given = StridedArray(x.ravel(), x.shape, dense_strides(x.shape))
    fusion = one_operation("sort", dtype, (3, 77), 1, descending=descending)
    values, places = check_on_cpu(fusion, "sort", tmp_path, {"x": given}).values()
    # A zero keeps its sign.
    values, expected = (v.astype(np.float64) for v in (values, np.take_along_axis(x, places, 1)))
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(
        np.signbit(values)[values == 0], np.signbit(expected)[values == 0]
    )
    wide = x.astype(np.float64)
    order = np.argsort(-wide if descending else wide, axis=1, kind="stable")
    if not descending:
        np.testing.assert_array_equal(places, order)


def test_what_comes_before_and_after_is_fused(tmp_path: Path) -> None:
    builder = GraphBuilder("around")
    x, w = builder.input("x", F32, (6, 50)), builder.input("w", F32, (6, 1))
    scaled = builder.apply("mul", x, w)
    values, places = builder.call("topk", [scaled], {"k": 7, "dim": 1})
    builder.output(builder.apply("add", values, 1.0))
    builder.output(builder.apply("cast", places, dtype=I32))
    check_on_cpu(builder.finish(), "sort", tmp_path)


def test_results_read_elsewhere_are_left_to_another_kernel() -> None:
    builder = GraphBuilder("turned")
    x = builder.input("x", F32, (6, 50))
    order = builder.apply("argsort", x, 1)
    builder.output(builder.apply("add", order, builder.apply("flip", order, dims=[1])))
    found = driver.plan(builder.finish(), OPTIONS)
    assert [s.scheduler for s in found.segmented.segments] == ["sort", "pointwise"]


@pytest.mark.parametrize(
    ("dtype", "length"),
    mostly_nightly(
        [
            (F32, 8192),
            (F32, 100),
            (BF16, 8192),
            (F64, 4096),
            (I64, 3),
            (F32, 100000),
            (F8E4M3, 640),
        ],
        2,
    ),
)
def test_builds_without_spills(dtype: DType, length: int) -> None:
    check_build(one_operation("sort", dtype, (16, length), 1), "sort")


@pytest.mark.parametrize("dtype", [F32, BF16, I8])
@pytest.mark.parametrize("length", mostly_nightly([8192, 131072], 2))
def test_top_k_builds_without_spills(dtype: DType, length: int) -> None:
    check_build(one_operation("topk", dtype, (8, length), 50, 1), "sort")
