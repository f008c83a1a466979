"""Rows that share operands: one thread takes several, and loads them before it computes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import build_all, run_plan
from families import GPU, assert_builds, plan_of, text_of, wrong_on_host

from fusec.codegen.dispatch import plan_sources
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.pointwise.family import Pointwise, PointwisePlan
from fusec.schedule.space import WIDTHS
from fusec.schedule.strides import lines_of_warp, strided_loads

ROTATED = """
fusion: rotated
dims: {B: 2, NH: 32, S: 8192, D2: 64, D: 2 * D2}
inputs: {q: 'bf16[B, NH, S, D]', cos: 'f32[S, D]', sin: 'f32[S, D]'}
ops:
  - qf = cast(q, f32)
  - low = slice(qf, start_indices=[0, 0, 0, 0], end_indices=[B, NH, S, D2])
  - high = slice(qf, start_indices=[0, 0, 0, D2], end_indices=[B, NH, S, D])
  - turned = cat([neg(high), low], dim=3)
  - y = cast(add(mul(qf, cos), mul(turned, sin)), bf16)
outputs: [y]
"""
"""Tables that all heads share, and halves of a row that change places."""


def bias(rows: int, columns: int, row: str = "[H]") -> Fusion:
    return read_text(
        f"fusion: bias\ndims: {{B: {rows}, H: {columns}}}\n"
        f"inputs: {{x: 'bf16[B, H]', w: 'bf16{row}'}}\nops:\n  - y = add(x, w)\noutputs: [y]\n"
    )


@pytest.mark.parametrize(
    ("fusion", "rows"),
    [
        (bias(16384, 8192), 4),
        (bias(16384, 8192, "[B, 1]"), 1),
        (bias(16384, 8192, "[B, H]"), 1),
        (bias(512, 1024), 1),  # too little to give each thread several
        (read_text(ROTATED), 4),
    ],
    ids=["shared", "of its own", "none", "small", "tables"],
)
def test_a_thread_takes_several_rows_where_they_share_an_operand(fusion: Fusion, rows: int) -> None:
    parameters: Any = plan_of("pointwise", fusion).parameters
    flat = parameters.break_point == 0
    assert parameters.unroll == rows or flat


def loops(text: str) -> tuple[str, str, str]:
    """Return a kernel's text before the loop that loads, that loop, and the one that computes."""
    before, loads, computes = text.split("for (int u = 0; u < kUnroll; ++u) {")
    return before, loads, computes


def test_what_rows_share_is_loaded_once_and_the_rest_before_it_is_needed() -> None:
    before, loads, computes = loops(text_of(plan_of("pointwise", read_text(ROTATED))))
    assert len(re.findall(r"load_readonly<kVec>\((?:cos|sin) \+ column\)", before)) == 2
    assert loads.count("load_readonly<kVec>(q +") == 2
    assert "load" not in computes


def test_halves_of_a_row_are_one_load_and_not_two() -> None:
    _, loads, _ = loops(text_of(plan_of("pointwise", read_text(ROTATED))))
    assert re.search(r"\? -64 : 64;", loads)


def test_what_a_thread_loads_ahead_is_what_it_holds() -> None:
    plan: Any = plan_of("pointwise", bias(16384, 8192))
    family = Pointwise()
    told = [
        family.pressure(
            replace(plan, parameters=replace(plan.parameters, break_point=1, unroll=n)),
            plan.kernels[0],
        )
        for n in (1, 2, 4, 8)
    ]
    assert [p.staged for p in told] == [0, 2 * 4 + 8, 4 * 4 + 8, 8 * 4 + 8]


@pytest.mark.parametrize(
    ("fusion", "shifted"),
    [
        (bias(4097, 3001), True),
        (bias(4097, 3001, "[B, 1]"), True),
        (bias(4096, 3000), False),
        (bias(4097, 3002), True),
        (bias(4097, 3004), False),  # eight bytes at a time
    ],
    ids=["odd", "odd rows", "whole", "even", "halves"],
)
def test_rows_of_odd_lengths_are_moved_by_whole_vectors(fusion: Fusion, shifted: bool) -> None:
    plan: Any = plan_of("pointwise", fusion)
    assert plan.parameters.shifted == shifted
    assert plan.parameters.vector_width >= 2
    if shifted:
        assert plan.parameters.vector_width == 8
        assert not re.search(r"\b[xy]\[", text_of(plan))


def test_shifted_kernels_build_without_spills() -> None:
    assert_builds(plan_of("pointwise", bias(4097, 3001)))


@pytest.mark.parametrize(("rows", "blocks"), [(3, 3), (8, 8), (17, 16), (35, 24)])
def test_few_rows_have_a_block_each(rows: int, blocks: int) -> None:
    fusion = bias(rows, 30001)
    family = Pointwise()
    problem: Any = family.known(fusion)
    few = family.plan(problem, replace(family.default_parameters(problem, GPU), unroll=2), GPU)
    assert few.parameters.shifted
    assert few.kernels[0].grid[0].evaluate(fusion.hints) == blocks


@pytest.mark.parametrize(("row", "last"), [("[B, 1]", True), ("[H]", False)])
def test_ends_of_rows_that_were_read_before_come_first(row: str, last: bool) -> None:
    text = text_of(plan_of("pointwise", bias(6, 30001, row)))
    assert ("(gridDim.y - 1 - blockIdx.y)" in text) == last


def test_rows_longer_than_a_grid_is_high_have_larger_blocks() -> None:
    """A few rows that are stored by columns: one thread takes all elements of a column."""
    fusion = read_text(
        "fusion: few\ninputs:\n  x: {type: 'f16[4, 27728987]', strides: [1, 4]}\n"
        "  w: 'f16[27728987]'\nops:\n  - y = mul(x, w)\noutputs: [y]\n"
    )
    plan: Any = plan_of("pointwise", fusion)
    p = plan.parameters
    assert (p.break_point, p.unroll, p.threads_x) == (1, 4, 512)
    assert plan.kernels[0].grid[1].evaluate({}) <= 65535
    domain = plan.problem.segment_domain
    (strided,) = strided_loads(fusion, domain)
    assert lines_of_warp(strided, domain, {}) == 2  # 32 places, 8 bytes apart


def test_rows_of_one_thread_begin_alike() -> None:
    """The rows of a thread are a vector apart, so that one shift is right for all of them."""
    text = text_of(plan_of("pointwise", bias(4097, 3001)))
    assert "row = first_row + u * kVec;" in text
    assert "static_cast<int>(first_row * 3001 % kVec)" in text


def test_what_is_written_in_place_is_not_shifted() -> None:
    fusion = read_text(
        "fusion: bump\ninputs:\n  x: 'bf16[4097, 3001]'\n  w: 'bf16[3001]'\n"
        "ops:\n  - y = add(x, w)\noutputs: [y: {alias: x}]\n"
    )
    parameters: Any = plan_of("pointwise", fusion).parameters
    assert not parameters.shifted


def apart(rows: int, columns: int, pitch: int) -> Fusion:
    """Return a sum of two tensors of other pitches than its own."""
    strides = f"strides: [{pitch}, 1]"
    return read_text(
        f"fusion: apart\ninputs:\n  x: {{type: 'bf16[{rows}, {columns}]', {strides}}}\n"
        f"  z: {{type: 'bf16[{rows}, {columns}]', strides: [{pitch + 3}, 1]}}\n"
        "ops:\n  - y = add(x, z)\noutputs: [y]\n"
    )


@pytest.mark.parametrize(("columns", "pitch"), [(3001, 3002), (3000, 3005), (2998, 2998)])
def test_operands_whose_rows_begin_elsewhere_are_vectors_too(columns: int, pitch: int) -> None:
    text = text_of(plan_of("pointwise", apart(4097, columns, pitch)))
    assert "load_across<kVec, kPart>(" in text
    assert not re.search(r"\b[xyz]\[", text)


@pytest.mark.parametrize("whole", [False, True])
def test_no_vector_is_read_beyond_its_tensor(whole: bool, tmp_path: Path) -> None:
    plan: Any = plan_of("pointwise", apart(9, 301, 303))
    plan = Pointwise().plan(plan.problem, replace(plan.parameters, unroll=2), GPU)
    sources = plan_sources(plan)
    part = "kPart = false" if whole else "kPart = true"
    kernels = [(s.kernel, s.text.replace("kPart = true", part)) for s in sources]
    inputs = random_inputs(plan.fusion, plan.fusion.hints, 1)
    built = build_all(kernels, tmp_path)
    if whole:
        with pytest.raises(AssertionError, match="outside of a buffer"):
            run_plan(plan, inputs, tmp_path, seed=1, built=built)
        return
    outputs = run_plan(plan, inputs, tmp_path, seed=1, built=built)
    assert compare(plan.fusion, plan.fusion.hints, inputs, outputs).ok


def beside_a_larger_tensor() -> Fusion:
    """Return a sum whose other operand goes on behind the last row."""
    return read_text(
        "fusion: beside\ninputs:\n  x: 'bf16[9, 301]'\n  z: 'bf16[12, 321]'\nops:\n"
        "  - w = slice(z, start_indices=[1, 8], end_indices=[10, 309])\n"
        "  - y = add(x, w)\noutputs: [y]\n"
    )


@pytest.mark.parametrize(
    ("old", "new"), [("", ""), ("at <= size - N;\n", "at <= size + N;\n")], ids=["right", "wrong"]
)
def test_the_last_vector_of_the_smaller_tensor_is_read_by_parts(
    old: str, new: str, tmp_path: Path
) -> None:
    """A wrong bound (device/shifted.cuh, is_whole) reads beyond it, and is seen."""
    fusion = beside_a_larger_tensor()
    plan = plan_of("pointwise", fusion)
    assert "fusec::is_whole<kVec>(" in text_of(plan)
    inputs = random_inputs(fusion, fusion.hints, 1)

    def run() -> dict[str, Any]:
        return run_plan(plan, inputs, tmp_path, seed=1, edit=lambda text: text.replace(old, new))

    if new:
        with pytest.raises(AssertionError, match="outside of a buffer"):
            run()
    else:
        assert compare(fusion, fusion.hints, inputs, run()).ok


def operands(draw: random.Random, names: list[str], extents: list[int]) -> Iterator[str]:
    """Yield the inputs of a random fusion, the first one whole, some of them with odd strides."""
    for k in range(draw.randint(1, 4)):
        kept = [n if k == 0 or draw.random() < 0.6 else "1" for n in names]
        shape = f"{draw.choice(['f32', 'bf16', 'f16'])}[{', '.join(kept)}]"
        strides, step = list[int](), 1
        for n, extent in zip(reversed(kept), reversed(extents), strict=True):
            strides.append(step)
            step *= (1 if n == "1" else extent) + draw.choice([0, 0, 0, 1, 8])
        order = [str(s) for s in reversed(strides)]
        yield f"  x{k}: {{type: '{shape}', strides: [{', '.join(order)}]}}"


def drawn(seed: int) -> Fusion:
    """Return a random fusion of operands that are broadcast along some axes, shifted at times."""
    draw = random.Random(seed)
    extents = [draw.choice([1, 2, 3, 5, 8, 13]) for _ in range(draw.randint(1, 3))]
    extents.append(draw.choice([1, 3, 7, 8, 16, 24, 31, 40]))
    halves = extents[-1] % 2 == 0 and draw.random() < 0.5
    names = [str(e) for e in extents] if halves else [*"BCDE"[: len(extents)]]
    inputs = list(operands(draw, names, extents))
    sizes = ", ".join(f"{n}: {e}" for n, e in zip("BCDE", extents, strict=False))
    ops = ["y0 = neg(x0)"] + [f"y{k} = add(y{k - 1}, x{k})" for k in range(1, len(inputs))]
    last = f"y{len(inputs) - 1}"
    if halves:
        half, axis = extents[-1] // 2, len(extents) - 1
        zeros = [0] * len(extents)
        low = f"slice({last}, start_indices={zeros}, end_indices={[*extents[:-1], half]})"
        starts = [*zeros[:-1], half]
        high = f"slice({last}, start_indices={starts}, end_indices={extents})"
        ops.append(f"z = mul(cat([neg({high}), {low}], dim={axis}), {last})")
        last = "z"
    lines = "".join(f"  - {op}\n" for op in ops)
    text = "\n".join(inputs)
    return read_text(
        f"fusion: drawn\ndims: {{{sizes}}}\ninputs:\n{text}\nops:\n{lines}outputs: [{last}]\n"
    )


def plan_drawn(seed: int) -> PointwisePlan:
    """Return a plan of a random fusion with random parameters of those that are legal."""
    draw, family = random.Random(seed), Pointwise()
    problem: Any = family.built(drawn(seed))
    first = family.default_parameters(problem, GPU)
    for _ in range(50):
        columns = draw.choice([1, 4, 32])
        tried = replace(
            first,
            break_point=draw.randrange(4),
            vector_width=draw.choice(WIDTHS),
            unroll=draw.choice([1, 2, 4, 8]),
            threads_x=columns,
            threads_y=draw.choice([1, 1, 4]) * 8 // min(columns, 8),
            shifted=draw.random() < 0.5,
        )
        if family.legal(problem, tried, GPU) is None:
            return family.plan(problem, tried, GPU)
    return family.plan(problem, replace(first, unroll=4), GPU)


@pytest.mark.parametrize("seeds", [range(8)], ids=["8 fusions"])
def test_rows_of_random_shapes_and_strides(seeds: range, tmp_path: Path) -> None:
    plans = [plan_drawn(seed) for seed in seeds]
    assert wrong_on_host(plans, tmp_path) == []
