"""Scans: the kernels' numbers on the host, their builds, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows_on_cpu import OPTIONS, check_build, check_on_cpu, one_operation, planned

from fusec import driver
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.run.arrays import StridedArray, dense_strides
from fusec.schedule.scan import family as scan

CASES: list[tuple[str, DType, tuple[int, ...], int]] = [
    ("cumsum", F32, (6, 264), 1),
    ("cumsum", F32, (3, 9001), 1),
    ("cumsum", BF16, (2, 20000), 1),
    ("cumsum", I32, (5, 7), 1),
    ("cumprod", F64, (40, 30), 0),
    ("cumsum", F16, (3, 70, 6), 1),
    ("cummax", F32, (2, 3, 130), 2),
    ("cummin", I8, (200, 3), 0),
    ("cummax", BOOL, (4, 65), 1),
    ("cumsum", I64, (300,), 0),
    ("cumsum", F32, (4, 1), 1),
]


@pytest.mark.parametrize(("op", "dtype", "shape", "dim"), CASES)
def test_results(op: str, dtype: DType, shape: tuple[int, ...], dim: int, tmp_path: Path) -> None:
    check_on_cpu(one_operation(op, dtype, shape, dim), "scan", tmp_path)


@pytest.mark.parametrize(
    ("op", "dtype", "shape", "keywords"),
    [("cumsum", F32, (1, 140000), {}), ("cummax", I8, (3, 4003), {}),
     ("cumsum", F64, (2, 1000), {"init": 2.0})],
)  # fmt: skip
def test_rows_shared_by_blocks(
    op: str,
    dtype: DType,
    shape: tuple[int, int],
    keywords: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("MAX_THREADS", 32), ("TILE_THREADS", 32), ("TILE_VALUES", 1)):
        monkeypatch.setattr(scan, name, value)
    monkeypatch.setattr(scan, "VALUES", 1)
    fusion = one_operation(op, dtype, shape, 1, **keywords)
    plan = planned(fusion, "scan").plans[0]
    # More than 32 x 32 tiles: totals of tiles, of groups of them and of groups of groups.
    assert plan.parameters.tiles == -(-shape[1] // (32 * plan.parameters.vector_width))
    check_on_cpu(fusion, "scan", tmp_path)


def test_tiles_are_long_while_they_fill_the_gpu() -> None:
    """Each waits for the totals of those before it."""
    values = {}
    for length in (1 << 20, 1 << 26):
        p = planned(one_operation("cumsum", F32, (1, length), 1), "scan").plans[0].parameters
        values[length] = p.chunks * p.vector_width
        assert p.tiles == -(-length // (p.threads_x * values[length]))
    assert values == {1 << 20: 16, 1 << 26: 64}


@pytest.mark.parametrize("shape", [(3, 600), (600, 3)])
@pytest.mark.parametrize("op", ["cummax", "cumsum"])
def test_nan_stays_until_the_end_of_its_row(
    op: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    along = shape.index(600)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[(1, 77) if along == 1 else (77, 1)] = np.nan
    given = StridedArray(x.ravel(), shape, dense_strides(shape))
    fusion = one_operation(op, F32, shape, along)
    (found,) = check_on_cpu(fusion, "scan", tmp_path, {"x": given}).values()
    row = found[1] if along == 1 else found[:, 1]
    assert np.flatnonzero(np.isnan(row)).tolist() == list(range(77, 600))
    assert np.isnan(found).sum() == 600 - 77


def surrounded(shape: tuple[int, ...], dim: int, **keywords: Any) -> Fusion:
    """Return a scan of a product, with its result and its input read after it."""
    builder = GraphBuilder("surrounded")
    extents = [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)]
    x, w = builder.input("x", BF16, extents), builder.input("w", BF16, extents[1:])
    product = builder.apply("mul", x, w)
    running = builder.apply("cumsum", product, dim, **keywords)
    builder.output(builder.apply("add", running, product))
    builder.output(running)
    return builder.finish()


@pytest.mark.parametrize(("shape", "dim"), [((9, 520), 1), ((130, 24), 0)])
def test_what_comes_before_and_after_is_fused(
    shape: tuple[int, int], dim: int, tmp_path: Path
) -> None:
    check_on_cpu(surrounded(shape, dim), "scan", tmp_path)
    check_on_cpu(surrounded(shape, dim, init=3.0), "scan", tmp_path)


def test_a_permuted_input_is_scanned_where_it_runs_along_memory(tmp_path: Path) -> None:
    builder = GraphBuilder("turned")
    x = builder.input("x", F32, (40, 64))
    turned = builder.apply("permute", x, dims=[1, 0])
    builder.output(builder.apply("permute", builder.apply("cumsum", turned, 0), dims=[1, 0]))
    fusion = builder.finish()
    assert planned(fusion, "scan").plans[0].parameters.inner
    check_on_cpu(fusion, "scan", tmp_path)


def test_a_prefix_read_elsewhere_is_left_to_another_kernel() -> None:
    builder = GraphBuilder("flipped")
    x = builder.input("x", F32, (40, 64))
    running = builder.apply("cumsum", x, 1)
    builder.output(builder.apply("add", running, builder.apply("flip", running, dims=[1])))
    found = driver.plan(builder.finish(), OPTIONS)
    assert [s.scheduler for s in found.segmented.segments] == ["scan", "pointwise"]


@pytest.mark.parametrize(
    ("dtype", "shape", "dim"),
    [(F32, (64, 8192), 1), (BF16, (64, 8192), 1), (F64, (512, 512), 0), (I64, (4, 100000), 1),
     (BF16, (8192, 4096), 0), (I8, (100, 5), 1)],
)  # fmt: skip
def test_builds_without_spills(dtype: DType, shape: tuple[int, int], dim: int) -> None:
    check_build(one_operation("cumsum", dtype, shape, dim), "scan")
