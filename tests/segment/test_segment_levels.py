"""Segments that a caller's predicate makes, those inside of them, boundaries that a file says."""

from __future__ import annotations

from pathlib import Path

import pytest
from dump_parser import check, parse
from fake_schedulers import H200, FakeScheduler, everything, only_injective, usual
from segment_runs import check_structure

from fusec.diagnostics import FusecError, Unsupported
from fusec.dumps.nvfuser import segmented_fusion_text
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.parse import read_text
from fusec.parse.dsl import DataType, FusionDefinition
from fusec.parse.twin import to_python
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion

TEXT = """
fusion: levels
dims: {B: 64, H: 512}
inputs: {x: "f32[B, H]", z: "f32[B, H]"}
ops:
  - a = exp(add(x, z))
  - b = sum(a, dims=[1])
  - c = sin(b)
  - d = cos(c)
outputs: [d]
"""


def names(segmented: SegmentedFusion) -> list[list[str]]:
    return [[n.op.name for n in s.nodes] for s in segmented.segments]


def without_sine(first: Fusion, second: Fusion) -> bool:
    return not any(n.op.name == "sin" for f in (first, second) for n in f.nodes)


def test_a_predicate_alone_makes_segments_of_kind_none() -> None:
    asked = everything()
    segmented = segment(read_text(TEXT), [], H200, should_merge=without_sine)
    check_structure(segmented)
    assert names(segmented) == [["add", "exp", "sum"], ["sin"], ["cos"]]
    assert {s.scheduler for s in segmented.segments} == {"none"}
    assert not asked.asked
    for style in ("2024", "head"):
        check(parse(segmented_fusion_text(segmented, style)))


def test_schedulers_segment_inside_each_group_of_the_predicate() -> None:
    def small(part: Fusion) -> str | None:
        return None if len(part.nodes) < 3 else "too many"

    segmented = segment(
        read_text(TEXT), [FakeScheduler("small", small)], H200, should_merge=without_sine
    )
    check_structure(segmented)
    assert segmented.host is not None
    assert names(segmented.host) == [["add", "exp", "sum"], ["sin"], ["cos"]]
    assert [s.host for s in segmented.segments] == [0, 0, 1, 2]
    apart = [d.because for d in segmented.decisions if d.action == "boundary"]
    assert "they are separate groups at the host level" in apart
    text = segmented_fusion_text(segmented, "2024")
    assert text.count("Segmented_Fusion Dump") == 2
    assert text.index("g{\n") < text.index("g{(small)")


def test_a_predicate_is_given_neighbours_in_order() -> None:
    pairs: list[tuple[list[str], list[str]]] = []

    def never(first: Fusion, second: Fusion) -> bool:
        pairs.append(([n.op.name for n in first.nodes], [n.op.name for n in second.nodes]))
        return False

    segmented = segment(read_text(TEXT), [], H200, should_merge=never)
    assert len(segmented.segments) == 5
    assert pairs == [
        (["add"], ["exp"]),
        (["exp"], ["sum"]),
        (["sum"], ["sin"]),
        (["sin"], ["cos"]),
    ]


def test_a_predicate_that_raises_is_named_with_both_groups() -> None:
    def broken(first: Fusion, second: Fusion) -> bool:
        raise ValueError("boom")

    with pytest.raises(FusecError, match="should_merge raised ValueError: boom") as caught:
        segment(read_text(TEXT), usual(), H200, should_merge=broken)
    assert caught.value.exit_code == 2
    diagnostic = caught.value.diagnostic
    assert diagnostic.notes[0].startswith("called with the group that computes `add_1`")
    assert diagnostic.notes[0].endswith("the group that computes `a`")
    assert diagnostic.span is not None


# -- what a file says


def test_explicit_boundaries_are_those_of_segment_set() -> None:
    text = TEXT.replace("c = sin(b)", "c = sin(segment_set(b))") + "boundaries: explicit\n"
    segmented = segment(read_text(text), [], H200)
    assert names(segmented) == [["add", "exp", "sum", "segment_set"], ["sin", "cos"]]
    inside = segment(read_text(text), usual(), H200)
    check_structure(inside)
    assert inside.host is not None
    assert [s.host for s in inside.segments] == sorted(s.host or 0 for s in inside.segments)


def test_an_open_segment_holds_its_values_and_may_hold_more() -> None:
    pairs = FakeScheduler("pairs", lambda f: None if len(f.nodes) in (1, 2, 3) else "not 1 to 3")
    free = segment(read_text(TEXT), [pairs], H200)
    assert ["sum", "sin"] not in [n[-2:] for n in names(free)]
    segmented = segment(read_text(TEXT + "segments:\n  kept: {values: [b, c], open: true}\n"),
                        [pairs], H200)  # fmt: skip
    check_structure(segmented)
    (held,) = [n for n in names(segmented) if "sum" in n]
    assert "sin" in held
    assert all(s.pin is None for s in segmented.segments)


def test_an_open_segment_that_nobody_takes_is_named_at_its_place() -> None:
    text = TEXT + "segments:\n  kept: {values: [a, b], open: true}\n"
    one = FakeScheduler("one", lambda f: None if len(f.nodes) == 1 else "more than one node")
    with pytest.raises(
        Unsupported, match="no scheduler supports the pinned segment `kept`"
    ) as caught:
        segment(read_text(text), [one], H200)
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.text == "  kept: {values: [a, b], open: true}"


def test_a_forced_boundary_inside_an_open_segment_is_an_error() -> None:
    text = TEXT.replace("c = sin(b)", "c = sin(segment_set(b))")
    text += "segments:\n  kept: {values: [a, c], open: true}\n"
    with pytest.raises(FusecError, match="holds a segment_set together with its user") as caught:
        segment(read_text(text), usual(), H200)
    assert caught.value.exit_code == 2
    assert caught.value.diagnostic.span is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("boundaries: explicitly\n", "unknown boundaries `explicitly`"),
        ("segments:\n  k: {values: [a], open: maybe}\n", "`open` is true or false, got `maybe`"),
        (
            "segments:\n  k: {values: [a], open: true, scheduler: pointwise}\n",
            "an open segment cannot have a scheduler",
        ),
        ("segments:\n  k: {values: [aa], open: true}\n", "undefined value `aa`"),
    ],
)
def test_bad_boundaries_are_named_at_their_place(text: str, message: str) -> None:
    with pytest.raises(FusecError, match=message) as caught:
        read_text(TEXT + text)
    assert caught.value.exit_code == 2
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.line > TEXT.count("\n")


def test_definitions_say_the_same_as_files(tmp_path: Path) -> None:
    with FusionDefinition("levels") as fd:
        x = fd.define_tensor(shape=[64, 512], contiguity=True, dtype=DataType.Float)
        a = fd.ops.exp(x)
        b = fd.ops.sum(a, [1])
        fd.add_output(b)
        fd.pin("kept", [a, b], open=True)
        fd.explicit_boundaries()
    fusion = fd.fusion()
    assert fusion.boundaries == "explicit"
    assert fusion.pins[0].open
    again = read_text(to_text(fusion))
    assert (again.boundaries, again.pins[0].open) == ("explicit", True)
    script = to_python(again)
    assert "fd.explicit_boundaries()" in script
    assert "open=True" in script


def test_nothing_is_taken_across_the_host_level() -> None:
    text = """
        fusion: apart
        dims: {B: 4096, H: 8192}
        inputs: {x: "f32[B, H]", z: "f32[B, H]"}
        ops:
          - t = mul(sin(x), z)
          - r = sum(t, dims=[1])
          - c = sum(mul(t, z), dims=[0])
        outputs: [r, c]
    """

    def columns_apart(first: Fusion, second: Fusion) -> bool:
        return not any(n.output.name == "c" for f in (first, second) for n in f.nodes)

    segmented = segment(
        read_text(text), [everything(), FakeScheduler("injective", only_injective)], H200,
        should_merge=columns_apart,
    )  # fmt: skip
    check_structure(segmented)
    # Computing t again would spare its crossing: the host level wants it to cross.
    assert not segmented.rematerialised
    assert [s.host for s in segmented.segments] == [0, 1]
