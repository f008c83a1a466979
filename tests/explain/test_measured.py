"""Measured times beside predicted ones: recorded by tuning, or of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_explain_page import Page, example

from fusec.explain import charts
from fusec.explain.facts import Measured, Overridden
from fusec.explain.measured import MeasuredTimes, of_launches, recorded
from fusec.explain.page import Explained, page, with_recorded
from fusec.run.measure import KernelTime
from fusec.target import find


@pytest.fixture(scope="module")
def block() -> Explained:
    """Return two segments, neither of them tuned."""
    found = example("cross_entropy")
    segments = tuple(replace(s, tuned=None) for s in found.record.segments)
    return found._replace(record=replace(found.record, segments=segments))


def tuned(block: Explained, **changes: object) -> Explained:
    """Return the fusion with a recorded time of its first segment."""
    entry = Measured("mine.toml", True, "T=256", 12.5, "NVIDIA H200", "2026-01-02")
    first, *others = block.record.segments
    first = replace(first, **{"tuned": entry, **changes})  # type: ignore[arg-type]
    record = replace(block.record, segments=(first, *others))
    return with_recorded(record, block.program)


def test_launches_of_a_segment_are_summed(block: Explained) -> None:
    times = [KernelTime("a", "s0", 1e-6), KernelTime("b", "s0", 2e-6)]
    found = of_launches(block.record, times, 4e-6, "once")
    assert found.segments == {"s0": pytest.approx(3e-6), "s1": 0.0}
    assert found.cover(block.record)
    text = page([block._replace(measured=found)])
    assert text.count("<dt>by kernel</dt>") == 1
    assert "<dt>by kernel</dt><dd>a 1 us, b 2 us</dd>" in text


def test_times_that_tuning_recorded_are_shown(block: Explained) -> None:
    found = tuned(block)
    assert found.measured == MeasuredTimes(
        "by segment, recorded on NVIDIA H200, 2026-01-02", {"s0": 12.5 * 1e-6}
    )
    text = page([found])
    Page(text)
    assert "<dt>measured</dt><dd> <small>by segment, recorded on NVIDIA H200, 2026-01-02" in text
    assert text.count("<dt>measured</dt><dd>12.5 us, predicted ") == 1
    assert "predicted time of each segment" in text  # not all of them were measured


def test_recorded_times_of_all_segments_have_a_sum(block: Explained) -> None:
    entry = Measured("mine.toml", True, "T=256", 12.5, "NVIDIA H200", "2026-01-02")
    segments = tuple(replace(s, tuned=entry) for s in block.record.segments)
    found = recorded(replace(block.record, segments=segments))
    assert found is not None
    assert found.whole == pytest.approx(25e-6)


def test_times_of_other_sizes_or_schedules_are_not(block: Explained) -> None:
    near = Measured("mine.toml", False, "T=64", 12.5, "NVIDIA H200", "2026-01-02")
    assert tuned(block, tuned=near).measured is None
    assert tuned(block, overrides=(Overridden("unroll", 2, "f.yaml:9"),)).measured is None
    assert recorded(block.record) is None
    assert "<dt>measured" not in page([block])


@pytest.mark.parametrize("factor", [1e-4, 0.5, 3.0, 1e4])
def test_measured_bars_and_dots_stay_inside(block: Explained, factor: float) -> None:
    record = block.record
    times = {s.name: factor * s.seconds for s in record.segments}
    measured = MeasuredTimes("once", times, sum(times.values()))
    bars = charts.bars_of(record.segments, measured)
    longest = max(max(b.time_part, b.measured_part) for b in bars)
    assert longest == pytest.approx(1.0)
    for bar in bars:
        assert bar.measured == pytest.approx(factor * bar.seconds)
    estimates = [s.estimate for s in block.program.segmented.segments if s.estimate is not None]
    found = charts.charts(record, estimates, find("sm_90a"), measured)
    assert found.measured
    assert found.roofline is not None
    for dot in found.roofline.dots:
        assert charts.TOP - 1 <= dot.y <= charts.HEIGHT - charts.BOTTOM
        assert dot.predicted_y is not None
        assert (dot.y > dot.predicted_y) == (factor > 1)
    Page(page([Explained(record, block.program, measured)]))
