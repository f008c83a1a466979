"""Groups that are too long for one kernel, by their operations: no scheduler would take them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from draws import drawn
from hypothesis import HealthCheck, given, settings
from strategies import fusions

from benchmarks.segmentation_families import diamonds, hub
from fusec import lowering, target
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.schedule.registry import schedulers
from fusec.segment import length, offers
from fusec.segment.offers import Offers, Surroundings
from fusec.segment.protocol import Estimate

OPTIONS = CompileOptions()
GPU = target.find(OPTIONS.target)
ALONE = Surroundings(frozenset(), frozenset())


def assert_nobody_takes_what_is_too_long(fusion: Fusion) -> bool:
    """Fail where a scheduler takes a fusion whose operations are too long; return if they are."""
    asked = Offers(schedulers(), GPU)
    if not asked.is_too_long(fusion.nodes, fusion.hints):
        return False
    for scheduler in asked.schedulers:
        proposal = offers.proposal_of(scheduler, fusion, GPU)
        assert not isinstance(proposal, Estimate) or offers.takes_long(proposal), scheduler.name
    return True


@settings(drawn(60), suppress_health_check=list(HealthCheck), derandomize=True)
@given(fusions(max_steps=14))
def test_nobody_takes_a_random_fusion_that_is_too_long(fusion: Fusion) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for module in (length, offers):
            patched.setattr(module, "MOST_LENGTH", GPU.cost.build.kernel_seconds + 2e-3)
            patched.setattr(module, "MOST_AGAIN", 1e-6)
        assert_nobody_takes_what_is_too_long(lowering.optimise(fusion, OPTIONS))


@pytest.mark.parametrize(("make", "least"), [(hub, 41), (diamonds, 150)])
def test_long_families_are_too_long(make: Callable[[int], Fusion], least: int) -> None:
    assert assert_nobody_takes_what_is_too_long(lowering.optimise(make(least), OPTIONS))
    assert not assert_nobody_takes_what_is_too_long(lowering.optimise(make(least // 4), OPTIONS))


def test_schedulers_without_a_limit_are_asked() -> None:
    fusion = lowering.optimise(diamonds(150), OPTIONS)

    class Unlimited:
        name = "unlimited"

        def propose(self, segment: Fusion, target: object) -> Estimate:
            return Estimate(bytes=0)

    assert not Offers([Unlimited()], GPU).is_too_long(fusion.nodes, fusion.hints)
    assert Offers([Unlimited()], GPU).ask(fusion, ALONE).accepted
