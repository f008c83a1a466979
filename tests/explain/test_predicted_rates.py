"""Predictions are possible: no segment moves less than its bound, or runs beyond a peak."""

from __future__ import annotations

from pathlib import Path

import pytest
from draws import times
from nightly import mostly_nightly
from paths import ROOT

from benchmarks.corpus_graph import read_graph
from benchmarks.corpus_inputs import prepare
from fusec import driver, target
from fusec.dev.draw import ALL, draw_fusion
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.explain.record import record_of
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.price import work

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


@pytest.mark.nightly
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus")
def test_the_corpus() -> None:
    for path in sorted(CORPUS.glob("*.json")):
        try:
            program = driver.plan(prepare(read_graph(path), "graph").fusion, CompileOptions())
        except FusecError:
            continue  # rejected by name
        assert_possible(program)
