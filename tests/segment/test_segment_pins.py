"""Pinned segments: exactly the named nodes and what only they use, or an error at the pin."""

from __future__ import annotations

import pytest
from fake_schedulers import H200, FakeScheduler, everything, only_injective
from segment_runs import check_structure

import fusec
from fusec.diagnostics import FusecError, Unsupported
from fusec.options import HOST_SCHEDULER, SCHEDULERS
from fusec.parse import read_text
from fusec.schedule.registry import schedulers
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion

TEXT = """
fusion: pinned
dims: {B: 64, H: 512}
inputs: {x: "bf16[B, H]", z: "f32[B, H]"}
ops:
  - xf = cast(x, f32)
  - e = exp(z)
  - p = mul(xf, e)
  - r = sum(p, dims=[1])
  - s = sin(r)
  - q = mul(xf, p)
  - c = sum(q, dims=[0])
  - y = cos(c)
outputs: [s, y]
segments:
"""


SINGLE = """
fusion: single
inputs: {x: "f32[64, 512]", i: "i64[64, 512]"}
ops:
  - y = %s
outputs: [y]
segments: {only: {values: [y], scheduler: %s}}
"""


@pytest.mark.parametrize(
    ("scheduler", "line"),
    [
        ("scan", "cumsum(x, dim=1)"),
        ("sort", "argsort(x, dim=1)"),
        ("scatter", "scatter(x, i, x, dim=1)"),
        ("reduction", "sum(x, dims=[1])"),
    ],
)
def test_every_scheduler_can_be_pinned(scheduler: str, line: str) -> None:
    found = fusec.segmentation(read_text(SINGLE % (line, scheduler)))
    assert [(s.pin, s.scheduler) for s in found.segments] == [("only", scheduler)]


def test_the_names_that_can_be_pinned_are_those_of_all_schedulers() -> None:
    """All of kernels, and of the host's the one that is for any operation."""
    assert [*(s.name for s in schedulers()), HOST_SCHEDULER] == list(SCHEDULERS)


def split(pins: str, *schedulers: FakeScheduler, text: str = TEXT) -> SegmentedFusion:
    fusion = read_text(text + pins)
    segmented = segment(fusion, schedulers or (everything(),), H200, rematerialise=False)
    check_structure(segmented)
    return segmented


def contents(segmented: SegmentedFusion) -> dict[str | None, list[str]]:
    return {s.pin: [n.output.name for n in s.nodes] for s in segmented.segments}


def test_a_pin_holds_its_values_and_what_only_they_use() -> None:
    segmented = split("  rows: [p, r]\n")
    found = contents(segmented)
    assert sorted(found["rows"]) == ["e", "p", "r", "xf"]
    assert [str(s.pin) for s in segmented.segments].count("rows") == 1
    assert "s" not in found["rows"], "what comes after a pin is not in it"


def test_two_pins_make_exactly_two_segments() -> None:
    segmented = split("  rows: [p, r, s]\n  columns: [q, c, y]\n")
    assert {k: sorted(v) for k, v in contents(segmented).items()} == {
        "rows": ["e", "p", "r", "s", "xf"],
        "columns": ["c", "q", "xf", "y"],
    }
    assert [e.value.name for e in segmented.edges] == ["p"]


def test_a_cheap_value_pinned_to_one_segment_crosses_from_there() -> None:
    segmented = split("  rows: [xf, p, r, s]\n  columns: [q, c, y]\n")
    assert sorted(e.value.name for e in segmented.edges) == ["p", "xf"]


def test_the_scheduler_of_a_pin_is_the_only_one_asked() -> None:
    first, second = everything(), FakeScheduler("second", lambda s: None, efficiency=0.1)
    pinned = FakeScheduler("reduction", lambda s: None, efficiency=0.1)
    segmented = split("  rows: {values: [p, r], scheduler: reduction}\n", pinned, first, second)
    kinds = {s.pin: s.scheduler for s in segmented.segments}
    assert kinds["rows"] == "reduction"
    assert set(kinds.values()) == {"reduction", "everything"}


def test_a_refused_pin_is_named_at_its_place() -> None:
    with pytest.raises(Unsupported) as caught:
        split("  rows: [p, r]\n", FakeScheduler("pointwise", only_injective))
    diagnostic = caught.value.diagnostic
    assert diagnostic.message == "no scheduler supports the pinned segment `rows`"
    assert diagnostic.span is not None
    assert diagnostic.span.text == "  rows: [p, r]"
    assert "`sum` is not elementwise" in diagnostic.notes[0]


def test_pins_that_need_each_other_are_an_error_at_the_pin() -> None:
    with pytest.raises(FusecError, match="depend on each other") as caught:
        split("  one: [p, c]\n  two: [q]\n")
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.text == "  one: [p, c]"


def test_a_pin_takes_what_lies_between_its_values() -> None:
    assert "q" in contents(split("  one: [p, c]\n"))["one"]


def test_a_segment_set_and_its_user_cannot_be_pinned_together() -> None:
    text = TEXT.replace("q = mul(xf, p)", "q = mul(xf, segment_set(p))")
    with pytest.raises(FusecError, match="holds a segment_set together with its user"):
        split("  one: [p, q]\n", text=text)


def test_a_name_that_a_pass_removed_is_left_out_and_said() -> None:
    fusion = read_text(TEXT.replace("outputs: [s, y]", "outputs: [s]") + "  rows: [p, r, q]\n")
    segmented = segment(fusion, [everything()], H200)
    assert [d.subject for d in segmented.decisions if d.action == "unpin"] == [("q",)]


def test_an_unknown_name_suggests_a_near_one() -> None:
    from dataclasses import replace

    fusion = read_text(TEXT + "  rows: [p, r]\n")
    (pin,) = fusion.pins
    fusion = replace(fusion, pins=(replace(pin, values=("p", "rr")),))
    with pytest.raises(FusecError, match="names `rr`, which no operation produces") as caught:
        segment(fusion, [everything()], H200)
    assert caught.value.diagnostic.help == "did you mean `r`?"
    assert caught.value.diagnostic.span == pin.span


def test_a_segment_that_nobody_takes_is_told_without_what_does_not_fit() -> None:
    text = """fusion: f
dims: {B: 64, H: 256}
inputs:
  x: f32[B, H]
ops:
  - m = mean(x, -1, keepdim=true)
  - y = x - m
  - z = y @ y.T
outputs: [z]
segments:
  norm: {values: [m, y, z], scheduler: pointwise}
"""
    with pytest.raises(Unsupported) as caught:
        segment(read_text(text), schedulers(), H200)
    told = "write `norm: {values: [m, y], scheduler: inner_persistent}`"
    assert told in caught.value.render()
    written = text.replace("[m, y, z], scheduler: pointwise", "[m, y], scheduler: inner_persistent")
    assert segment(read_text(written), schedulers(), H200)
