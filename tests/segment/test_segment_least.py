"""Merges are proposed when they may be the next: bounds on what they save, and what is chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from draws import drawn
from hypothesis import HealthCheck, given, settings
from strategies import fusions

from benchmarks.segmentation_families import shifts
from fusec import driver, lowering, target
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.schedule.registry import schedulers
from fusec.segment.graph import Graph
from fusec.segment.groups import Groups
from fusec.segment.least import LeastSeconds
from fusec.segment.merge import Merges
from fusec.segment.offers import Offers
from fusec.segment.piece import Chosen
from fusec.segment.regions import singles
from fusec.segment.segmented import SegmentedFusion

OPTIONS = CompileOptions()
GPU = target.find(OPTIONS.target)
EXAMPLES = Path(__file__).parents[2] / "examples"
MIXED = ("layernorm_backward", "rope", "log_softmax", "linear_gelu", "cross_entropy", "swiglu")


def example(name: str) -> Fusion:
    """Return an optimised example."""
    return lowering.optimise(driver.load(str(EXAMPLES / f"{name}.yaml")), OPTIONS)


def checked(fusion: Fusion) -> int:
    """Segment a fusion; fail where a bound exceeds an offer, and return how many were compared."""
    compared = 0
    of = Merges.offer

    def offer(self: Merges, chosen: Chosen) -> object:
        nonlocal compared
        found = of(self, chosen)
        if found.accepted:
            least = LeastSeconds(self.groups.graph.fusion, GPU).of(self.groups, chosen)
            nodes = [n.output.name for n in self.groups.members(chosen)]
            assert least <= found.seconds * (1 + 1e-9), (found.scheduler, nodes)
            compared += 1
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Merges, "offer", offer)
        lowering.segment(fusion, OPTIONS)
    return compared


def in_order(fusion: Fusion, *, eager: bool = False) -> tuple[SegmentedFusion, int]:
    """Return the segments of a fusion, and how often schedulers were asked for some.

    eager: whether every merge is proposed as soon as it is a candidate.
    """
    asked = 0
    of = Offers._asked  # pyright: ignore[reportPrivateUsage]

    def ask(self: Offers, *given: object) -> object:
        nonlocal asked
        asked += 1
        return of(self, *given)  # pyright: ignore[reportArgumentType]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Offers, "_asked", ask)
        if eager:
            patched.setattr(Merges, "most_gain", Merges.gain)
        return lowering.segment(fusion, OPTIONS), asked


def assert_same_as_eager(fusion: Fusion) -> tuple[int, int]:
    """Fail where the order of proposals changes a decision; return the proposals of both."""
    (one, few), (other, many) = in_order(fusion), in_order(fusion, eager=True)
    assert one.segments == other.segments
    assert one.decisions == other.decisions
    return few, many


@pytest.mark.parametrize("name", MIXED)
def test_no_offer_of_an_example_is_below_its_bound(name: str) -> None:
    assert checked(example(name)) > 0


@settings(drawn(40), suppress_health_check=list(HealthCheck), derandomize=True)
@given(fusions(max_steps=10))
def test_no_offer_of_a_random_fusion_is_below_its_bound(fusion: Fusion) -> None:
    large = tuple(replace(d, default=d.default * 192) for d in fusion.dims)
    checked(lowering.optimise(replace(fusion, dims=large), OPTIONS))


@settings(drawn(20), suppress_health_check=list(HealthCheck), derandomize=True)
@given(fusions(max_steps=10))
def test_random_fusions_are_segmented_as_if_all_merges_were_proposed(fusion: Fusion) -> None:
    assert_same_as_eager(lowering.optimise(fusion, OPTIONS))


@pytest.mark.parametrize("name", MIXED)
def test_examples_are_segmented_as_if_all_merges_were_proposed(name: str) -> None:
    few, many = assert_same_as_eager(example(name))
    assert few <= many


def test_merges_that_others_overtake_are_not_proposed() -> None:
    few, many = assert_same_as_eager(lowering.optimise(shifts(16), OPTIONS))
    assert few < 0.8 * many


def test_schedulers_that_state_no_traffic_are_not_bounded() -> None:
    class Free:
        name = "free"

        def propose(self, segment: Fusion, target: object) -> object:
            raise NotImplementedError

    assert Offers(schedulers(), GPU).bounded
    assert not Offers([*schedulers(), Free()], GPU).bounded  # pyright: ignore[reportArgumentType]


def test_equal_groups_with_a_common_operand_name_their_own_values() -> None:
    fd = GraphBuilder("layers")
    common = fd.input("common", F32, (64, 128))
    for k in range(2):
        fd.output(fd.apply("matmul", common, fd.input(f"w{k}", F32, (128, 64))))
    fusion = fd.finish()
    graph = Graph(fusion, frozenset())
    merges = Merges(Groups(graph, singles(graph, ())), Offers(schedulers(), GPU))
    for piece, node in zip(merges.groups, fusion.nodes, strict=True):
        reasons = merges.named_offer(frozenset({piece})).reasons()
        own = {n.output.name for n in fusion.nodes} & set(reasons.split("`"))
        assert own == {node.output.name}
