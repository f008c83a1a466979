"""Row kernels with column accumulators: numbers on the host, registers, and refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from paths import ROOT, TESTS

from fusec import target
from fusec.codegen.dispatch import kernel_source, plan_sources
from fusec.ir.graph import Fusion
from fusec.parse import read_file, read_text
from fusec.reference.verdict import compare
from fusec.run.build import Source, build
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.schedule.rows.inner_outer_persistent.family import InnerOuterPersistent
from fusec.segment.protocol import Estimate, Refusal

EXAMPLES = ROOT / "examples"
H200 = target.find("sm_90a")
CASES = {
    # No row is reduced: tiles of columns, the rows of a block run out at different times.
    "gelu": """
fusion: gelu_backward
dims: {B: 37, H: 520}
inputs:
  dy: bf16[B, H]
  x: bf16[B, H]
ops:
  - g = mul(cast(dy, f32), sigmoid(cast(x, f32)))
  - dx = cast(g, bf16)
  - db = sum(g, dims=[0])
outputs: [dx, db]
""",
    # Single elements of rows that no vector divides; a tensor called like the templates' variable.
    "odd": """
fusion: rms_odd
dims: {B: 19, H: 103}
inputs:
  dy: bf16[B, H]
  x: bf16[B, H]
  row: bf16[H]
  rstd: f32[B]
ops:
  - r = broadcast(rstd, [false, true])
  - dyf = cast(dy, f32)
  - xn = mul(cast(x, f32), r)
  - dxn = mul(dyf, cast(row, f32))
  - c = mul(sum(mul(dxn, xn), dims=[1], keepdim=true), 0.01)
  - dx = cast(mul(sub(dxn, mul(xn, c)), r), bf16)
  - dw = cast(sum(mul(dyf, xn), dims=[0]), bf16)
outputs: [dx, dw, c]
""",
    # Two column sets, one in the other, of several kinds; a warp holds rows that run out together.
    "extremes": """
fusion: extremes
dims: {A: 3, B: 21, H: 36}
inputs:
  x: f64[A, B, H]
  y: i32[A, B, H]
ops:
  - m = max(x, dims=[2], keepdim=true)
  - e = sub(x, m)
  - s = sum(e, dims=[1])
  - t = min(e, dims=[0, 1])
  - n = sum(y, dims=[0, 1])
  - z = add(s, 1.5)
outputs: [e, s, t, n, z]
""",
    # The reduced axis lies between kept ones; the sums meet other inputs in the finish.
    "middle": """
fusion: middle
dims: {A: 4, B: 9, C: 3, H: 48}
inputs:
  x: f32[A, B, C, H]
  w: f16[C, H]
  alpha: f32 = 0.5
ops:
  - m = sum(x, dims=[3], keepdim=true)
  - e = mul(x, m)
  - s = sum(cast(e, f16), dims=[1])
  - t = add(mul(s, alpha), w)
outputs: [e, s, t]
""",
    "in_place": """
fusion: in_place
dims: {B: 33, H: 72}
inputs:
  x: f32[B, H]
  total: f32[H]
ops:
  - m = sum(x, dims=[1], keepdim=true)
  - e = sub(x, m)
  - s = add(sum(e, dims=[0]), total)
outputs:
  e: {alias: x}
  s: {alias: total}
""",
    # A row so long that it stays in the ring, and a variance in two passes.
    "long": """
fusion: long_rows
dims: {B: 4, H: 16384}
inputs:
  dy: bf16[B, H]
  x: bf16[B, H]
  w: bf16[H]
ops:
  - xf = cast(x, f32)
  - var, mean = var_mean(xf, dims=[1], correction=0, keepdim=true)
  - xn = mul(sub(xf, mean), rsqrt(add(var, 0.001)))
  - dyf = cast(dy, f32)
  - y = cast(mul(xn, mul(dyf, cast(w, f32))), bf16)
  - dw = sum(mul(dyf, xn), dims=[0])
  - db = sum(dyf, dims=[0])
outputs: [y, dw, db]
""",
}


def seed(batches: int, rows: int, columns: int) -> Fusion:
    """Return the fusion of the example at other sizes."""
    text = (EXAMPLES / "seed_2146.yaml").read_text().split("# The two kernels")[0]
    sizes = {"56, 1024, 1024": (batches, rows, columns), "56, 1, 1024": (batches, 1, columns)}
    sizes |= {"56, 1024, 1": (batches, rows, 1), "56, 1024": (batches, rows)}
    for old, new in sizes.items():
        text = text.replace(f"[{old}]", str(list(new)))
    return read_text(text)


def layer_norm(rows: int, columns: int) -> Fusion:
    return read_file(str(EXAMPLES / "layernorm_backward.yaml"), {"B": rows, "H": columns})


def fusion_of(name: str) -> Fusion:
    made = {
        "seed": lambda: seed(3, 23, 1024),
        "seed_small": lambda: seed(2, 21, 72),
        "layer_norm": lambda: layer_norm(45, 2048),
    }
    return made[name]() if name in made else read_text(CASES[name])


def plan_of(fusion: Fusion, arch: str = "sm_90a") -> KernelPlan:
    gpu = target.find(arch)
    proposal = InnerOuterPersistent().propose(fusion, gpu)
    assert isinstance(proposal, Estimate), proposal
    return InnerOuterPersistent().build(fusion, gpu)


@pytest.mark.parametrize("name", [*CASES, "seed", "seed_small", "layer_norm"])
def test_numbers_are_right_in_any_order_of_threads(name: str, tmp_path: Path) -> None:
    fusion = fusion_of(name)
    plan, inputs = plan_of(fusion), random_inputs(fusion, fusion.hints, seed=3)
    first = run_plan(plan, inputs, tmp_path)
    other = run_plan(plan, inputs, tmp_path, backwards=True, at_once=True)
    verdict = compare(fusion, fusion.hints, inputs, first)
    assert verdict.ok, verdict.text()
    assert {k: v.tobytes() for k, v in first.items()} == {k: v.tobytes() for k, v in other.items()}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("copy_wait<kStages - 2>", "copy_wait<kStages - 1>"),  # a row is read before it is there
        ("slot == 0 ? kStages - 1 : slot - 1", "slot"),  # a row is overwritten before it is read
        ("range % kRanges * kRangeRows", "range % kRanges * (kRangeRows - 1)"),
        ("group * kRanges + range", "group + range"),
        ("range < kRanges; range += kThreadsY", "range < kRanges - 1; range += kThreadsY"),
        ("T52_part[c][v] +=", "T52_part[c][v] ="),
    ],
)
def test_a_wrong_kernel_is_seen(old: str, new: str, tmp_path: Path) -> None:
    fusion = seed(2, 23, 1024)
    plan, inputs = plan_of(fusion), random_inputs(fusion, fusion.hints, seed=3)
    texts = [s.text for s in plan_sources(plan)]
    assert any(old in text for text in texts)

    def is_right(at_once: bool) -> bool:
        try:
            found = run_plan(
                plan, inputs, tmp_path, at_once=at_once, edit=lambda t: t.replace(old, new)
            )
        except AssertionError as error:
            return "overwrites what thread" not in str(error)
        return compare(fusion, fusion.hints, inputs, found).ok

    assert not all(is_right(at_once) for at_once in (False, True))


@pytest.mark.parametrize("instead", ["", "if (threadIdx.x == 0) fusec::wait_for_kernels_before();"])
def test_a_finish_that_does_not_wait_is_seen(instead: str, tmp_path: Path) -> None:
    fusion = seed(2, 23, 1024)
    plan, inputs = plan_of(fusion), random_inputs(fusion, fusion.hints, seed=3)
    assert [k.overlapped for k in plan.kernels] == [False, True]
    with pytest.raises(AssertionError, match="before the end of the kernels before"):
        run_plan(
            plan,
            inputs,
            tmp_path,
            edit=lambda t: t.replace("fusec::wait_for_kernels_before();", instead),
        )


def test_kernels_overlap_where_a_gpu_can() -> None:
    fusion = layer_norm(45, 2048)
    texts = [s.text for s in plan_sources(plan_of(fusion, "sm_80"))]
    assert not any("overlap" in text for text in texts)
    main, finish = (s.text for s in plan_sources(plan_of(fusion)))
    assert main.count("let_next_kernel_start") == finish.count("wait_for_kernels_before") == 1
    body = finish.split(") {\n", 1)[1]
    assert body.startswith("  fusec::wait_for_kernels_before();\n")
    family = InnerOuterPersistent()
    apart = family.build(fusion, H200, {"grid_reduce": "kernel"})
    assert not any(k.overlapped for k in apart.kernels)
    refused = family.refusal(fusion, target.find("sm_80"), {"grid_reduce": "overlap"})
    assert refused is not None
    assert refused.rule == "grid_reduce"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "shape",
    ["seed", (16384, 8192), (65536, 1024), (8192, 16384), (4096, 768), (4096, 12288), (100, 40)],
)
def test_kernels_build_without_spills(shape: str | tuple[int, int], arch: str) -> None:
    whole = shape == "seed"
    fusion = read_file(str(EXAMPLES / "seed_2146.yaml")) if whole else layer_norm(*shape)
    plan = plan_of(fusion, arch)
    sources = [Source(s.name, s.text) for s in plan_sources(plan)]
    assert len(sources) == 2
    for artifact in build(sources, [arch]).values():
        assert artifact.spill_bytes == 0
        assert artifact.warnings == ()
        assert artifact.registers <= 168


def test_the_seed_reads_its_inputs_once_in_two_launches() -> None:
    fusion = read_file(str(EXAMPLES / "seed_2146.yaml"))
    proposal = InnerOuterPersistent().propose(fusion, H200)
    assert isinstance(proposal, Estimate)
    assert proposal.kernels == 2
    assert proposal.bytes < 1.01 * 3 * 56 * 1024 * 1024 * 2
    plan = plan_of(fusion)
    main, finish = plan_sources(plan)
    copies = re.findall(r"copy_async_16\(&(\w+)_ring", main.text)
    assert copies == ["T3", "T6"]
    assert main.text.count("__syncthreads") == 0
    assert main.text.count("block_reduce_rows_in_turns") == 1
    assert main.name == "seed_2146_inner_outer_persistent"
    assert "atomic" not in main.text + finish.text
    ranges = plan.parameters.ranges
    assert {str(w.size) for w in plan.workspaces} == {str(56 * ranges * 1024)}


def test_ranges_load_the_processors_alike() -> None:
    for rows, columns in ((16384, 8192), (65536, 1024), (4096, 4096)):
        chosen = plan_of(layer_norm(rows, columns)).parameters
        assert (chosen.ranges - 1) * chosen.range_rows < rows <= chosen.ranges * chosen.range_rows
        busiest = -(-chosen.ranges // H200.sms) * chosen.range_rows
        assert busiest <= 1.06 * rows / H200.sms


REFUSED = {
    "column_sums": ["s = sum(x, dims=[0], keepdim=true)", "y = sub(x, s)"],
    "no column sums": ["y = sum(x, dims=[1])"],
    "reduction_axes": ["s = sum(x, dims=[0])", "y = sum(x)"],
}


@pytest.mark.parametrize("rule", REFUSED)
def test_other_shapes_are_refused_by_rule(rule: str) -> None:
    lines = "\n".join(f"  - {line}" for line in REFUSED[rule])
    outputs = "[s, y]" if "s =" in lines else "[y]"
    fusion = read_text(
        f"fusion: other\ninputs:\n  x: f32[64, 256]\nops:\n{lines}\noutputs: {outputs}\n"
    )
    refusal = InnerOuterPersistent().propose(fusion, H200)
    assert isinstance(refusal, Refusal)
    assert refusal.rule == rule, refusal


def test_a_row_longer_than_the_registers_is_refused() -> None:
    refusal = InnerOuterPersistent().propose(layer_norm(1024, 65536), H200)
    assert isinstance(refusal, Refusal)
    assert refusal.rule == "registers"


def test_sums_next_to_each_other_are_refused() -> None:
    fusion = read_text(
        "fusion: sides\ninputs:\n  x: f32[8, 16, 64]\nops:\n  - s = sum(x, dims=[0])\n"
        "  - t = sum(x, dims=[1])\noutputs: [s, t]\n"
    )
    refusal = InnerOuterPersistent().propose(fusion, H200)
    assert isinstance(refusal, Refusal)
    assert "are independent column reductions" in refusal.because


def test_text_is_the_same_every_time() -> None:
    texts = [[s.text for s in plan_sources(plan_of(seed(3, 23, 64)))] for _ in range(2)]
    assert texts[0] == texts[1]
    assert np.unique([len(t) for t in texts]).tolist() == [2]


def test_a_kernel_with_all_registers_asks_for_one_block() -> None:
    plan = plan_of(seed(3, 23, 64))
    assert plan.parameters.blocks > 1
    text = kernel_source(plan, replace(plan.kernels[0], all_registers=True)).text
    assert "kBlocks = 1;" in text


def test_what_the_ring_brings_is_no_place() -> None:
    """Threads whose row is past the end read from the ring what no copy brought."""
    path = TESTS / "regressions" / "places_of_rows_past_the_end.yaml"
    plan = InnerOuterPersistent().build(read_file(path), H200)
    (main, _) = plan_sources(plan)
    assert "x7_ring" in main.text
    assert "i0_ring" not in main.text
