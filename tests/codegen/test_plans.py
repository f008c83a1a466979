"""Plans: what a family finds in a segment is found once, and the kernel's text is printed of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from paths import ROOT

from fusec import driver, lowering
from fusec.codegen.dispatch import plan_sources
from fusec.index import domain
from fusec.index.instances import Lowering
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.schedule.rows.domain import PhasedPlan
from fusec.schedule.run_time_sizes import TRIES

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
OPTIONS = CompileOptions(targets=("sm_90a",))
NO_LOOPS = frozenset({"matmul", "sort", "scatter"})
"""Families of which a kernel has several domains, or is printed with the names of C."""


@pytest.fixture
def domains(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Counts how often the domain of a fusion is looked for."""
    found, known = Counter[int](), list[Fusion]()
    inner = domain._first_reference

    def counting(fusion: Fusion) -> object:
        known.append(fusion)  # so that no other gets its identity
        found[id(fusion)] += 1
        return inner(fusion)

    monkeypatch.setattr(domain, "_first_reference", counting)
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_domain_is_found_once_for_a_segment_and_its_kernel(
    path: Path, domains: Counter[int]
) -> None:
    segmented = lowering.segment(lowering.optimise(driver.load(str(path)), OPTIONS), OPTIONS)
    domains.clear()
    plans = driver.Compilation(segmented.fusion, OPTIONS, segmented=segmented).plans
    assert max(domains.values(), default=0) <= 1
    # With symbols, with sizes put in, and with those of them that may stay open.
    assert domains.total() <= (2 + TRIES) * len(plans)
    domains.clear()
    for plan in plans:
        if plan.scheduler not in NO_LOOPS:
            plan_sources(plan)
    assert not domains


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_text_in_phases_is_printed_of_the_plan(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segmented = lowering.segment(lowering.optimise(driver.load(str(path)), OPTIONS), OPTIONS)
    plans = driver.Compilation(segmented.fusion, OPTIONS, segmented=segmented).plans

    def no_more(self: Lowering, *given: object) -> None:
        raise AssertionError("the kernel's loops are analysed again")

    monkeypatch.setattr(Lowering, "__init__", no_more)
    for plan in plans:
        if isinstance(plan, PhasedPlan) and plan.scheduler != "inner_outer_persistent":
            assert plan_sources(plan)
