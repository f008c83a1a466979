"""What fusions write into inputs: one analysis answers, and what it answers is obeyed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
from fusec.diagnostics import FusecError, InternalError
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I16, I32, I64, DType
from fusec.ir.effects import Effects, Touch
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
    found = [p for p in ROOT.rglob("*.py") if re.search(r"(?<!aten)\.alias\b(?!\()", p.read_text())]
    assert len(found) <= MOST_READERS, found


def read(inputs: str, ops: str, outputs: str) -> Fusion:
    lines = [f"  {i.strip()}" for i in inputs.split(";")]
    lines += ["ops:", *(f"  - {o.strip()}" for o in ops.split(";"))]
    lines += ["outputs:", *(f"  - {o.strip()}" for o in outputs.split(";"))]
    return read_text("fusion: effects\ninputs:\n" + "\n".join(lines) + "\n", "effects.yaml")


def run(fusion: Fusion, folder: Path, given: Mapping[str, Any]) -> driver.Compilation:
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


def moved(found: driver.Compilation) -> int:
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


@pytest.mark.parametrize(("algorithm", "op", "dtype", "shape", "index", "source", "dim"), IN_PLACE)
def test_scatters_into_inputs(
    algorithm: str,
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
    assert plan.parameters.algorithm == algorithm
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
    width = found.plans[0].parameters.vector_width
    assert kernel.grid[0].value * kernel.block[0] * width == 64 * 4096
    assert moved(found) == bytes
    # Places count as distinct: what is added to is read, too.
    assert floor_bytes(fusion) == bytes


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
    # Both results are computed of `x` as it was; a copy writes the first into it afterwards.
    assert [s.scheduler for s in found.segmented.segments] == ["scatter", "pointwise"]


# -- slices of inputs

AROUND = "b = slice(x, [0, 0], [3, 8]); a = slice(x, [5, 0], [9, 8])"
SLICES = {
    "middle": ("f: f32[2, 8]", f"{AROUND}; y = cat([b, f, a], 0)", 16),
    "start": ("f: f32[2, 8]", "a = slice(x, [2, 0], [9, 8]); y = cat([f, a], 0)", 16),
    "end": ("f: f32[9, 3]", "b = slice(x, [0, 0], [9, 5]); y = cat([b, neg(f)], 1)", 27),
    "window": (
        "f: f32[2, 3]",
        f"{AROUND}; l = slice(x, [3, 0], [5, 4]); r = slice(x, [3, 7], [5, 8]); "
        "y = cat([b, cat([l, f, r], 1), a], 0)",
        6,
    ),
    "rows": ("f: f32[2, 8]", f"{AROUND}; y = cat([b, softmax(f, 1), a], 0)", 16),
    "sums": ("f: f32[2, 8, 70]", f"{AROUND}; y = cat([b, sum(f, [2]), a], 0)", 16),
    "product": ("f: f32[2, 4]; g: f32[4, 8]", f"{AROUND}; y = cat([b, matmul(f, g), a], 0)", 16),
    "turned": ("f: f32[8, 2]", f"{AROUND}; y = cat([b, permute(f, [1, 0]), a], 0)", 16),
    "said": ("f: f32[2, 3]", "y = update_slice(x, f, [7, 5])", 6),
    "placed": ("f: f32[1, 8]; p: i64 = 4", "y = update_slice(x, f, [p, 0])", 8),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_of_inputs_are_written_alone(name: str, tmp_path: Path) -> None:
    inputs, ops, elements = SLICES[name]
    found = run(read(f"x: f32[9, 8]; {inputs}", ops, "y: {alias: x}"), tmp_path, {})
    (segment,) = found.segmented.segments
    assert segment.estimate is not None
    assert segment.estimate.written == 4 * elements
    assert floor_bytes(segment.fusion) <= moved(found)


def test_two_caches_are_written_by_one_kernel(tmp_path: Path) -> None:
    fusion = read(
        "k: f32[40, 8]; v: f32[50, 8]; rows: f32[5, 8]; p: i64 = 7",
        "a = update_slice(k, mul(rows, 2.0), [p, 0]); b = update_slice(v, neg(rows), [p, 0])",
        "a: {alias: k}; b: {alias: v}",
    )
    found = run(fusion, tmp_path, {})
    assert len(found.plans) == 1
    assert moved(found) == 3 * 5 * 8 * 4


def test_a_slice_made_from_another_is_made_before(tmp_path: Path) -> None:
    fusion = read(
        "x: f32[30, 8]",
        "y = update_slice(x, mul(slice(x, [1, 0], [6, 8]), 2.0), [3, 0])",
        "y: {alias: x}",
    )
    found = run(fusion, tmp_path, {})
    assert len(found.plans) == 2
    assert moved(found) == 4 * 5 * 8 * 4


def test_a_slice_is_updated_in_a_copy(tmp_path: Path) -> None:
    """Without an alias, or where others read the old value later, all of the tensor moves."""
    fusion = read("x: f32[9, 8]; f: f32[2, 3]", "y = update_slice(exp(x), f, [7, 5])", "y: {}")
    assert len(run(fusion, tmp_path, {}).plans) == 1
    fusion = read(
        "x: f32[9, 8]; f: f32[2, 3]",
        "y = update_slice(x, f, [7, 5]); z = sub(y, x)",
        "y: {alias: x}; z: {}",
    )
    (tmp_path / "late").mkdir()
    run(fusion, tmp_path / "late", {})


def test_a_large_cache_is_written_where_a_slice_lies() -> None:
    fusion = read(
        "cache: bf16[8, 65536, 512]; rows: bf16[8, 64, 512]",
        "b = slice(cache, [0, 0, 0], [8, 1000, 512]); a = slice(cache, [0, 1064, 0],"
        " [8, 65536, 512]); y = cat([b, rows, a], 1)",
        "y: {alias: cache}",
    )
    found = driver.plan(fusion, OPTIONS)
    assert [len(p.kernels) for p in found.plans] == [1]
    assert moved(found) == floor_bytes(found.segmented.fusion) == 2 * ROWS


@pytest.mark.parametrize(
    ("inputs", "starts", "message"),
    [
        ("x: f32[9, 8]; f: f32[2, 3]", "[8, 0]", "dim 0 from 8 to 10 leaves its extent 9"),
        ("x: f32[9, 8]; f: f32[2, 3]", "[-1, 0]", "dim 0 from -1 to 1 leaves its extent 9"),
        ("x: f32[9, 8]; f: f32[2, 3]", "[0]", "start_indices"),
        ("x: f32[9, 8]; f: f32[3]", "[0, 0]", "1"),
        ("x: f32[9, 8]; f: f16[2, 3]", "[0, 0]", "`update_slice` of f16 into f32"),
    ],
)
def test_slices_that_do_not_fit_are_refused(inputs: str, starts: str, message: str) -> None:
    with pytest.raises(FusecError, match=re.escape(message)):
        read(inputs, f"y = update_slice(x, f, {starts})", "y: {alias: x}")


# -- orders


def test_adding_the_transpose_reads_before_it_writes(tmp_path: Path) -> None:
    fusion = read("x: f32[40, 40]", "y = add(x, permute(x, [1, 0]))", "y: {alias: x}")
    assert len(run(fusion, tmp_path, {}).plans) == 2


def test_a_running_statistic_is_read_before_it_is_overwritten(tmp_path: Path) -> None:
    fusion = read(
        "x: f32[30, 8]; mean: f32[8]",
        "z = sub(x, mean); y = add(mul(mean, 0.9), sum(x, [0])); w = sum(mul(z, z), [1])",
        "y: {alias: mean}; w: {}",
    )
    run(fusion, tmp_path, {})


# -- every answer counts


def never_conflicts(store: Touch, loads: Iterable[Touch]) -> None:
    """Say that no load sees what a store overwrites."""


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let families and segmentation see no hazard inside a kernel."""
    monkeypatch.setattr(Effects, "reads_in_place", lambda *_: True)
    monkeypatch.setattr(Effects, "unsafe", lambda _: iter(()))
    for user in ("rows.domain", "matmul.family"):
        monkeypatch.setattr(f"fusec.schedule.{user}.conflict", never_conflicts)


WRONG = {
    "transpose": (
        "x: f32[40, 40]", "y = add(x, permute(x, [1, 0]))", "y: {alias: x}"
    ),
    "scatter": (
        "x: f32[40, 6]; i: i64[40]; j: i64[40]",
        "y = index_add(x, i, index_select(x, j, 0), dim=0)",
        "y: {alias: x}",
    ),
    "slice": (
        "x: f32[30, 8]", "y = update_slice(x, mul(slice(x, [1, 0], [6, 8]), 2.0), [3, 0])",
        "y: {alias: x}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_kernel_that_overwrites_what_it_reads_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(read(*WRONG[name]), tmp_path, {})
    blind(monkeypatch)
    (tmp_path / "blind").mkdir()
    with pytest.raises(AssertionError):
        run(read(*WRONG[name]), tmp_path / "blind", {})


def test_an_order_that_overwrites_what_is_still_to_be_read_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = (
        "x: f32[30, 8]; m: f32[8, 5]",
        "y = mul(m, 0.9); z = matmul(x, m)",
        "y: {alias: m}; z: {}",
    )
    run(read(*case), tmp_path, {})
    blind(monkeypatch)
    monkeypatch.setattr(Effects, "writers", {})
    monkeypatch.setattr(Effects, "late", lambda *_: False)
    (tmp_path / "blind").mkdir()
    with pytest.raises(InternalError, match="after `y` was written"):
        run(read(*case), tmp_path / "blind", {})
