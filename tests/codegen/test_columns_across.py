"""Columns that are summed, of rows of odd pitches: read by the two vectors around each thread's."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import build_all, run_plan
from families import GPU, assert_builds, plan_of, text_of, wrong_on_host
from nightly import mostly_nightly

from fusec.codegen.dispatch import plan_sources
from fusec.ir.dtype import BF16
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.rows.reduction.family import Reduction, ReductionPlan


def summed(
    rows: int, columns: int, dtype: str = "bf16", pad: int = 0, *, two: bool = False
) -> Fusion:
    """Return sums down columns of a tensor, or of its product with another one of another pitch."""
    pitch = columns + pad
    other = f"  z: {{type: '{dtype}[{rows}, {columns}]', strides: [{pitch + 3}, 1]}}\n"
    return read_text(
        f"fusion: summed\ninputs:\n"
        f"  x: {{type: '{dtype}[{rows}, {columns}]', strides: [{pitch}, 1]}}\n"
        f"{other if two else ''}ops:\n"
        f"  - y = sum({'mul(cast(x, f32), cast(z, f32))' if two else 'cast(x, f32)'}, dims=[0])\n"
        "outputs: [y]\n"
    )


@pytest.mark.parametrize(
    ("fusion", "width"),
    [
        (summed(4097, 3001), 8),
        (summed(4097, 3001, two=True), 8),
        (summed(4097, 3001, "f32"), 4),
        (summed(4096, 3000), 0),
        (summed(4096, 45), 0),  # too few of them
        (summed(4097, 3000, pad=1), 8),
    ],
    ids=["odd", "two", "words", "whole", "short", "padded"],
)
def test_columns_of_odd_pitches_are_read_across(fusion: Fusion, width: int) -> None:
    p: Any = plan_of("reduction", fusion).parameters
    assert not p.inner
    assert (p.vector_width if p.shifted else 0) == width


def test_kernels_build_without_spills() -> None:
    assert_builds(plan_of("reduction", summed(4097, 3001)))


def test_only_the_first_row_and_the_last_are_asked_where_they_end() -> None:
    text = text_of(plan_of("reduction", summed(4097, 3001)))
    assert text.count("load_across<kVec, kPart>(x, row * columns + column, ") == 3
    assert "for (; row < rows - 1; row += kStep) {\n    constexpr bool kPart = false;" in text


def test_reads_beyond_the_tensor_are_seen(tmp_path: Path) -> None:
    plan = plan_of("reduction", summed(65, 317))
    inputs = random_inputs(plan.fusion, plan.fusion.hints, 1)
    kernels = [
        (s.kernel, s.text.replace("kPart = true", "kPart = false")) for s in plan_sources(plan)
    ]
    built = build_all(kernels, tmp_path)
    with pytest.raises(AssertionError, match="reads outside of a buffer"):
        run_plan(plan, inputs, tmp_path, seed=1, built=built)


@pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
def test_tensors_may_begin_at_any_element(is_right: bool, tmp_path: Path) -> None:
    """Then the vectors around the first row reach before the tensor, and are read by parts."""
    fusion = summed(65, 317)
    plan = plan_of("reduction", fusion)
    (source,) = plan_sources(plan)
    assert source.alignments["x"] == BF16.size
    inputs = random_inputs(fusion, fusion.hints, 1)

    def run() -> dict[str, Any]:
        def edit(text: str) -> str:
            return text if is_right else text.replace("if (row == 0) {", "if (row != 0) {")

        return run_plan(plan, inputs, tmp_path, edit=edit, offsets={"x": BF16.size})

    if is_right:
        assert compare(fusion, fusion.hints, inputs, run()).ok
    else:
        with pytest.raises(AssertionError, match="reads outside of a buffer"):
            run()


def planned(seed: int) -> ReductionPlan:
    """Return a plan of sums of random sizes, with random parameters that are legal."""
    draw, family = random.Random(seed), Reduction()
    rows, columns = draw.choice([1, 2, 3, 17, 70]), draw.choice([17, 33, 63, 129, 130])
    dtype = draw.choice(["bf16", "f16", "f32"])
    pad = draw.choice([0, 0, 1, 3])
    fusion = summed(rows, columns, dtype, pad, two=draw.random() < 0.4)
    problem: Any = family.built(fusion)
    first: Any = family.default_parameters(problem, GPU)
    for _ in range(100):
        tried = replace(
            first,
            vector_width=draw.choice([2, 4, 8]),
            threads_x=draw.choice([4, 8, 16]),
            threads_y=draw.choice([2, 4, 8]),
            splits=draw.choice([1, 1, 2, 3]),
            unrolled=draw.choice([1, 4]),
            shifted=True,
        )
        if family.legal(problem, tried, GPU) is None:
            return family.plan(problem, tried, GPU)
    return family.plan(problem, first, GPU)


@pytest.mark.parametrize(
    "seeds", mostly_nightly([range(6), range(6, 12)], 2), ids=["6 fusions", "6 more"]
)
def test_random_shapes_and_strides(seeds: range, tmp_path: Path) -> None:
    plans = [planned(seed) for seed in seeds]
    assert sum(p.parameters.shifted for p in plans) > 3
    assert wrong_on_host(plans, tmp_path) == []
