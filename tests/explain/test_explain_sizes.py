"""Over which sizes a choice stays the same: exact ends, multiples, sizes that cannot be."""

from __future__ import annotations

from itertools import pairwise

import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

import fusec
from fusec import driver, lowering
from fusec.diagnostics import FusecError
from fusec.explain import sizes
from fusec.explain.facts import ChosenSegment
from fusec.explain.sizes import ranges_of
from fusec.explain.text import explanation
from fusec.files import with_sizes
from fusec.options import CompileOptions
from fusec.parse import read_text


def kinds(name: str, **given: int) -> list[tuple[str, tuple[str, ...]]]:
    """Return what is chosen at some sizes, found by segmenting there alone."""
    options = CompileOptions()
    fusion = with_sizes(driver.load(str(ROOT / "examples" / f"{name}.yaml")), given)
    segmented = lowering.segment(lowering.optimise(fusion, options), options)
    return [
        (s.scheduler, tuple(o.value.name for o in s.fusion.outputs)) for s in segmented.segments
    ]


def test_the_choice_changes_where_it_is_said_to() -> None:
    path = ROOT / "examples" / "batchnorm.yaml"
    record = fusec.segmentation(path, ranges={"W": (64, 1024)})
    found = record.choices
    assert len(found) >= 2
    assert (found[0].first, found[-1].last) == (64, 1024)
    for choice in found:
        own = [(p.scheduler, p.outputs) for p in choice.segments]
        for size in {choice.first, choice.last}:
            assert kinds("batchnorm", W=size) == own
    for before, after in pairwise(found):
        assert after.first == before.last + 1
        assert before.segments != after.segments
    text = explanation(record)
    assert "Choices over W\n" in text
    assert f"\n    {found[-1].first}..1024" in text


@drawn(40)
@given(st.integers(0, 40), st.integers(0, 300), st.dictionaries(st.integers(0, 9), st.integers()))
def test_a_change_in_every_octave_is_found_to_the_size(
    low: int, more: int, places: dict[int, int]
) -> None:
    """Each octave has at most one change, and every change makes a choice of its own."""
    high = low + more
    changes = sorted({(1 << k) + place % (1 << k) for k, place in places.items()})

    def at(size: int) -> sizes._Found:
        number = sum(c <= size for c in changes)
        return sizes._Found((ChosenSegment(f"kind {number}", ()),), None, 0.0)

    found = list(sizes._stretches(low, high, at))
    inner = [c for c in changes if low < c <= high]
    assert found == list(zip([low, *inner], [*(c - 1 for c in inner), high], strict=True))


def test_only_declared_multiples_are_tried() -> None:
    path = ROOT / "examples" / "layernorm.yaml"
    found = fusec.segmentation(path, ranges={"H": (3, 100)}).choices
    assert (found[0].first, found[-1].last) == (8, 96)
    assert all(c.first % 8 == c.last % 8 == 0 for c in found)
    with pytest.raises(FusecError, match="no multiple of 8 is in this range"):
        fusec.segmentation(path, ranges={"H": (9, 15)})


def test_sizes_that_cannot_be_are_a_choice_with_a_reason() -> None:
    fusion = read_text(
        "fusion: f\ndims: {B: 64}\ninputs: {x: 'f32[B, 8]'}\n"
        "ops:\n  - y = full([B - 10], 1.0, f32)\n  - z = exp(x)\noutputs: [y, z]\n"
    )
    found = fusec.segmentation(fusion, ranges={"B": (1, 100)}).choices
    # With ten rows `y` is empty, which is another choice.
    kinds = [(c.first, c.last, c.refused is None) for c in found]
    assert kinds == [(1, 9, False), (10, 10, True), (11, 100, True)]
    assert found[0].seconds is None
    assert found[0].segments == ()
    assert "not possible: " in explanation(fusec.segmentation(fusion, ranges={"B": (1, 100)}))


@pytest.mark.nightly
def test_each_range_varies_alone() -> None:
    path = ROOT / "examples" / "cross_entropy.yaml"
    asked = {"T": (1, 8), "V": (32000, 32000)}
    found = fusec.segmentation(path, ranges=asked).choices
    assert [c.dim for c in found][-1] == "V"
    alone = fusec.segmentation(path, ranges={"T": (1, 8)}).choices
    assert found[: len(alone)] == alone
    assert (found[-1].first, found[-1].last) == (32000, 32000)


def test_ranges_are_read() -> None:
    assert ranges_of(["B=1..65536", " H = 0x8..16 "]) == {"B": (1, 65536), "H": (8, 16)}
    for wrong in ("B", "B=", "B=1", "=1..2", "B=1...2", "B=a..b", f"B=1..{'9' * 30}"):
        with pytest.raises(FusecError, match=r"expected NAME=FIRST\.\.LAST"):
            ranges_of([wrong])
