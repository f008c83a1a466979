"""What one kernel holds is bounded by what NVRTC takes for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_schedulers import H200

from benchmarks.compile_graphs import alternating_sums, fan, row_maxima, shifts
from benchmarks.compile_time import pinned
from fusec import driver, lowering
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.schedule.registry import schedulers
from fusec.segment.offers import NVRTC, Offers, Surroundings, takes_long
from fusec.segment.segmented import SegmentedFusion

OPTIONS = CompileOptions(targets=("sm_90a",))
ALONE = Surroundings(frozenset(), frozenset())


def segmented(fusion: Fusion) -> SegmentedFusion:
    return lowering.segment(lowering.optimise(fusion, OPTIONS), OPTIONS)


def lines(fusion: Fusion) -> int:
    """Return the lines of all kernels' texts."""
    sources = driver.plan(fusion, OPTIONS).kernel_sources
    return sum(s.text.count("\n") for s in sources)


@pytest.mark.parametrize(
    "make",
    [lambda: row_maxima(40, "f32[128, 64]"), lambda: row_maxima(40), lambda: fan(80)],
    ids=["short rows", "rows", "one input"],
)
def test_what_takes_nvrtc_long_is_several_kernels(make: Callable[[], Fusion]) -> None:
    fusion = make()
    whole = Offers(schedulers(), H200).ask(lowering.optimise(fusion, OPTIONS), ALONE)
    assert whole.estimate is None
    assert NVRTC in {refusal.rule for _, refusal in whole.refusals}
    assert any("NVRTC would take about" in r.because for _, r in whole.refusals)
    found = segmented(fusion)
    assert len(found.segments) > 1
    assert not any(s.estimate is not None and takes_long(s.estimate) for s in found.segments)


def test_texts_grow_with_the_graph_not_with_its_square() -> None:
    # A phase computes again what the ones before it computed.
    assert lines(row_maxima(24, "f32[128, 64]")) <= 2.2 * lines(row_maxima(12, "f32[128, 64]"))
    # A value that is read at two places is computed at each, and what it reads at each of those.
    assert lines(shifts(7)) <= 1.5 * lines(shifts(5))


@pytest.mark.nightly
def test_reductions_share_kernels_as_far_as_nvrtc_is_quick() -> None:
    assert len(segmented(row_maxima(5)).segments) == 1
    assert len(segmented(fan(12)).segments) == 1
    assert len(segmented(fan(80)).segments) <= 8


def test_a_pinned_segment_is_one_kernel_however_long_nvrtc_takes() -> None:
    fusion = pinned(row_maxima(30, "f32[128, 64]"))
    assert len(lowering.segment(fusion, OPTIONS).segments) == 1
    assert len(lowering.segment(replace(fusion, pins=()), OPTIONS).segments) > 1


def test_chains_of_like_sums_are_few_texts() -> None:
    sources = driver.plan(alternating_sums(40), OPTIONS).kernel_sources
    assert len(sources) <= 8
