"""Passes on random fusions: numbers stay the same, well-formed stays well-formed, twice is once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from draws import drawn, times
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nightly import mostly_nightly
from strategies import fusions, random_inputs

from fusec.ir.graph import Fusion
from fusec.ir.verify import verify
from fusec.passes import PIPELINE, Pass, run_pipeline
from fusec.reference.evaluate import evaluate

QUICK = settings(drawn(30), suppress_health_check=list(HealthCheck), derandomize=True)
NAMES = [p.name for p in PIPELINE]


def numbers(fusion: Fusion) -> dict[str, Any]:
    return evaluate(fusion, random_inputs(fusion), fusion.hints)


def assert_same_numbers(before: Fusion, after: Fusion) -> None:
    expected, found = numbers(before), numbers(after)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=f"{name} of {after.nodes}")


def check(before: Fusion, passes: Iterable[Pass]) -> Fusion:
    after = before
    for step in passes:
        after = step.run(after)
        verify(after)
    assert [(o.value.name, o.value.type, o.alias) for o in after.outputs] == [
        (o.value.name, o.value.type, o.alias) for o in before.outputs
    ]
    assert_same_numbers(before, after)
    return after


@pytest.mark.parametrize("step", mostly_nightly(PIPELINE, 2), ids=NAMES)
def test_a_pass_alone_keeps_numbers_and_is_idempotent(step: Pass) -> None:
    @QUICK
    @given(fusions(aliases=True))
    def keeps(fusion: Fusion) -> None:
        once = check(fusion, [step])
        again = step.run(once)
        if again is not once:
            assert again == once

    keeps()


@pytest.mark.parametrize("left_out", NAMES)
def test_the_pipeline_without_a_pass_keeps_numbers(left_out: str) -> None:
    @settings(QUICK, max_examples=times(15))
    @given(fusions(aliases=True))
    def keeps(fusion: Fusion) -> None:
        after = run_pipeline(fusion, without=[left_out])
        verify(after)
        assert_same_numbers(fusion, after)

    keeps()


@QUICK
@given(fusions(aliases=True), st.permutations(PIPELINE))
def test_passes_in_any_order_keep_numbers(fusion: Fusion, order: list[Pass]) -> None:
    check(fusion, [*order, *order])


@settings(QUICK, max_examples=times(50))
@given(fusions(aliases=True, max_steps=14))
def test_the_pipeline_settles(fusion: Fusion) -> None:
    once = run_pipeline(fusion)
    verify(once)
    assert_same_numbers(fusion, once)
    assert run_pipeline(once) is once


@settings(QUICK, max_examples=times(50))
@given(fusions(pins=True, max_steps=14))
def test_pins_name_what_is_left_of_a_segment(fusion: Fusion) -> None:
    after = run_pipeline(fusion)
    verify(after)
    assert_same_numbers(fusion, after)
    pinned = {name for pin in fusion.pins for name in pin.values}
    kept = {name for pin in after.pins for name in pin.values}
    assert {o.value.name for o in fusion.outputs} & pinned <= kept
    # No path leaves the segment and comes back.
    inside = {n for n in after.nodes if any(v.name in kept for v in n.outputs)}
    left: set[Any] = set()
    for node in after.nodes:
        before = {after.producer[v] for v in node.inputs if v in after.producer}
        if node in inside:
            assert not before & left
        elif before & (inside | left):
            left.add(node)
