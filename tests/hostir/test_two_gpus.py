"""Loops around ranks against recorded times of H200s: predictions, and what is selected.

The times and their sources are those of `benchmarks.loop_times`. Nothing is timed here.
"""

from __future__ import annotations

from functools import cache
from statistics import mean, median
from typing import Any

import pytest
from nightly import mostly_nightly

from benchmarks.loop_times import (
    OPTIONS,
    Times,
    microseconds,
    recorded,
    segmented,
    shape_of,
)
from benchmarks.paired import ratio
from benchmarks.two_gpus import KNOWN, sampled
from fusec import lowering
from fusec.hostir.overlap import ProgramTime, program_time
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.shard.pieces import slices_around
from fusec.target import find

H200 = find("sm_90a")
NOISE = 0.03
"""By which times of one program differ from run to run."""
NEAR = 0.2
"""By which a prediction may be wrong."""


TIMES = [*recorded()]
TRIED = [
    *(t for t in TIMES if t.ranks == 2),
    *mostly_nightly((t for t in TIMES if t.ranks == 4), 6),
]
NAMES: list[Any] = [
    *{(t.record, t.name): None for t in TIMES if t.ranks == 2},
    *mostly_nightly({(t.record, t.name): None for t in TIMES if t.ranks == 4}, 3),
]
EACH_RECORD = ["loop_times", "two-gpus", pytest.param("four-gpus", marks=pytest.mark.nightly)]


@cache
def predicted(name: str, ranks: int, slices: int) -> ProgramTime:
    """Return the predicted time of a loop of so many slices, or of the sequence."""
    return program_time(segmented(name, ranks, slices), H200, OPTIONS.streams)


@cache
def selected(name: str, ranks: int) -> int:
    """Return how many slices the loop takes that is selected; 0 of the sequence."""
    fusion = read_text(shape_of(name).text(ranks, ranks))
    return slices_around(lowering.divide(fusion, CompileOptions()))


def errors(times: Times) -> dict[int, float]:
    """Return by which part each prediction is too long."""
    return {
        slices: microseconds(predicted(times.name, times.ranks, slices), times.way) / took - 1
        for slices, took in times.by_slices.items()
    }


def test_records_have_each_shape_by_call_and_by_replay() -> None:
    counts = [sum(t.record == r for t in TIMES) for r in ("loop_times", "two-gpus", "four-gpus")]
    assert counts[0] == 19
    assert counts[1] == 2 * 20
    assert counts[2] >= 2 * 10


def taken(times: Times) -> float:
    """Return how long that takes which is selected."""
    slices = selected(times.name, times.ranks)
    # Where a loop of more slices was not measured, one of fewer.
    return times.by_slices.get(slices, times.by_slices[times.ranks])


@pytest.mark.parametrize("times", TRIED, ids=str)
def test_what_is_selected_is_not_slower_than_the_sequence(times: Times) -> None:
    assert taken(times) <= (1 + NOISE) * times.by_slices[0]


@pytest.mark.parametrize(("record", "name"), NAMES)
def test_what_is_selected_is_nearly_the_quickest(record: str, name: str) -> None:
    """In the mean of calls and replays, for one choice serves both."""
    ways = [t for t in TIMES if (t.record, t.name) == (record, name)]
    assert mean(taken(t) / min(t.by_slices.values()) for t in ways) <= 1.06


@pytest.mark.parametrize("times", TRIED, ids=str)
def test_predictions_are_near(times: Times) -> None:
    assert max(map(abs, errors(times).values())) <= NEAR


@pytest.mark.parametrize("record", EACH_RECORD)
def test_predictions_are_right_in_the_median(record: str) -> None:
    found = [e for t in TIMES if t.record == record for e in errors(t).values()]
    assert abs(median(found)) < 0.04


def test_shapes_are_sampled_from_a_seed() -> None:
    assert sampled() == sampled()
    shapes = (*KNOWN, *sampled())
    assert len({s.name for s in shapes}) == 20
    for shape in shapes:
        assert shape_of(shape.name) == shape
        assert shape.rows % (4 * 2) == 0


def test_intervals_hold_the_ratio() -> None:
    found = {"a": [1.0, 1.1, 0.9, 1.0, 1.05], "b": [2.0] * 5}
    middle, low, high = ratio(found, "a", "b")
    assert 0.45 <= low <= middle == 0.5 <= high <= 0.55
    assert ratio(found, "b", "b") == [1, 1, 1]
