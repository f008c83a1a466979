"""Every kernel of products and attention again and again: the same bits, and semaphores at rest."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_runs import Differences, arenas, called, counters, program_of, repeated
from gpu_variants import VARIANTS

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

RUNS = 1000


@pytest.mark.parametrize("name", VARIANTS)
def test_a_thousand_runs_give_the_same_bits(name: str) -> None:
    program, variant = program_of(name), VARIANTS[name]
    assert repeated(program, variant, RUNS, exact=not variant.ordered) == 0
    assert not any(any(counters(arena)) for arena in arenas(program))


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_not_rounded_is_exact(name: str) -> None:
    variant, found = VARIANTS[name], Differences()
    for seed in (3, 4):
        given = variant.inputs(seed, exact=True)
        found.exactly(called(program_of(name), given), variant.results(given))
    assert found.count == 0
