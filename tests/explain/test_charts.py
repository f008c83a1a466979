"""The overview of the page: layers folded, bars, strip and roofline, at any number of segments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain_page import Page, example

from fusec.explain import charts
from fusec.explain.drawing import MOST_UNFOLDED, draw
from fusec.explain.facts import Crossing, Segmentation, SegmentFacts
from fusec.explain.groups import FEW, MOST_SHOWN, groups_of
from fusec.explain.page import LARGE, Explained, page
from fusec.explain.repeats import folded, kind_of, repeats_of
from fusec.segment.protocol import Estimate
from fusec.target import find


@pytest.fixture(scope="module")
def block() -> Explained:
    """Return a layer of 13 operations in two segments."""
    return example("cross_entropy")


def of_kinds(first: SegmentFacts, kinds: Sequence[int]) -> list[SegmentFacts]:
    """Return segments that are equal where their kinds are."""
    return [
        replace(first, id=k, name=f"s{k}", bytes=1000 * (kind + 1), floor_bytes=1000)
        for k, kind in enumerate(kinds)
    ]


def layered(record: Segmentation, layers: int) -> Segmentation:
    """Return a record whose segments repeat, each layer reading what the one before writes."""
    count = len(record.segments)
    segments: list[SegmentFacts] = []
    crossing: list[Crossing] = []
    for layer in range(layers):
        base = layer * count
        segments += [replace(s, id=s.id + base, name=f"s{s.id + base}") for s in record.segments]
        for tensor in record.crossing:
            consumers = tuple(c + base for c in tensor.consumers)
            crossing.append(replace(tensor, producer=tensor.producer + base, consumers=consumers))
        if layer:
            into = replace(record.crossing[0], producer=base - 1, consumers=(base,))
            crossing.append(into)
    return replace(record, segments=tuple(segments), crossing=tuple(crossing), decisions=())


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3), max_size=24))
def test_folding_keeps_every_kind(block: Explained, kinds: list[int]) -> None:
    first = block[0].segments[0]
    segments = of_kinds(first, kinds)
    shown = folded(segments)
    assert all(kind_of(segments[k]) == kind_of(segments[v]) and v <= k for k, v in shown.items())
    at = 0
    for repeat in repeats_of(segments):
        assert repeat.first >= at
        assert repeat.count > 1
        at = repeat.last
    assert at <= len(kinds)


@pytest.mark.parametrize(
    ("kinds", "drawn"),
    [("abcabcabc", "abc"), ("xabababy", "xaby"), ("aaaa", "a"), ("abcd", "abcd"), ("", "")],
)
def test_layers_are_drawn_once(block: Explained, kinds: str, drawn: str) -> None:
    segments = of_kinds(block[0].segments[0], [ord(k) for k in kinds])
    shown = folded(segments)
    assert "".join(kinds[k] for k, v in shown.items() if k == v) == drawn


def test_a_deep_network_is_drawn_as_one_layer(block: Explained) -> None:
    record = layered(block[0], 40)
    assert len(record.segments) > MOST_UNFOLDED
    picture = draw(record, operations=False)
    assert picture is not None
    assert picture.height < LARGE / 2
    assert len(picture.segments) == len(block[0].segments)
    assert all(len(d.stands_for) == 40 for d in picture.segments)
    assert all("×40" in d.frame.lines[0] for d in picture.segments)
    assert len(picture.lines) == len(
        {(c.producer, k) for c in block[0].crossing for k in c.consumers}
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["a", "b", "layers_0_x", "layers_1_x", "layers_1_y"]), max_size=60))
def test_groups_are_runs_that_fit_a_screen(block: Explained, names: list[str]) -> None:
    first = block.record.segments[0]
    segments = {3 * k: replace(first, id=k, outputs=(name,)) for k, name in enumerate(names)}
    groups = groups_of(segments)
    assert [member for group in groups for member in group.members] == [*segments]
    assert len(groups) <= MOST_SHOWN
    assert len(groups) >= min(FEW, len(segments))
    assert all(group.members for group in groups)


def test_groups_have_the_common_words_of_their_names(block: Explained) -> None:
    first = block.record.segments[0]
    names = ["embedding", *(f"layers_{k}_{part}" for k in range(5) for part in "abcdef"), "head"]
    segments = {k: replace(first, name=f"s{k}", outputs=(name,)) for k, name in enumerate(names)}
    found = [group.name for group in groups_of(segments)]
    assert found == ["s0", *(f"layers_{k}" for k in range(5)), "s31"]
    # Passes have named two results within a layer.
    segments[10] = replace(segments[10], outputs=("matmul_1",))
    segments[11] = replace(segments[11], outputs=("div_1",))
    assert [group.name for group in groups_of(segments)] == found


def test_a_picture_of_groups_has_all_tensors_between_them(block: Explained) -> None:
    """Layers of different sizes: each tensor between two groups is counted once."""
    record = layered(block.record, 20)
    record = replace(
        record, segments=tuple(replace(s, bytes=s.bytes + s.id) for s in record.segments)
    )
    picture = draw(record, groups=True)
    assert picture is not None
    assert len(picture.segments) == MOST_SHOWN
    stands_for = [k for drawn in picture.segments for k in drawn.stands_for]
    assert stands_for == [s.id for s in record.segments]
    assert len(picture.lines) == MOST_SHOWN - 1
    assert {name: len(group.members) for name, group in picture.groups.items()} == {
        drawn.name: len(drawn.stands_for) for drawn in picture.segments
    }


def test_bars_and_strip_hold_all_time_and_traffic(block: Explained) -> None:
    record = layered(block[0], 7)
    bars = charts.bars_of(record.segments)
    assert sum(b.seconds for b in bars) == pytest.approx(sum(s.seconds for s in record.segments))
    assert sum(b.count for b in bars) == len(record.segments)
    assert max(b.time_part for b in bars) == max(b.traffic_part for b in bars) == 1.0
    many = of_kinds(record.segments[0], range(30))
    assert len(charts.bars_of(many)) == charts.MOST_BARS + 1
    assert sum(b.bytes for b in charts.bars_of(many)) == sum(
        s.bytes + s.workspace_bytes for s in many
    )
    estimates = [s.estimate for s in block[1].segmented.segments if s.estimate is not None]
    found = charts.charts(block[0], estimates, find("sm_90a"))
    assert sum(b.share for b in found.strip) == pytest.approx(1.0)


def test_dots_are_inside_and_below_the_roofs(block: Explained) -> None:
    gpu = find("sm_90a")
    estimates = [s.estimate for s in block[1].segmented.segments if s.estimate is not None]
    found = charts.charts(block[0], estimates, gpu).roofline
    assert found is not None
    assert len(found.dots) + found.idle == len(block[0].segments)
    tops = [float(re.findall(r"M[\d.]+ ([\d.]+)H", path)[0]) for _, path in found.roofs[1:]]
    for dot in found.dots:
        assert charts.LEFT <= dot.x <= charts.WIDTH - charts.RIGHT
        assert min(tops) <= dot.y <= charts.HEIGHT - charts.BOTTOM


def test_without_arithmetic_there_is_no_roofline(block: Explained) -> None:
    nothing = [Estimate(bytes=s.bytes) for s in block[0].segments]
    assert charts.charts(block[0], nothing, find("sm_90a")).roofline is None


def of_layers(block: Explained, record: Segmentation) -> str:
    """Return the page of a record with the kernels of one layer for each."""
    count = len(block[0].segments)

    class Program:
        """What the page needs of a compilation."""

        options = block[1].options
        kernels_launched = block[1].kernels_launched
        kernel_sources = block[1].kernel_sources
        sources = block[1].sources * (len(record.segments) // count)

        class segmented:
            """The segments, for their estimates."""

            segments = block[1].segmented.segments * (len(record.segments) // count)

    text = page([Explained(record, Program)])  # type: ignore[arg-type]
    Page(text)
    return text
