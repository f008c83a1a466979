"""Kernels that start beside the end of the one before: marked, waiting, and seen if they do not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_on_cpu import run_plan
from paths import ROOT

from fusec import driver, target
from fusec.codegen.dispatch import plan_sources
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.reference.verdict import compare
from fusec.run.binary.sass import sass
from fusec.run.build import Source, build
from fusec.run.inputs import random_inputs
from fusec.schedule.overlap import overlap_launches

CHAIN = """\
fusion: chain
dims: {B: 6, H: 40}
inputs: {x: "f32[B, H]"}
ops:
  - a = sum(x, dims=[0])
  - b = cumsum(a, dim=0)
  - c = mul(x, b)
  - d = sum(c, dims=[1])
outputs: [c, d]
"""
ACCESS = re.compile(r"LDG|STG|LDGSTS|UBLKCP|UTMA|ATOM|RED\b")
OPCODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)")


def chain(**options: object) -> driver.Compilation:
    return driver.Compilation(read_text(CHAIN), replace(CompileOptions(overlap=True), **options))  # pyright: ignore[reportArgumentType]


def test_all_but_the_first_start_beside_the_end_of_the_one_before() -> None:
    program = chain()
    kernels = [k for plan in program.plans for k in plan.kernels]
    assert len(kernels) > 2
    assert [k.overlapped for k in kernels] == [False] + [True] * (len(kernels) - 1)
    assert [k.followed for k in kernels] == [True] * (len(kernels) - 1) + [False]
    assert [launch.overlapped for launch in program.host.launches] == [
        k.overlapped for k in kernels
    ]
    for source in program.kernel_sources:
        body = source.text.split(") {\n", 1)[1]
        lines = [line.split(";")[0].strip() for line in body.splitlines()[:2]]
        calls = ["fusec::let_next_kernel_start()"] * source.kernel.followed
        calls += ["fusec::wait_for_kernels_before()"] * source.kernel.overlapped
        assert lines[: len(calls)] == calls


@pytest.mark.parametrize("changes", [{"overlap": False}, {"targets": ("sm_80",)}])
def test_kernels_do_not_overlap_unasked_nor_before_sm_90(changes: dict[str, object]) -> None:
    program = chain(**changes)
    assert not any(k.overlapped or k.followed for p in program.plans for k in p.kernels)
    assert "overlap.cuh" not in "".join(s.text for s in program.kernel_sources)


def test_what_zeroes_a_workspace_parts_two_kernels() -> None:
    plans = list(chain(overlap=False).plans)
    zeroed = next(p for p in plans[1:] if p.kernels)
    number = plans.index(zeroed)
    from fusec.ir.dim import dim
    from fusec.ir.dtype import U32
    from fusec.schedule.plan import Workspace

    space = Workspace("counts", U32, dim(1), "zeroed per launch")
    plans[number] = replace(zeroed, workspaces=(space,))
    marked = overlap_launches(plans, target.find("sm_90a"))
    assert not marked[number].kernels[0].overlapped
    assert not marked[number - 1].kernels[-1].followed
    assert any(k.overlapped for p in marked[number + 1 :] for k in p.kernels)


def test_a_kernel_that_does_not_wait_is_seen(tmp_path: Path) -> None:
    plan = chain().plans[-1]
    assert plan.kernels[0].overlapped
    fusion = plan.fusion
    inputs = random_inputs(fusion, fusion.hints, seed=3)
    assert compare(fusion, fusion.hints, inputs, run_plan(plan, inputs, tmp_path)).ok
    with pytest.raises(AssertionError, match="before the end of the kernels before"):
        run_plan(
            plan,
            inputs,
            tmp_path,
            edit=lambda t: t.replace("fusec::wait_for_kernels_before();", ""),
        )


@pytest.mark.parametrize(
    "name", ["gelu_bias", "softmax", "transpose", "column_mean", "linear_gelu"]
)
def test_machine_code_waits_before_it_touches_memory(name: str) -> None:
    """Loads of what a kernel only reads might be moved up: nothing tells that they may change."""
    path = ROOT / "examples" / f"{name}.yaml"
    (program,) = driver.programs(str(path))
    plan = program.plans[0]
    marked = replace(plan, kernels=tuple(replace(k, overlapped=True) for k in plan.kernels))
    (source, *_) = plan_sources(marked)
    built = build([Source.of(source)], ("sm_90a",), 1)
    (artifact,) = built.values()
    codes = OPCODE.findall(sass(artifact.cubin))
    waits = codes.index("ACQBULK")
    assert any(ACCESS.match(code) for code in codes[waits:])
    assert not [code for code in codes[:waits] if ACCESS.match(code)]
