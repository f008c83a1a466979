"""Predicted times are within a factor of two of those that were measured."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from benchmarks.patterns import patterns
from fusec.driver import Compilation
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.target import find
from tests.paths import ROOT

RECORD = ROOT / "benchmarks" / "results" / "predictions.json"
ARGUED = {
    "topk_vocab": "512 blocks choose once each: how long a block takes to choose is not modelled",
}
"""Patterns that are predicted further from what was measured."""
QUICK = (
    "flip_bf16",
    "stride2_bf16",
    "stride8_f32",
    "pick64",
    "scatter_add_cols",
    "gemm_f32_34x192x48",
)


@cache
def measured() -> dict[str, Any]:
    """Return the microseconds that were measured, by the pattern's name."""
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    return {name: row["us"] for name, row in rows.items() if name in patterns()}


def predicted(name: str) -> float:
    """Return the predicted microseconds of a pattern."""
    program = Compilation(read_text(patterns()[name]), CompileOptions(targets=("sm_90a",)))
    found = [s.estimate for s in program.segmented.segments]
    return sum(e.seconds(find("sm_90a")) for e in found if e is not None) * 1e6


def wrong(names: Any) -> dict[str, tuple[float, float]]:
    """Return predicted and measured times that are not within a factor of two."""
    found = {name: (round(predicted(name), 2), measured()[name]) for name in names}
    return {n: times for n, times in found.items() if not 0.5 <= times[0] / times[1] <= 2}


def test_reads_in_steps_picks_and_plain_products_take_what_they_took() -> None:
    assert wrong(QUICK) == {}


@pytest.mark.nightly
def test_all_patterns_take_what_they_took() -> None:
    assert {*measured()} == {*patterns()}
    assert {*wrong(measured())} == {*ARGUED}
