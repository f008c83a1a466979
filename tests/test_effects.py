"""What fusions write into inputs: one analysis answers, and what it answers is obeyed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from emulated import emulated
from graphs import scattered
from rows_on_cpu import OPTIONS, check_build, check_on_cpu, planned

import fusec
from fusec import driver
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I16, I32, I64, DType
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.segment.floor import floor_bytes

ROOT = Path(fusec.__file__).parent
MOST_READERS = 9
Shape = tuple[int, ...]


def test_few_files_read_where_an_output_is_written() -> None:
    """All others ask `ir/effects.py`."""
    found = [p for p in ROOT.rglob("*.py") if re.search(r"\.alias\b", p.read_text())]
    assert len(found) <= MOST_READERS, found


def read(inputs: str, ops: str, outputs: str) -> Fusion:
    lines = [f"  {i.strip()}" for i in inputs.split(";")]
    lines += ["ops:", *(f"  - {o.strip()}" for o in ops.split(";"))]
    lines += ["outputs:", *(f"  - {o.strip()}" for o in outputs.split(";"))]
    return read_text("fusion: effects\ninputs:\n" + "\n".join(lines) + "\n", "effects.yaml")


def run(fusion: Fusion, folder: Path, given: Mapping[str, Any]) -> driver.Program:
    """Run a fusion's kernels on the host, twice, and compare."""
    found = driver.plan(fusion, OPTIONS)
    sizes = choose_sizes(fusion, None)
    arrays = {**random_inputs(fusion, sizes, 1), **given}
    cubins = {launch.kernel: b"" for launch in found.host.launches}
    device: Any = emulated(found, folder)
    with Executable(device, found.host, cubins).bind(arrays, sizes) as bound:
        for _ in range(2):
            bound.reset()
            bound.run()
            verdict = compare(fusion, sizes, arrays, bound.outputs())
            assert verdict.ok, verdict.text()
    return found


def moved(found: driver.Program) -> int:
    estimates = (s.estimate for s in found.segmented.segments)
    return sum(e.bytes + e.workspace_bytes for e in estimates if e is not None)


# -- scatters into inputs

IN_PLACE = [
    ("compared", "scatter", BF16, (60, 40), (30, 40), (30, 40), 0),
    ("compared", "scatter", I16, (5, 90), (5, 70), (), 1),
    ("compared", "scatter_add", F32, (60, 40), (30, 40), (30, 40), 0),
    ("compared", "scatter_add", F16, (40, 5), (40, 9), (40, 9), 1),
    ("compared", "index_add", BF16, (20, 6), (50,), (50, 6), 0),
    ("compared", "index_add", F64, (6, 20), (50,), (6, 50), 1),
    ("elements", "index_add", I64, (20, 6), (50,), (50, 6), 0),
    ("lines", "scatter", F32, (9, 20), (6, 11), (7, 12), 1),
    ("lines", "scatter_add", BOOL, (40,), (300,), (300,), 0),
    ("sorted", "scatter_add", F32, (40, 3), (290, 2), (290, 3), 0),
    ("winners", "scatter", F32, (50,), (300,), (300,), 0),
    ("winners", "scatter", I32, (3, 40), (2, 290), (3, 290), 1),
]


@pytest.mark.parametrize(("way", "op", "dtype", "shape", "index", "source", "dim"), IN_PLACE)
def test_scatters_into_inputs(
    way: str,
    op: str,
    dtype: DType,
    shape: Shape,
    index: Shape,
    source: Shape,
    dim: int,
    tmp_path: Path,
) -> None:
    fusion = scattered(op, dtype, shape, index, source, dim, in_place=True)
    plan = planned(fusion, "scatter").plans[0]
    assert plan.parameters.way == way
    assert not any("copy" in k.name for k in plan.kernels)
    check_on_cpu(fusion, "scatter", tmp_path)


@pytest.mark.parametrize("tokens", [30, 300])
def test_rows_that_all_columns_write_are_claimed_once(tokens: int, tmp_path: Path) -> None:
    fusion = read(
        f"cache: bf16[70, 12]; places: i64[{tokens}]; rows: bf16[{tokens}, 12]",
        f"p = broadcast_in_dim(places, [{tokens}, 12], [0]); y = scatter(cache, p, rows, dim=0)",
        "y: {alias: cache}",
    )
    plan = planned(fusion, "scatter").plans[0]
    assert [w.size.value for w in plan.workspaces] == ([] if tokens == 30 else [70])
    check_on_cpu(fusion, "scatter", tmp_path)


def test_a_strided_input_is_scattered_into(tmp_path: Path) -> None:
    fusion = read(
        "cache: {type: 'f32[20, 6]', strides: [1, 24]}; places: i64[9]; rows: f32[9, 6]",
        "y = index_add(cache, places, rows, dim=0)",
        "y: {alias: cache}",
    )
    assert len(run(fusion, tmp_path, {}).plans[0].kernels) == 1


@pytest.mark.parametrize("length", [60, 300])
@pytest.mark.parametrize("op", ["scatter", "scatter_add"])
def test_places_outside_are_left_alone_in_place(op: str, length: int, tmp_path: Path) -> None:
    plan = planned(scattered(op, F32, (30,), (length,), (), 0, in_place=True), "scatter").plans[0]
    wanted, x = np.arange(length) * 7 - 20, np.arange(30, dtype=np.float32)
    inputs = {"x": StridedArray(x, (30,), (1,)), "places": StridedArray(wanted, (length,), (1,))}
    (found,) = run_plan(plan, inputs, tmp_path).values()
    inside = np.isin(np.arange(30), wanted)
    np.testing.assert_array_equal(found[~inside], x[~inside])
    np.testing.assert_array_equal(found[inside], 3 if op == "scatter" else x[inside] + 3)


@pytest.mark.parametrize(("op", "length"), [("scatter", 900), ("scatter_add", 90)])
def test_builds_in_place_without_spills(op: str, length: int) -> None:
    index = (4, length)
    check_build(scattered(op, BF16, (4, 7000), index, index, 1, in_place=True), "scatter")


CACHE = "cache: bf16[65536, 4096]; places: i64[64]; rows: bf16[64, 4096]"
ROWS = 64 * 4096 * 2


@pytest.mark.parametrize(
    ("ops", "bytes"),
    [
        ("y = index_put_accumulate(cache, places, rows)", 3 * ROWS + 64 * 8),
        ("p = broadcast_in_dim(places, [64, 4096], [0]); y = scatter(cache, p, rows, dim=0)",
         2 * ROWS + 64 * 8),
    ],
)  # fmt: skip
def test_a_large_cache_is_touched_where_it_changes(ops: str, bytes: int) -> None:
    fusion = read(CACHE, ops, "y: {alias: cache}")
    found = driver.plan(fusion, OPTIONS)
    assert len(found.plans) == 1
    (kernel,) = found.plans[0].kernels
    assert kernel.grid[0].value * kernel.block[0] == 64 * 4096
    assert moved(found) == bytes
    # What is there may be read less often than it is written: the floor counts no reading of it.
    assert floor_bytes(fusion) == 2 * ROWS + 64 * 8


def test_an_embedding_gradient_is_ordered_and_added() -> None:
    fusion = read(
        "grad: f32[32000, 1024]; tokens: i64[4096]; dy: bf16[4096, 1024]",
        "y = index_add(grad, tokens, cast(dy, f32), dim=0)",
        "y: {alias: grad}",
    )
    found = driver.plan(fusion, OPTIONS)
    assert [k.template for p in found.plans for k in p.kernels] == ["sort_rows", "scatter_sorted"]
    rows = 4096 * 1024
    assert moved(found) < rows * (2 + 4 + 4) + 100 * 4096 + 2 * 8 * 4096


def test_what_is_scattered_is_read_before_it_is_overwritten(tmp_path: Path) -> None:
    fusion = read(
        "x: f32[40, 6]; here: i64[9]; there: i64[9]",
        "rows = index_select(x, there, 0); y = index_add(x, here, rows, dim=0)",
        "y: {alias: x}",
    )
    found = run(fusion, tmp_path, {})
    assert [s.scheduler for s in found.segmented.segments] == ["pointwise", "scatter"]
    assert moved(found) < 6 * 9 * 6 * 4 + 4 * 9 * 8


def test_what_is_read_after_the_scatter_is_read_of_a_copy(tmp_path: Path) -> None:
    fusion = read(
        "x: f32[40, 6]; here: i64[9]; rows: f32[9, 6]",
        "y = index_add(x, here, rows, dim=0); z = sub(y, x)",
        "y: {alias: x}; z: {}",
    )
    found = run(fusion, tmp_path, {})
    assert len(found.segmented.segments) >= 3
