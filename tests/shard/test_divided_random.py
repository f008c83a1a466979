"""Passes and segmentation of drawn fusions between whose operations ranks exchange values."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from divided import divided_fusion, evaluated_as_if
from draws import times
from fake_schedulers import H200, usual
from segment_runs import check_structure
from test_segment_random import moody, shuffled, summary, up_to

from fusec.ir.effects import own_strides
from fusec.ir.expression import contiguous_strides
from fusec.ir.graph import Fusion, Node
from fusec.ir.verify import verify
from fusec.ops.communication import communicates, stands_alone
from fusec.passes import PIPELINE, Pass, run_pipeline
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import random_inputs
from fusec.schedule.registry import host_schedulers
from fusec.segment.loops import loops
from fusec.segment.search import segment
from fusec.segment.segmented import Segment, SegmentedFusion
from tools.segments import run_segments

SEEDS = range(times(16))


def assert_same_passes(fusion: Fusion, passes: Iterable[Pass]) -> None:
    inputs = random_inputs(fusion, fusion.hints, 0)
    with evaluated_as_if():
        expected = evaluate(fusion, inputs, fusion.hints)
        for step in passes:
            after = step.run(fusion)
            verify(after)
            found = evaluate(after, inputs, fusion.hints)
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name], array, err_msg=step.name)
            fusion = after


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_keep_what_ranks_exchange(seed: int) -> None:
    order = random.Random(seed).sample(PIPELINE, len(PIPELINE))
    assert_same_passes(divided_fusion(seed), order)


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_share_equal_exchanges_and_add_none(seed: int) -> None:
    fusion = divided_fusion(seed)
    after = run_pipeline(fusion)
    left = [n for n in after.nodes if stands_alone(n)]
    assert len(left) <= len([n for n in fusion.nodes if stands_alone(n)])
    assert len({(n.op, n.inputs, repr(n.attributes)) for n in left}) == len(left)


def check(fusion: Fusion, found: SegmentedFusion) -> None:
    """Assert that segments compute the fusion, and the rules for what stands between kernels."""
    check_structure(found)
    inputs = random_inputs(fusion, fusion.hints, 0)
    with evaluated_as_if():
        expected = evaluate(fusion, inputs, fusion.hints)
        results = run_segments(found, inputs, fusion.hints)
    for before, after in zip(fusion.outputs, found.fusion.outputs, strict=True):
        np.testing.assert_array_equal(results[after.value.name], expected[before.value.name])
    counts = loops(found.fusion)
    for part in found.segments:
        alone = [n for n in part.nodes if stands_alone(n)]
        if alone:
            assert part.nodes == (*alone,)
            assert part.scheduler == alone[0].op.family
            check_operand(found, part, alone[0])
        made = {o.value for o in part.fusion.outputs}
        times = {str(counts.get(n, 1)) for n in found.fusion.nodes if made & {*n.outputs}}
        assert len(times) == 1, f"{part.name} runs {times} times"
        assert str(part.iterations) in times


def check_operand(found: SegmentedFusion, part: Segment, node: Node) -> None:
    """Assert that an exchange's operand is dense, and that what is stacked lies in its place."""
    whole, ((entry,), (value,)) = found.fusion, (part.fusion.inputs, node.inputs)
    if communicates(node):
        dense = zip(value.shape, entry.strides, contiguous_strides(value.shape), strict=True)
        assert all(e == 1 or s == own for e, s, own in dense)
    elif node.op.lies == "around":
        producer = whole.producer[value]
        assert not stands_alone(producer)
        assert whole.users[value] == (node,)
        assert value not in whole.output_of
        (made,) = [o for s in found.segments for o in s.fusion.outputs if o.value is value]
        assert entry.strides == own_strides(made)
        if whole.effects.shares(node):
            assert entry.strides == whole.effects.strides(node.output)
        else:
            assert entry.strides == contiguous_strides(value.shape)


@pytest.mark.parametrize("seed", SEEDS)
def test_segments_compute_what_the_fusion_computes(seed: int) -> None:
    fusion = divided_fusion(seed)
    check(fusion, segment(fusion, [*usual(), *host_schedulers()], H200))


@pytest.mark.parametrize("seed", SEEDS)
def test_small_segments_compute_what_the_fusion_computes(seed: int) -> None:
    fusion = divided_fusion(seed)
    check(fusion, segment(fusion, [*up_to(1 + seed % 4), *host_schedulers()], H200))


def exchanged(found: SegmentedFusion) -> list[str]:
    names = [n for s in found.segments for n in s.nodes if communicates(n)]
    return [n.output.name for n in names]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_rank_exchanges_in_the_same_order(seed: int) -> None:
    fusion = divided_fusion(seed)
    schedulers = [*moody(seed), *host_schedulers()]
    found = segment(fusion, schedulers, H200)
    check(fusion, found)
    again = segment(shuffled(fusion, seed), [*moody(seed), *host_schedulers()], H200)
    assert exchanged(again) == exchanged(found)
    assert summary(again) == summary(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_predicate_parts_what_stands_alone_from_kernels(seed: int) -> None:
    fusion, rng = divided_fusion(seed), random.Random(seed)
    schedulers = [*usual(), *host_schedulers()]
    found = segment(fusion, schedulers, H200, should_merge=lambda _a, _b: rng.random() < 0.7)
    check(fusion, found)
    assert found.host is not None
    for group in found.host.segments:
        assert len(group.nodes) == 1 or not any(stands_alone(n) for n in group.nodes)
