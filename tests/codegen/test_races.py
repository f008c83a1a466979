"""Barriers, and the layout of shared memory, in kernels as fusec makes them: without one they fail.

A kernel is run in a few orders; edited, it must compute something wrong, hang or break a guard
zone in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import run_plan
from families import GPU, plan_of, text_of
from nightly import mostly_nightly
from test_inner_persistent import layer_norm

from fusec.ir.annotations import Setting
from fusec.ir.dtype import F16, F32
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.parse.reader import read_text
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import find_scheduler

ORDERS: tuple[Mapping[str, Any], ...] = tuple(
    {"seed": seed, "backwards": seed % 2 == 1} for seed in range(6)
)


def two_rows() -> Fusion:
    """Return a fusion whose kernel keeps two rows in shared memory."""
    builder = GraphBuilder("two_rows")
    x, y = (builder.input(name, F32, [2, 24_000]) for name in "xy")
    sums = [builder.apply("sum", value, dims=[1], keepdim=True) for value in (x, y)]
    crossed = [builder.apply("sub", value, s) for value, s in zip((y, x), sums, strict=True)]
    builder.output(builder.apply("mul", *crossed))
    return builder.finish()


def sums(rows: int, columns: int, dim: int) -> Fusion:
    """Return sums over one dim of a matrix."""
    builder = GraphBuilder("sums")
    builder.output(builder.apply("sum", builder.input("x", F32, [rows, columns]), dims=[dim]))
    return builder.finish()


def top() -> Fusion:
    """Return the largest elements of a long row."""
    builder = GraphBuilder("top")
    x = builder.input("x", F32, [2, 60_000])
    for result in builder.call("topk", [x], {"k": 200, "dim": 1}):
        builder.output(result)
    return builder.finish()


def turned() -> Fusion:
    """Return a norm of short rows that are stored by columns."""
    return read_text(
        "fusion: turned\ninputs:\n  x: {type: 'f16[300, 11]', strides: [1, 300]}\nops:\n"
        "  - y = sub(x, mean(x, dims=[1], keepdim=true))\noutputs: [y]\n"
    )


def wrong(plan: KernelPlan, fusion: Fusion, folder: Path, edit: Callable[[str], str]) -> str:
    """Return what is wrong with a plan's kernels in some order; nothing where all is right."""
    inputs = random_inputs(fusion, fusion.hints, 0)
    for order in ORDERS:
        try:
            outputs = run_plan(plan, inputs, folder, edit=edit, **order)
        except AssertionError as error:
            return str(error)
        verdict = compare(fusion, fusion.hints, inputs, outputs)
        if not verdict.ok:
            return f"{order}: {verdict.text()}"
    return ""


TREE: Mapping[str, Setting] = {"splits": 7, "grid_reduce": "tree"}
FUSIONS: dict[str, tuple[str, Callable[[], Fusion], Mapping[str, Setting]]] = {
    "rows": ("inner_persistent", lambda: layer_norm(F16, 2, 4104), {}),
    "two rows": ("inner_persistent", two_rows, {}),
    "split rows": ("reduction", lambda: sums(2, 100_000, 1), {}),
    "split columns": ("reduction", lambda: sums(20_000, 8, 0), {}),
    "tree of rows": ("reduction", lambda: sums(2, 10_000, 1), TREE),
    "tree of columns": ("reduction", lambda: sums(600, 8, 0), TREE),
    "sums in turns": ("reduction", lambda: sums(600, 8, 0), {**TREE, "grid_reduce": "serial_tma"}),
    "sums in bulk": ("reduction", lambda: sums(600, 8, 0), {**TREE, "grid_reduce": "parallel"}),
    "rows by stores": (
        "reduction",
        lambda: sums(4, 10_000, 1),
        {**TREE, "grid_reduce": "serial", "threads_x": 64, "threads_y": 2},
    ),
    "split top": ("sort", top, {}),
    "tile of rows": ("inner_persistent", lambda: layer_norm(F32, 300, 11), {}),
    "tile of columns": ("inner_persistent", turned, {}),
}
SYNC = "__syncthreads();"
MUTANTS = {
    "the last barrier of block_reduce_rows": (
        "rows", f"partials[row]);\n    {SYNC}", "partials[row]);"
    ),
    "the first barrier of block_reduce_rows": ("rows", f"{SYNC}\n    value =", "value ="),
    "the last barrier of last_block, rows": ("split rows", f"count - 1;\n  {SYNC}", "count - 1;"),
    "the first barrier of last_block, columns": (
        "split columns", f"shared_last;\n  {SYNC}", "shared_last;"
    ),
    "the first barrier of last_block, topk": (
        "split top", f"shared_last;\n  {SYNC}", "shared_last;"
    ),
    "the count of blocks": ("split rows", "== count - 1;", "== count - 2;"),
    "the counter of a level": ("tree of rows", "(first + (step > 1))", "first"),
    "the counter of a group": ("tree of columns", "(first + (step > 1))", "(step > 1)"),
    "the place of a group": ("tree of columns", "blockIdx.y / step * step", "blockIdx.y"),
    "the first barrier of last_block, tree": (
        "tree of columns", f"shared_last;\n  {SYNC}", "shared_last;"
    ),
    "the barrier before a bulk copy": (
        "sums in bulk", f"shared_cta();\n  {SYNC}", "shared_cta();"
    ),
    "the end of a bulk copy": ("sums in bulk", "wait_group<0>()", "wait_group_read<0>()"),
    "the turn of a block": ("sums in turns", "fusec::wait_turn(turn, split);", ""),
    "the sums that the next launch finds": (
        "sums in bulk", "*memory = Stored{};", ""
    ),
    "the turn of a block, by stores": ("rows by stores", "fusec::wait_turn(turn, split);", ""),
    "what a block leaves before its turn ends": (
        "rows by stores",
        f"{SYNC}\n  if (is_first_thread()) store_release",
        "if (is_first_thread()) store_release",
    ),
    "the turn of the next launch": ("rows by stores", "(split + 1) % kSplits", "split + 1"),
    "the barrier behind a tile": ("tile of rows", f"copy_wait<0>();\n  {SYNC}", "copy_wait<0>();"),
    "the wait for a tile": ("tile of rows", f"copy_wait<0>();\n  {SYNC}", SYNC),
    "the barrier behind a tile, columns": (
        "tile of columns", f"copy_wait<0>();\n  {SYNC}", "copy_wait<0>();"
    ),
    "the barrier before a tile is stored": (
        "tile of rows", f"{SYNC}\n  fusec::store_tile_rows", "fusec::store_tile_rows"
    ),
    "what is left for the next launch": ("split rows", '"r"(count - 1)', '"r"(count)'),
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_nightly(FUSIONS, 2))
def test_kernels_are_right_in_every_order(name: str, tmp_path: Path) -> None:
    scheduler, make, settings = FUSIONS[name]
    assert wrong(plan_of(scheduler, make(), **settings), make(), tmp_path, str) == ""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_barrier_that_is_missing_is_seen(name: str, tmp_path: Path) -> None:
    which, old, new = MUTANTS[name]
    scheduler, make, settings = FUSIONS[which]
    edited: list[bool] = []

    def edit(text: str) -> str:
        edited.append(old in text)
        return text.replace(old, new)

    found = wrong(plan_of(scheduler, make(), **settings), make(), tmp_path, edit)
    assert any(edited)
    assert "seed" in found  # what does not compile has none


@pytest.mark.parametrize("second", [0, 16, 24_000 * 4 - 16, 24_000 * 8])
def test_rows_in_shared_memory_that_overlap_are_seen(second: int, tmp_path: Path) -> None:
    fusion = two_rows()
    plan = find_scheduler("inner_persistent").build(fusion, GPU, {"storage": "shared"})
    places = re.findall(r"constexpr int (k\w+Row) = (\d+);", text_of(plan))
    assert [int(place) for _, place in places] == [0, 24_000 * 4]
    name, first = places[1]

    def edit(text: str) -> str:
        return text.replace(f"{name} = {first};", f"{name} = {second};")

    assert wrong(plan, fusion, tmp_path, edit)
