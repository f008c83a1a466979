"""Loops around ranks against recorded times of two H200: predictions, and what is selected.

`loop_times.json`: microseconds on two H200 (torch 2.11, CUDA 13), by replay where rows are gathered
and by call where sums are scattered, in a run of `benchmarks/two_gpus.py` before kernels of loops
that send had a stream of their own. Nothing is timed here.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from benchmarks.paired import ratio
from benchmarks.two_gpus import KNOWN, LOOPED, Matmul, sampled
from fusec import lowering
from fusec.driver import Compilation
from fusec.hostir.overlap import program_time
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.shard.pieces import slices_around
from fusec.target import find

RANKS = 2
H200 = find("sm_90a")
ROOT = Path(__file__).parents[1]
NOISE = 0.03
"""By which times of one program differ from run to run."""


TIMES: list[tuple[str, dict[str, float]]] = [
    *json.loads((ROOT / "tests" / "loop_times.json").read_text()).items()
]


def shape_of(name: str) -> Matmul:
    kind, rows, depth, columns = re.split("[ x]", name)
    return Matmul(kind, int(rows), int(depth), int(columns))


@cache
def predicted(name: str, slices: int) -> float:
    """Return the predicted microseconds of a loop of so many slices, or of the sequence."""
    options = CompileOptions(without=LOOPED)
    segmented = Compilation(read_text(shape_of(name).text(RANKS, slices)), options).segmented
    return 1e6 * program_time(segmented, H200, options.streams).seconds


@cache
def selected(name: str) -> int:
    """Return how many slices the loop takes that is selected; 0 of the sequence."""
    fusion = read_text(shape_of(name).text(RANKS, RANKS))
    return slices_around(lowering.divide(fusion, CompileOptions()))


def key(slices: int) -> str:
    return f"{slices} slices" if slices else "sequence"


def measured(times: dict[str, float], slices: int) -> float | None:
    return times.get(key(slices))


@pytest.mark.parametrize(("name", "times"), TIMES)
def test_what_is_selected_is_nearly_the_quickest(name: str, times: dict[str, float]) -> None:
    slices = selected(name)
    if measured(times, slices) is None:
        slices = 2  # a loop of four was not measured
    taken = times[key(slices)]
    assert taken <= 1.06 * min(t for n in (0, 2, 4) if (t := measured(times, n)) is not None)
    assert taken <= (1 + NOISE) * times["sequence"]


@pytest.mark.parametrize("slices", [0, 2, 4])
def test_predictions_are_near(slices: int) -> None:
    known = [(n, t[key(slices)]) for n, t in TIMES if measured(t, slices) is not None]
    errors = [predicted(name, slices) / took - 1 for name, took in known]
    assert len(errors) >= 10
    assert abs(median(errors)) < 0.04
    assert max(map(abs, errors)) < 0.15


def test_shapes_are_sampled_from_a_seed() -> None:
    assert sampled() == sampled()
    shapes = (*KNOWN, *sampled())
    assert len({s.name for s in shapes}) == 20
    for shape in shapes:
        assert shape_of(shape.name) == shape
        assert shape.rows % (4 * RANKS) == 0


def test_intervals_hold_the_ratio() -> None:
    found = {"a": [1.0, 1.1, 0.9, 1.0, 1.05], "b": [2.0] * 5}
    middle, low, high = ratio(found, "a", "b")
    assert 0.45 <= low <= middle == 0.5 <= high <= 0.55
    assert ratio(found, "b", "b") == [1, 1, 1]
