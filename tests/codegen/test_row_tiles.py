"""Rows of few elements: a block brings many together and takes them out of shared memory."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import build_all, run_plan
from families import GPU, plan_of, text_of
from nightly import mostly_nightly

from fusec import driver
from fusec.codegen.dispatch import plan_sources
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.registry import find_scheduler
from fusec.schedule.rows.tiles import conflicts
from fusec.segment.protocol import Refusal

NORM = "r = rsqrt(add(mean(mul(xf, xf), dims=[1], keepdim=true), 1e-6))"
BODIES = {
    "norm": (f"{NORM}\n  - y = cast(mul(mul(xf, r), w), TYPE)", "y"),
    "softmax": ("y = cast(softmax(xf, 1), TYPE)", "y"),
    "added": (f"{NORM}\n  - y = cast(add(mul(xf, r), cast(z, f32)), TYPE)\n  - m = neg(r)", "y, m"),
    "two": (f"{NORM}\n  - y = mul(xf, r)\n  - n = cast(neg(y), TYPE)", "y, n"),
    "over": (f"{NORM}\n  - y = cast(mul(xf, r), TYPE)", "y: {alias: x}"),
    "sum": ("y = sum(xf, dims=[1])", "y"),
    "moments": ("v, m = var_mean(xf, dims=[1])", "v, m"),
    "position": ("y = argmax(xf, dims=[1])", "y"),
}
SUMS = ("sum", "moments", "position")


def rows(dtype: str, count: int, columns: int, body: str, strides: str = "") -> Fusion:
    """Return a fusion of rows whose input may be padded, or stored by columns."""
    ops, outputs = BODIES[body]
    strides = strides or f"[{columns}, 1]"
    used = "cast(z, f32)" in ops, "w)" in ops
    z = f"  z: '{dtype}[{count}, {columns}]'\n" if used[0] else ""
    w = f"  w: 'f32[{columns}]'\n" if used[1] else ""
    return read_text(
        f"fusion: rows\ninputs:\n  x: {{type: '{dtype}[{count}, {columns}]', strides: {strides}}}\n"
        f"{z}{w}ops:\n  - xf = cast(x, dtype=f32)\n  - {ops.replace('TYPE', dtype)}\n"
        f"outputs: [{outputs}]\n"
    )


def drawn(seed: int) -> Any:
    """Return a plan with random parameters of those with tiles that are legal."""
    draw = random.Random(seed)
    body = draw.choice([*BODIES])
    made: Any = find_scheduler("reduction" if body in SUMS else "inner_persistent")
    for _ in range(200):
        dtype = draw.choice(["f32", "bf16", "f16", "f64"])
        count, columns = draw.choice([1, 7, 64, 129, 300]), draw.choice([2, 3, 4, 11, 14, 31, 40])
        pad = draw.choice([0, 1, 2])
        strides = draw.choice([f"[{columns + pad}, 1]", f"[1, {count + pad}]"])
        problem = made.built(rows(dtype, count, columns, body, strides))
        if isinstance(problem, Refusal):
            continue
        wanted = {
            "storage": "registers",
            "vector_width": draw.choice([1, 1, 2, 4]),
            "threads_x": draw.choice([1, 2, 4, 8, 32]),
            "threads_y": draw.choice([8, 16, 32, 64]),
            "tile_rows": draw.choice([8, 16, 32, 64, 128]),
            "keep_values": draw.random() < 0.3,
            "shifted": False,
            "splits": 1,
        }
        first = made.default_parameters(problem, GPU)
        known = {k: v for k, v in wanted.items() if hasattr(first, k)}
        tried = made.with_derived(problem, replace(first, **known))
        if made.legal(problem, tried, GPU) is None:
            return made.plan(problem, tried, GPU)
    raise AssertionError(f"{seed}: nothing is legal")


@pytest.mark.parametrize(
    "seeds", mostly_nightly([range(7), range(7, 32)], 2), ids=["7 plans", "25 more"]
)
def test_tiles_of_rows_agree_with_the_reference(seeds: range, tmp_path: Path) -> None:
    plans = [drawn(seed) for seed in seeds]
    sources = [(s.kernel, s.text) for p in plans for s in plan_sources(p)]
    for seed, plan, made in zip(seeds, plans, build_all(sources, tmp_path), strict=True):
        segment = plan.problem.segment
        inputs = random_inputs(segment, segment.hints, seed)
        outputs = run_plan(plan, inputs, tmp_path, seed=seed, built=[made])
        again = run_plan(plan, inputs, tmp_path, backwards=True, seed=seed + 1, built=[made])
        assert all(again[name].tobytes() == outputs[name].tobytes() for name in outputs), seed
        verdict = compare(segment, segment.hints, inputs, outputs)
        assert verdict.ok, f"{seed}: {plan.parameters}\n{verdict.text()}"


CHOSEN = [
    ("f32", 3, "[3, 1]", "norm", True),
    ("bf16", 4, "[4, 1]", "softmax", True),
    ("bf16", 31, "[1, 1000002]", "norm", True),
    ("f16", 94, "[1, 1000002]", "norm", True),
    ("bf16", 164, "[168, 1]", "norm", True),
    ("bf16", 8, "[17, 1]", "sum", True),
    ("bf16", 8, "[8, 1]", "sum", False),
    ("bf16", 8, "[40, 1]", "sum", False),
    ("bf16", 512, "[512, 1]", "norm", False),
    ("f32", 755, "[755, 1]", "softmax", False),
]


@pytest.mark.parametrize(("dtype", "columns", "strides", "body", "tiles"), CHOSEN)
def test_short_rows_come_in_tiles_and_in_one_launch(
    dtype: str, columns: int, strides: str, body: str, tiles: bool
) -> None:
    fusion = rows(dtype, 1_000_002, columns, body, strides)
    found = driver.plan(fusion, CompileOptions(targets=("sm_90a",)))
    (plan,) = found.plans
    assert (plan.parameters.settings["tile_rows"] > 0) == tiles


def test_settings_that_tiles_do_not_have_leave_them() -> None:
    fusion = rows("bf16", 300, 11, "softmax")
    assert plan_of("inner_persistent", fusion).parameters.settings["tile_rows"]
    for settings in ({"tile_rows": 0}, {"storage": "none"}, {"threads_x": 64}):
        alone: Any = plan_of("inner_persistent", fusion, **settings).parameters
        assert alone.tile_rows == 0
    wide = rows("bf16", 300, 512, "softmax")
    assert "fusec::load_tile_rows<" in text_of(plan_of("inner_persistent", wide, tile_rows=16))


def test_banks_take_turns_for_rows_that_lie_on_the_same() -> None:
    assert conflicts(pitch=3, size=4, width=1, threads=1) == 1
    assert conflicts(pitch=16, size=4, width=1, threads=1) == 16
    assert conflicts(pitch=16, size=4, width=1, threads=16) == 1
    assert conflicts(pitch=4, size=2, width=4, threads=1) == 2  # 256 bytes of a warp
    assert conflicts(pitch=10, size=2, width=1, threads=1) == 1


@pytest.mark.parametrize(
    ("new", "is_right"),
    [("kAcross * kWide", True), ("kAcross + kWide", False)],
    ids=["right", "wrong"],
)
def test_a_block_takes_turns_at_more_columns_than_it_has_threads(
    new: str, is_right: bool, tmp_path: Path
) -> None:
    """Rows stored by columns, of odd lengths: one element at a time, in two turns."""
    family: Any = find_scheduler("inner_persistent")
    problem = family.built(rows("f32", 301, 11, "norm", "[1, 303]"))
    shape = {"vector_width": 1, "threads_x": 1, "threads_y": 32, "tile_rows": 64}
    record = family.with_derived(problem, replace(family.default_parameters(problem, GPU), **shape))
    plan = family.plan(problem, record, GPU)
    assert "load_tile_transposed<kThreads, kTileRows, 11, 11, 1>(" in text_of(plan)

    def edit(text: str) -> str:
        return text.replace("row += kAcross * kWide", f"row += {new}")

    segment = plan.problem.segment
    inputs = random_inputs(segment, segment.hints, 0)
    outputs = run_plan(plan, inputs, tmp_path, seed=0, edit=edit)
    assert compare(segment, segment.hints, inputs, outputs).ok == is_right
