"""Transposes whose lines and columns begin anywhere: whole vectors on both sides all the same."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import build_all, run_plan
from families import GPU, assert_builds, plan_of, text_of, wrong_on_host
from fences import check
from nightly import mostly_nightly

from fusec.codegen.dispatch import kernel_source, plan_sources
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.transpose.family import Transpose, TransposePlan
from fusec.schedule.transpose.tile import COLUMNS, LINES, TransposeParameters


def turned(b: int, m: int, n: int, dtype: str = "bf16", pads: tuple[int, int] = (0, 0)) -> Fusion:
    """Return a batched transpose with what lies beside it, of padded rows."""
    pitch = n + pads[0]
    strides = [(m + pads[1]) * pitch, pitch, 1]
    return read_text(
        f"fusion: turned\ninputs:\n  x: {{type: '{dtype}[{b}, {m}, {n}]', strides: {strides}}}\n"
        f"  row: '{dtype}[{m}]'\n  side: '{dtype}[{n}, 1]'\nops:\n"
        "  - y = mul(sub(permute(x, [0, 2, 1]), row), side)\noutputs: [y]\n"
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "shifted"),
    [
        ((3, 1031, 1025), "bf16", True),
        ((3, 1024, 1025), "bf16", True),
        ((3, 1031, 1024), "bf16", True),
        ((3, 1024, 1032), "bf16", False),
        ((3, 1030, 1026), "bf16", True),
        ((3, 1028, 1028), "bf16", False),
        ((3, 1031, 1025), "f32", True),
        ((3, 1031, 1025), "u8", True),
    ],
)
def test_a_tensor_is_never_moved_by_elements_of_two_bytes(
    shape: tuple[int, int, int], dtype: str, shifted: bool
) -> None:
    p: Any = plan_of("transpose", turned(*shape, dtype)).parameters
    size = {"u8": 1, "bf16": 2, "f32": 4}[dtype]
    assert p.shifted == shifted
    assert min(p.read_width, p.write_width) * size >= 4


@pytest.mark.parametrize("dtype", ["u8", "bf16"])
def test_kernels_build_without_spills(dtype: str) -> None:
    assert_builds(plan_of("transpose", turned(3, 1031, 1025, dtype)))


def test_columns_are_copied_whole_and_what_runs_along_them_is_loaded_meanwhile() -> None:
    text = text_of(plan_of("transpose", turned(3, 1031, 1025)))
    places = ["copy_vector<kReadVec>", "load_across<kWriteVec, kPart>(row", "copy_wait<0>"]
    assert sorted(places, key=text.index) == places


def test_no_alignment_is_asked_for() -> None:
    plan = plan_of("transpose", turned(3, 1031, 1025))
    source = kernel_source(plan, plan.kernels[0])
    assert source.alignments == {"x": 2, "row": 2, "side": 2, "y": 2}


@pytest.mark.parametrize("barrier", ["  __syncthreads();\n", "  fusec::copy_wait<0>();\n", ""])
def test_threads_wait_between_the_two_sides(barrier: str, tmp_path: Path) -> None:
    plan = plan_of("transpose", turned(1, 131, 97))
    assert check(text_of(plan)) == []
    kernels = [(s.kernel, s.text.replace(barrier, "")) for s in plan_sources(plan)]
    inputs = random_inputs(plan.fusion, plan.fusion.hints, 1)
    outputs = run_plan(plan, inputs, tmp_path, seed=1, built=build_all(kernels, tmp_path))
    assert compare(plan.fusion, plan.fusion.hints, inputs, outputs).ok == (not barrier)


def planned(seed: int) -> TransposePlan:
    """Return a plan of a transpose of random sizes, with random parameters that are legal."""
    draw, family = random.Random(seed), Transpose()
    sides = [draw.choice([8, 15, 16, 33, 40, 71, 130]) + draw.choice([0, 0, 1]) for _ in range(2)]
    pads = draw.choice([0, 0, 1, 3, 8]), draw.choice([0, 1])
    dtype = draw.choice(["bf16", "f16", "u8", "f32", "f64"])
    fusion = turned(draw.choice([1, 2, 3]), sides[0], sides[1], dtype, pads)
    problem: Any = family.built(fusion)
    first: Any = family.default_parameters(problem, GPU)
    for _ in range(100):
        tried = replace(
            first,
            tile_lines=draw.choice(LINES),
            tile_columns=draw.choice(COLUMNS),
            read_width=draw.choice([1, 2, 4, 8, 16]),
            write_width=draw.choice([1, 2, 4, 8, 16]),
            shifted=draw.random() < 0.7,
        )
        if family.legal(problem, tried, GPU) is None:
            return family.plan(problem, tried, GPU)
    return family.plan(problem, first, GPU)


@pytest.mark.parametrize(
    "seeds", mostly_nightly([range(4), range(4, 8)], 2), ids=["4 fusions", "4 more"]
)
def test_random_shapes_and_strides(seeds: range, tmp_path: Path) -> None:
    plans = [planned(seed) for seed in seeds]
    assert wrong_on_host(plans, tmp_path) == []


PICKED = [
    ("f16[64, 40, 64]", [3, 1, 1], 2, 4, [2, 1, 0]),
    ("f16[1, 64, 8, 8]", [8, 3, 1, 4096], 0, 1, [3, 2, 1, 0]),
    ("bf16[7, 33, 65]", [65 * 33, 65, 1], 0, 5, [0, 2, 1]),
]
"""A table and its strides, the dim along which rows are picked, how many, and their order."""


@pytest.mark.parametrize(("given", "strides", "along", "count", "order"), PICKED)
def test_rows_that_are_picked_by_an_index_are_turned(
    given: str, strides: list[int], along: int, count: int, order: list[int], tmp_path: Path
) -> None:
    """The index is read once for a block, also where elements of the table share memory."""
    fusion = read_text(
        f"fusion: picked\ninputs:\n  x: {{type: '{given}', strides: {strides}}}\n"
        f"  i: i64[{count}]\nops:\n  - y = index_select(x, i, dim={along})\n"
        f"  - z = permute(y, {order})\noutputs: [z]\n"
    )
    plan: Any = plan_of("transpose", fusion)
    assert plan.parameters.shifted
    assert wrong_on_host([plan], tmp_path) == []


@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize("through", ["i", "where(lt(i, 9), i, 0)"])
def test_indices_do_not_go_through_a_shifted_tile(index: str, through: str) -> None:
    """Of vectors that begin before a line or end behind it, elements are not filled."""
    fusion = read_text(
        f"fusion: picked\ninputs:\n  x: 'f32[17, 16]'\n  i: {{type: '{index}[17, 17]', "
        "range: [0, 15]}\nops:\n"
        f"  - j = permute({through}, [1, 0])\n  - y = gather(x, j, dim=1)\noutputs: [y]\n"
    )
    family = Transpose()
    problem = family.built(fusion)
    default = family.default_parameters(problem, GPU)
    assert isinstance(default, TransposeParameters)
    assert not default.shifted
    refusal = family.why_illegal(problem, replace(default, shifted=True), GPU)
    assert refusal is not None
    assert "indices go through the tile" in refusal.because
