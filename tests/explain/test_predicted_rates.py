"""Predictions are possible: no segment moves less than its bound, or runs beyond a peak."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from draws import times
from nightly import mostly_nightly
from paths import ROOT

from benchmarks.corpus_graph import read_graph
from benchmarks.corpus_inputs import prepare
from fusec import driver, target
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.explain.record import record_of
from fusec.explain.text import explanation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.traffic import work
from tools.draw import ALL, draw_fusion

EXAMPLES = ROOT / "examples"
CORPUS = ROOT.parent / "shared" / "corpus" / "graphs"
H200 = target.find("sm_90a")


def assert_possible(program: Compilation) -> None:
    """Fail where a total or a segment moves less than it must, or is predicted beyond a peak."""
    record = record_of(program, "sm_90a")
    assert 0 <= record.floor_bytes <= record.bytes
    assert 0 <= record.share <= 1
    assert 0 <= record.tensor_share <= 1
    for facts, segment in zip(record.segments, program.segmented.segments, strict=True):
        assert 0 <= facts.floor_bytes <= facts.bytes, facts.name
        assert 0 <= facts.share <= 1, facts.name
        assert 0 <= facts.tensor_share <= 1, facts.name
        if facts.scheduler in ("no_op", "placement"):
            continue  # views: no kernel
        estimate, bytes = segment.estimate, facts.bytes + facts.workspace_bytes - facts.l2_bytes
        assert estimate is not None
        assert bytes <= H200.read_bandwidth * facts.seconds, facts.name
        from_l2 = estimate.moved + estimate.l2_bytes
        assert segment.iterations * from_l2 <= H200.l2_bandwidth * facts.seconds, facts.name
        flops, special = work(segment.fusion)
        assert flops <= H200.flops * facts.seconds, facts.name
        assert special <= H200.special * facts.seconds, facts.name


@pytest.mark.parametrize(
    "path", mostly_nightly(sorted(EXAMPLES.rglob("*.yaml")), 9), ids=lambda p: p.stem
)
def test_examples(path: Path) -> None:
    for program in driver.programs(str(path)):
        assert_possible(program)


GEMMS = {
    "bf16": ("bf16", "linear(x, w)"),
    "fp8": ("f8e4m3", "cast(linear(x, w), bf16)"),
    "fp8 in f32": ("f8e5m2", "cast(linear(cast(x, f32), cast(w, f32)), bf16)"),
    "fp8 in bf16": ("f8e4m3", "linear(cast(x, bf16), cast(w, bf16))"),
    "tf32": ("f32", "linear(tf32(x), tf32(w))"),
    "f32": ("f32", "linear(x, w)"),
    "int8": ("i8", "linear(cast(x, i32), cast(w, i32))"),
}


def gemm(name: str, m: int, n: int, k: int) -> Fusion:
    dtype, op = GEMMS[name]
    inputs = f'x: "{dtype}[{m}, {k}]", w: "{dtype}[{n}, {k}]"'
    return read_text(f"fusion: f\ninputs: {{{inputs}}}\nops:\n  - y = {op}\noutputs: [y]\n")


@pytest.mark.parametrize("name", GEMMS)
def test_large_gemms(name: str) -> None:
    for m, n, k in ((8192, 8192, 8192), (16384, 28672, 8192), (8, 8192, 8192), (64, 64, 1 << 20)):
        assert_possible(driver.plan(gemm(name, m, n, k), CompileOptions()))


def test_gemms_of_8_bit_floats_run_at_their_own_rate() -> None:
    long, short = (
        record_of(driver.plan(gemm(name, 8192, 8192, 8192), CompileOptions()), "sm_90a").seconds
        for name in ("bf16", "fp8")
    )
    assert short < 0.7 * long


def test_random_fusions() -> None:
    for number in range(times(8)):
        try:
            program = driver.plan(draw_fusion(7, number, ALL), CompileOptions())
        except FusecError:
            continue
        assert_possible(program)


READS = (
    "sum(x, dims=[1], keepdim=true)",
    "sum(mul(x, {0}), dims=[0], keepdim=true)",
    "sum(mul(x, {0}), dims=[0, 1], keepdim=true)",
    "mul(x, {0})",
    "exp(add({0}, x))",
)


def chain(number: int) -> Fusion:
    """Return segments that read one input and each other's results, some of which fit in L2."""
    rng = Random(number)
    rows, columns = (2 ** rng.randint(11, 13) for _ in range(2))
    lines = [f"v0 = {READS[0]}"]
    for place in range(1, rng.randint(2, 5)):
        before = f"v{place - 1}"
        if rng.random() < 0.7:
            before = f"segment_set({before})"
        lines.append(f"v{place} = {rng.choice(READS[1:]).format(before)}")
    names = [line.partition(" ")[0] for line in lines]
    kept = sorted({*rng.sample(names, rng.randint(0, 2)), "y"})
    lines.append(f"y = div(x, {names[-1]})")
    ops = "".join(f"  - {line}\n" for line in lines)
    dtype = rng.choice(("f32", "f16"))
    text = f'fusion: chain\ninputs: {{x: "{dtype}[{rows}, {columns}]"}}\nops:\n{ops}'
    return read_text(f"{text}outputs: [{', '.join(kept)}]\n")


def test_results_that_stay_in_l2_do_not_count_for_memory() -> None:
    """A segment that writes 67 MB and is not charged for the last of them: 103 % of the peak."""
    line = "y = div(x, sum(mul(x, sum(x, dims=[1], keepdim=true)), dims=[0, 1], keepdim=true))"
    text = f'fusion: f\ninputs: {{x: "f32[4096, 4096]"}}\nops:\n  - {line}\noutputs: [y]\n'
    program = driver.plan(read_text(text), CompileOptions())
    assert_possible(program)
    record = record_of(program, "sm_90a")
    assert record.segments[-1].l2_bytes == pytest.approx(H200.write_back, rel=1e-5)
    assert "that stays in L2)" in " ".join(explanation(record).split())


def test_segments_of_which_results_stay_in_l2() -> None:
    for number in range(times(4)):
        assert_possible(driver.plan(chain(number), CompileOptions()))


@pytest.mark.nightly
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus")
def test_the_corpus() -> None:
    for path in sorted(CORPUS.glob("*.json")):
        try:
            program = driver.plan(prepare(read_graph(path), "graph").fusion, CompileOptions())
        except FusecError:
            continue  # rejected by name
        assert_possible(program)
