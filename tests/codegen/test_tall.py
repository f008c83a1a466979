"""Millions of rows of a few elements: whole warps, loads together, and truthful prices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import build_all, run_plan
from families import GPU, assert_builds, estimate, plan_of, text_of

from fusec import driver
from fusec.codegen.dispatch import plan_sources
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs

GUARD = "if (first + kThreadsX * kVec > columns && column >= columns) continue;"


def scaled(rows: int, columns: int, second: str = "") -> Fusion:
    """Return a sum of two tensors, of which the second is stored by columns unless told."""
    strides = second or f"[1, {rows}]"
    return read_text(
        f"fusion: scaled\ninputs:\n  x: 'f16[{rows}, {columns}]'\n"
        f"  z: {{type: 'f16[{rows}, {columns}]', strides: {strides}}}\n"
        "ops:\n  - y = add(mul(x, 1.5), z)\noutputs: [y]\n"
    )


def norm(rows: int, columns: int, dtype: str) -> Fusion:
    """Return an RMS norm of rows that are stored by columns."""
    return read_text(
        "fusion: norm\ninputs:\n"
        f"  x: {{type: '{dtype}[{rows}, {columns}]', strides: [1, {rows}]}}\n"
        "ops:\n  - xf = cast(x, f32)\n"
        "  - r = rsqrt(add(mean(mul(xf, xf), dims=[1], keepdim=true), 1e-6))\n"
        f"  - y = cast(mul(xf, r), {dtype})\noutputs: [y]\n"
    )


def summed(rows: int, columns: int, dtype: str, pitch: int) -> Fusion:
    return read_text(
        "fusion: summed\ninputs:\n"
        f"  x: {{type: '{dtype}[{rows}, {columns}]', strides: [{pitch}, 1]}}\n"
        "ops:\n  - y = sum(cast(x, f32), dims=[1])\noutputs: [y]\n"
    )


def schedulers(fusion: Fusion) -> list[str]:
    program = driver.plan(fusion, CompileOptions(targets=("sm_90a",)))
    return [s.scheduler for s in program.segmented.segments]


@pytest.mark.parametrize("columns", [3, 15, 33, 63, 255, 257, 1001])
def test_rows_are_shifted_by_whole_warps_or_not_at_all(columns: int) -> None:
    p: Any = plan_of("pointwise", scaled(1_000_003, columns)).parameters
    assert p.threads_x * p.threads_y % 32 == 0
    assert not p.shifted or p.threads_x >= 32
    assert not p.shifted or columns >= 32 * p.vector_width


@pytest.mark.parametrize(("columns", "most"), [(3, 0.27), (15, 0.6), (257, 0.9)])
def test_columns_across_few_lines_cost_little(columns: int, most: float) -> None:
    """A warp's load from a tensor of three columns is from three lines, not from 32."""
    rows = 30_000_001 // columns
    along = estimate("pointwise", scaled(rows, columns, f"[{columns}, 1]")).seconds(GPU)
    across = estimate("pointwise", scaled(rows, columns)).seconds(GPU)
    assert along < across < along / (1 - most)


@pytest.mark.parametrize(("rows", "columns", "dtype"), [(999_999, 11, "bf16"), (999_999, 9, "f32")])
def test_short_rows_that_are_stored_by_columns_are_one_kernel(
    rows: int, columns: int, dtype: str
) -> None:
    assert schedulers(norm(rows, columns, dtype)) == ["inner_persistent"]


def test_tiles_that_lie_outside_are_charged() -> None:
    """Of 11 columns a tile of 32 is a third full: it costs as much as one of 32."""

    def seconds(columns: int) -> float:
        turned = scaled(4_000_001, columns)
        return estimate("transpose", turned).parts(GPU)["arithmetic"]

    assert seconds(25) < 1.1 * seconds(11)
    p: Any = plan_of("transpose", scaled(4_000_001, 11)).parameters
    assert p.tile_columns == 32


SUMS = [
    ("f16", 8, 8, 1),
    ("bf16", 8, 17, 4),
    ("f32", 5, 5, 4),
    ("f32", 41, 41, 16),
    ("f32", 49, 49, 16),
    ("bf16", 118, 119, 32),
    ("f32", 1, 3, 1),
]


@pytest.mark.parametrize(("dtype", "columns", "pitch", "threads"), SUMS)
def test_no_thread_of_a_short_row_has_nothing(
    dtype: str, columns: int, pitch: int, threads: int
) -> None:
    plan: Any = plan_of("reduction", summed(1_000_003, columns, dtype, pitch), tile_rows=0)
    assert plan.parameters.inner
    assert plan.parameters.threads_x == threads
    assert GUARD in text_of(plan)


def test_short_sums_build_without_spills() -> None:
    assert_builds(plan_of("reduction", summed(1_000_003, 118, "bf16", 119)))


def sums_are_right(
    cases: list[tuple[str, int, int, int]], guard: str, tmp_path: Path
) -> list[bool]:
    plans: list[Any] = [
        plan_of("reduction", summed(37, c, dtype, pitch), tile_rows=0)
        for dtype, c, pitch, _ in cases
    ]
    texts = [(s.kernel, s.text.replace(GUARD, guard)) for p in plans for s in plan_sources(p)]
    found: list[bool] = []
    for plan, function in zip(plans, build_all(texts, tmp_path), strict=True):
        fusion: Any = plan.problem.segment
        inputs = random_inputs(fusion, fusion.hints, 1)
        try:
            outputs = run_plan(plan, inputs, tmp_path, seed=1, built=[function])
        except AssertionError:
            found.append(False)
            continue
        found.append(bool(compare(fusion, fusion.hints, inputs, outputs).ok))
    return found


def test_short_sums_are_of_their_row_alone(tmp_path: Path) -> None:
    assert all(sums_are_right(SUMS[:4], GUARD, tmp_path))


def test_without_the_guard_they_are_not(tmp_path: Path) -> None:
    assert not all(sums_are_right(SUMS[3:4], "", tmp_path))
