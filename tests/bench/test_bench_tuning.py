"""How far priced schedules are from measured ones: which segments are tuned, and the figures."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from benchmarks import suites, tuning
from benchmarks.tuning import jobs_by_row, summary
from fusec.tune.job import Job


def jobs(part: str, only: str) -> dict[Job, list[str]]:
    given = argparse.Namespace(part=part, only=only, suite="memory", seed=0)
    return jobs_by_row(given, "sm_90a")


def test_parts_have_every_row_once() -> None:
    names = ["softmax_16384x8192", "softmax_4096x32768", "transpose_16384x8192"]
    only = ",".join(names)
    whole = jobs("0/1", only)
    assert sorted(r for rows in whole.values() for r in rows) == names
    parts = [jobs(f"{k}/2", only) for k in range(2)]
    assert [len(p) for p in parts] == [2, 1]
    assert {*parts[0], *parts[1]} == {*whole}


def test_equal_segments_are_tuned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = (r for r in suites.MEMORY if r.name == "softmax_16384x8192")
    twice = [row, replace(row, name="again")]
    monkeypatch.setattr(tuning, "rows_of", lambda *given: twice)
    assert list(jobs("0/1", "").values()) == [["softmax_16384x8192", "again"]]


def test_only_segments_of_many_records_count_as_the_best_of_a_space() -> None:
    few = {"over_best": 1.5, "records": [{}] * 23}
    many = [{"over_best": 1.0, "records": [{}] * 24}, {"over_best": 1.21, "records": [{}] * 30}]
    found = summary([few, *many, {"reason": "the time budget is used up"}])
    assert (found["segments"], found["of_many"]) == (3, 2)
    assert found["many"] == pytest.approx(1.1)
    assert found["over_best"] == pytest.approx((1.5 * 1.21) ** (1 / 3))
