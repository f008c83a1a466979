"""Segmentation of random fusions: same numbers, same rules, same result in any order."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from draws import drawn
from dump_parser import check, parse
from fake_schedulers import H200, FakeScheduler, everything, usual
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from segment_runs import check_structure
from strategies import fusions, random_inputs

from fusec.dumps.nvfuser import segmented_fusion_text
from fusec.ir.graph import Fusion, Node
from fusec.reference.evaluate import evaluate
from fusec.schedule.no_op import NoOp
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from tools.segments import run_segments

QUICK = settings(drawn(60), suppress_health_check=list(HealthCheck), derandomize=True)
COPIED = ("cast", "broadcast", "broadcast_in_dim", "expand")


def assert_same_numbers(fusion: Fusion, segmented: SegmentedFusion) -> None:
    given_inputs = random_inputs(fusion)
    expected = evaluate(fusion, given_inputs, fusion.hints)
    found = run_segments(segmented, given_inputs, segmented.fusion.hints)
    for before, after in zip(fusion.outputs, segmented.fusion.outputs, strict=True):
        np.testing.assert_array_equal(found[after.value.name], expected[before.value.name])


def shuffled(fusion: Fusion, seed: int) -> Fusion:
    """Return the fusion with its nodes in another order that is legal."""
    rng = random.Random(seed)
    waiting, done = list(fusion.nodes), {i.value for i in fusion.inputs}
    ordered: list[Node] = []
    while waiting:
        node = rng.choice([n for n in waiting if all(v in done for v in n.inputs)])
        waiting.remove(node)
        ordered.append(node)
        done |= set(node.outputs)
    return fusion.with_nodes(ordered)


def up_to(limit: int) -> list[Any]:
    """Return schedulers that take a few nodes at a time, so that every rule of order is met."""

    def because(segment: Fusion) -> str | None:
        own = [n for n in segment.nodes if n.op.name not in COPIED and not n.output.is_scalar]
        return None if len(segment.nodes) <= limit or len(own) <= 1 else "too many nodes"

    return [NoOp(), FakeScheduler("small", because)]


def summary(segmented: SegmentedFusion) -> list[Any]:
    return [
        (s.scheduler, [repr(n) for n in s.nodes], [i.value.name for i in s.fusion.inputs])
        for s in segmented.segments
    ]


@QUICK
@given(fusions(aliases=True, max_steps=14), st.integers(0, 1000), st.integers(1, 4))
def test_segments_compute_what_the_fusion_computes_in_any_order_of_definition(
    fusion: Fusion, seed: int, limit: int
) -> None:
    other = shuffled(fusion, seed)
    for schedulers in (up_to(limit), usual()):
        first, second = (segment(f, schedulers, H200) for f in (fusion, other))
        assert summary(first) == summary(second)
        assert first.decisions == second.decisions
        check_structure(first)
        assert_same_numbers(fusion, first)
    for style in ("2024", "head"):
        check(parse(segmented_fusion_text(first, style)))


@QUICK
@given(fusions(aliases=True, pins=True, max_steps=14), st.booleans())
def test_segments_around_pins(fusion: Fusion, merges: bool) -> None:
    segmented = segment(fusion, [NoOp(), everything()], H200, may_merge=lambda _: merges)
    check_structure(segmented)
    assert_same_numbers(fusion, segmented)
    for style in ("2024", "head"):
        check(parse(segmented_fusion_text(segmented, style)))


def moody(seed: int) -> list[Any]:
    """Return schedulers that accept single nodes, and others by what only the structure tells."""

    def because(mood: int) -> Callable[[Fusion], str | None]:
        def judged(segment: Fusion) -> str | None:
            own = [n for n in segment.nodes if n.op.name not in COPIED]
            if len(own) <= 1:
                return None
            text = " ".join(sorted(n.op.name for n in segment.nodes))
            kind = zlib.crc32(f"{mood} {seed} {text}".encode()) % 3
            return None if kind == 0 else "not in the mood"

        return judged

    return [NoOp(), *(FakeScheduler(f"mood_{k}", because(k), 0.3 + 0.3 * k) for k in range(2))]


@QUICK
@given(fusions(aliases=True, max_steps=18), st.integers(0, 10_000))
def test_whatever_is_refused_segments_form_a_dag_that_somebody_takes(
    fusion: Fusion, seed: int
) -> None:
    segmented = segment(fusion, moody(seed), H200)
    check_structure(segmented)
    assert all(s.scheduler != "none" and s.estimate is not None for s in segmented.segments)
    assert_same_numbers(fusion, segmented)
    again = segment(shuffled(fusion, seed), moody(seed), H200)
    assert summary(again) == summary(segmented)
    assert again.decisions == segmented.decisions
