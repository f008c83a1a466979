"""Dumps of every kind of segmented fusion are words of nvFuser's grammar, in both dialects."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from draws import times
from dump_grammar import SCHEDULERS, conforms
from dump_parser import check, parse
from fake_schedulers import H200, FakeScheduler
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paths import TESTS
from strategies import fusions

from fusec import lowering
from fusec.diagnostics import Unsupported
from fusec.dumps.nvfuser import segmented_fusion_text
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.no_op import NoOp
from fusec.schedule.registry import schedulers
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from tools.draw import draw_runs

SEED = TESTS / "seeds" / "2146.dump"
STYLES = ("2024", "head")


def assert_grammatical(segmented: SegmentedFusion) -> None:
    for style in STYLES:
        text = segmented_fusion_text(segmented, style)
        conforms(text, style)
        check(parse(text))


def test_the_dump_in_the_seed_is_a_word_of_the_grammar() -> None:
    conforms(SEED.read_text(), "2024")


def drawn(first: int, last: int) -> list[SegmentedFusion]:
    """Return the segments of what the fuzzer draws: aliases, boundaries, pins, every family."""
    found: list[SegmentedFusion] = []
    for number in range(first, last):
        for run in draw_runs(3, number):
            options = CompileOptions(without=run.without)
            try:
                found.append(lowering.segment(lowering.optimise(run.fusion, options), options))
            except Unsupported:
                assert run.fusion.pins, "only what is pinned together may have no scheduler"
    return found


def test_dumps_of_every_kind_are_grammatical() -> None:
    every = drawn(0, times(16))
    seen = Counter[str]()
    for segmented in every:
        assert_grammatical(segmented)
        if len(segmented.segments) < 2:
            continue
        nodes = [n for s in segmented.segments for n in s.nodes]
        computed = Counter(n.output.name for n in nodes)
        seen["several"] += 1
        seen["alias"] += any(o.alias for o in segmented.fusion.outputs)
        seen["scalar"] += any(n.output.is_scalar for n in nodes)
        seen["scalar input"] += any(i.value.is_scalar for i in segmented.fusion.inputs)
        seen["boundary"] += any(n.op.name == "segment_set" for n in nodes)
        seen["in two segments"] += any(k > 1 for k in computed.values())
    kinds = "several", "alias", "scalar", "scalar input", "boundary", "in two segments"
    assert [k for k in kinds if not seen[k]] == []


def pieces(limit: int) -> list[FakeScheduler | NoOp]:
    """Return schedulers that take a few nodes at a time."""

    def because(segment: Fusion) -> str | None:
        return None if len(segment.nodes) <= limit else "too many nodes"

    single = FakeScheduler("reduction", lambda s: None if len(s.nodes) < 4 else "too many nodes")
    return [NoOp(), FakeScheduler("pointwise", because), single]


@settings(
    max_examples=times(25), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(fusions(aliases=True, max_steps=14), st.integers(4, 8))
def test_dumps_of_many_small_segments_are_grammatical(fusion: Fusion, limit: int) -> None:
    assert_grammatical(segment(fusion, pieces(limit), H200))


def two_segments() -> SegmentedFusion:
    text = """
fusion: two
dims: {B: 64, H: 512}
inputs: {x: "bf16[B, H]", eps: "f32 = 0.5"}
ops:
  - t = sum(mul(cast(x, f32), mul(eps, 2.0)), dims=[1])
  - y = cast(add(segment_set(t), mul(eps, 2.0)), bf16)
outputs: [t, y]
"""
    options = CompileOptions()
    return lowering.segment(lowering.optimise(read_text(text), options), options)


def test_schedulers_have_names_that_nvfuser_knows() -> None:
    base = two_segments()
    for scheduler in schedulers():
        named = tuple(replace(s, scheduler=scheduler.name) for s in base.segments)
        text = segmented_fusion_text(replace(base, segments=named), "head")
        printed = {g.scheduler for g in parse(text).groups}
        assert printed <= set(SCHEDULERS), scheduler.name


def test_segments_without_scheduler_have_no_brackets() -> None:
    base = two_segments()
    bare = replace(base, segments=tuple(replace(s, scheduler="none") for s in base.segments))
    assert_grammatical(bare)
    assert "\ng{\ninputs: \n" in segmented_fusion_text(bare, "2024")
    assert "\n  none{" in segmented_fusion_text(bare, "head")
    assert "\ng{\ngroup id: 1\n" in segmented_fusion_text(bare, "head")


@pytest.mark.parametrize("style", STYLES)
def test_a_dump_that_is_no_word_is_noticed(style: str) -> None:
    text = segmented_fusion_text(two_segments(), style)
    conforms(text, style)
    broken = {
        "a blank too few": text.replace("groups: \n", "groups:\n"),
        "a line too many": text.replace("edges: \n", "edges: \n\n\n"),
        "an unknown type": text.replace("] __bfloat\n", "] bf16\n", 1),
        "an empty extent": text.replace("{i0}", "{}", 1),
        "an unknown scheduler": text.replace("(pointwise)", "(elementwise)"),
        "an operand apart": text.replace(", op = add", " op = add"),
        "a number too few": text.replace("\n(1)\n", "\n", 1),
        "no end": text.replace("} //Segmented_Fusion", "}"),
    }
    for what, changed in broken.items():
        assert changed != text, what
        with pytest.raises(AssertionError):
            conforms(changed, style)
