"""Row kernels whose vectors are shifted to where they are aligned: rows that begin anywhere."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import build_all, run_plan
from families import GPU, assert_builds, plan_of, text_of, wrong_on_host

from fusec.codegen.dispatch import plan_sources
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text
from fusec.run.inputs import random_inputs
from fusec.schedule.registry import find_scheduler
from fusec.segment.protocol import Refusal

SUMS = {
    "sum": ("s = sum(xf, dims=[-1])", "s"),
    "affine": ("g = add(mul(xf, w), r)\n  - s = sum(g, dims=[-1])", "s"),
    "moments": ("s, m = var_mean(xf, dims=[-1])", "s, m"),
    "largest": ("s = max(xf, dims=[-1])", "s"),
}


def summed(dtype: str, rows: str, columns: int, what: str) -> Fusion:
    """Return a reduction of rows of some length; w is by column, r by row."""
    ops, outputs = SUMS[what]
    return read_text(
        f"fusion: summed\ninputs:\n  x: '{dtype}[{rows}, {columns}]'\n"
        f"  w: '{dtype}[{columns}]'\n  r: '{dtype}[{rows}, 1]'\n"
        f"ops:\n  - xf = cast(x, dtype=f32)\n  - {ops}\noutputs: [{outputs}]\n"
    )


def drawn(seed: int, fusion: Fusion, scheduler: str, storages: list[str]) -> Any:
    """Return a plan with random parameters of those with shifted vectors that are legal."""
    draw, family = random.Random(seed), find_scheduler(scheduler)
    made: Any = family
    problem = made.built(fusion)
    assert not isinstance(problem, Refusal), problem
    first = made.default_parameters(problem, GPU)
    for _ in range(200):
        wanted: dict[str, Any] = {
            "vector_width": draw.choice([2, 4, 8, 16]),
            "threads_x": draw.choice([4, 8, 16, 32, 64, 96]),
            "threads_y": draw.choice([1, 1, 2, 4]),
            "shifted": True,
            "tile_rows": 0,
        }
        if storages:
            wanted["storage"] = draw.choice(storages)
            wanted["keep_values"] = draw.random() < 0.3
        else:
            wanted["splits"] = draw.choice([1, 1, 2, 3, 5])
            wanted["grid_reduce"] = draw.choice(["last_block", "tree"])
        tried = made.with_derived(problem, replace(first, **wanted))
        if made.legal(problem, tried, GPU) is None:
            return made.plan(problem, tried, GPU)
    raise AssertionError(f"{seed}: nothing is legal")


def sums(seed: int) -> Any:
    """Return the plan of a random reduction."""
    draw = random.Random(seed)
    dtype = draw.choice(["f32", "bf16", "f16", "bf16", "f64"])
    rows = draw.choice(["1", "3", "17", "2, 3", "8"])
    columns = draw.choice([17, 33, 129, 130, 131, 547, 1021])
    return drawn(seed, summed(dtype, rows, columns, draw.choice([*SUMS])), "reduction", [])


@pytest.mark.parametrize("seeds", [range(8)], ids=["8 fusions"])
def test_sums_of_rows_that_begin_anywhere(seeds: range, tmp_path: Path) -> None:
    assert wrong_on_host([sums(seed) for seed in seeds], tmp_path) == []


NORMS = {
    "softmax": "y = cast(softmax(xf, dim=-1), dtype={dtype})",
    "layer": "y = cast(add(mul(layer_norm(xf, norm_shape=[{columns}]), w), b), dtype={dtype})",
    "rms": "q = mean(mul(xf, xf), dims=[-1], keepdim=true)\n"
    "  - y = cast(mul(mul(xf, rsqrt(add(q, 1.0e-5))), w), dtype={dtype})",
    "added": "h = add(xf, r)\n  - m = mean(h, dims=[-1], keepdim=true)\n"
    "  - y = cast(sub(h, m), dtype={dtype})",
}


def normed(dtype: str, rows: str, columns: int, what: str) -> Fusion:
    """Return a normalisation of rows of some length; w and b are by column, r is as x."""
    shape = f"{dtype}[{rows}, {columns}]"
    ops = NORMS[what].format(dtype=dtype, columns=columns)
    return read_text(
        f"fusion: normed\ninputs:\n  x: '{shape}'\n  r: '{shape}'\n"
        f"  w: '{dtype}[{columns}]'\n  b: 'f32[{columns}]'\n"
        f"ops:\n  - xf = cast(x, dtype=f32)\n  - {ops}\noutputs: [y]\n"
    )


def norms(seed: int) -> Any:
    """Return the plan of a random normalisation."""
    draw = random.Random(seed)
    dtype, what = draw.choice(["f32", "bf16", "f16", "bf16"]), draw.choice([*NORMS])
    rows = draw.choice(["1", "3", "17", "2, 3", "8"])
    columns = draw.choice([17, 33, 129, 130, 131, 547, 1021])
    storages = ["registers", "registers", "shared", "none"]
    return drawn(seed, normed(dtype, rows, columns, what), "inner_persistent", storages)


@pytest.mark.parametrize("seeds", [range(8)], ids=["8 fusions"])
def test_norms_of_rows_that_begin_anywhere(seeds: range, tmp_path: Path) -> None:
    assert wrong_on_host([norms(seed) for seed in seeds], tmp_path) == []


ENDS = (1020, 0, 1, 2, 1020, 1019, 1014, 1013, 0)
"""A column for each row, at the ends of it."""


def found(tmp_path: Path, old: str = "", new: str = "") -> list[bool]:
    """Return for each row whether a kernel, with an edit, finds the infinity at one of its ends."""
    plan: Any = plan_of("reduction", summed("bf16", str(len(ENDS)), 1021, "largest"))
    assert old in text_of(plan)
    kernels = [(s.kernel, s.text.replace(old, new)) for s in plan_sources(plan)]
    segment = plan.problem.segment
    inputs = random_inputs(segment, segment.hints, 0)
    for row, column in enumerate(ENDS):
        inputs["x"].storage[row * 1021 + column] = float("inf")
    outputs = run_plan(plan, inputs, tmp_path, built=build_all(kernels, tmp_path))
    return [bool(s == float("inf")) for s in outputs["s"]]


def test_infinities_at_the_ends_of_rows_are_met(tmp_path: Path) -> None:
    assert all(found(tmp_path))


def test_an_element_that_is_left_out_is_seen(tmp_path: Path) -> None:
    assert not all(found(tmp_path, "? thread :", "? thread + 1 :"))
    assert not all(found(tmp_path, "own < columns", "own < end"))


def test_a_vector_past_the_end_is_seen(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="outside of a buffer"):
        found(tmp_path, " - first_column) % kVec;", " - first_column) % kVec + kVec;")


@pytest.mark.parametrize(
    ("scheduler", "fusion", "width"),
    [
        ("reduction", summed("bf16", "64", 27495, "sum"), 8),
        ("reduction", summed("bf16", "64", 27496, "sum"), 0),  # whole vectors
        ("reduction", summed("bf16", "64", 499, "sum"), 0),  # short
        ("reduction", summed("f32", "64", 38867, "sum"), 4),
        ("inner_persistent", normed("bf16", "64", 29373, "rms"), 8),
        ("inner_persistent", normed("f32", "64", 755, "softmax"), 0),  # short, of words
        ("inner_persistent", normed("f32", "64", 5135, "softmax"), 4),
    ],
)
def test_long_rows_are_shifted(scheduler: str, fusion: Fusion, width: int) -> None:
    """Where vectors are shifted a thread reads one element of the row singly at most."""
    plan: Any = plan_of(scheduler, fusion)
    p = plan.parameters
    assert (p.vector_width if p.shifted else 0) == width
    if width:
        assert_builds(plan)
        assert len(re.findall(r"= x\[", text_of(plan))) == 1


@pytest.mark.parametrize(
    ("scheduler", "op", "output"),
    [
        ("reduction", "s = argmax(x, dim=1)", "s"),
        ("inner_persistent", "y = softmax(x, dim=1)", "y: {alias: x}"),
    ],
)
def test_positions_and_what_is_overwritten_are_not_shifted(
    scheduler: str, op: str, output: str
) -> None:
    inputs = "fusion: f\ninputs:\n  x: 'bf16[64, 4107]'\n"
    plan: Any = plan_of(scheduler, read_text(f"{inputs}ops:\n  - {op}\noutputs: [{output}]\n"))
    assert not plan.parameters.shifted
