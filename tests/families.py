"""One scheduler at a time: its refusals, its plans, its kernels built for two targets or run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from cuda_on_cpu import build_all, run_plan

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.reference.verdict import compare
from fusec.run.build import Source, build
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import find_scheduler
from fusec.segment.protocol import Estimate, Refusal

GPU = target.find("sm_90a")
TARGETS = ("sm_80", "sm_90a")
BULK = ("tma", "combine_in_bulk")
"""Headers that are for sm_90 alone."""


def estimate(scheduler: str, fusion: Fusion) -> Estimate:
    """Return the scheduler's price of a fusion that it takes."""
    proposal = find_scheduler(scheduler).propose(fusion, GPU)
    assert isinstance(proposal, Estimate), proposal
    return proposal


def refused_rule(scheduler: str, fusion: Fusion) -> str:
    """Return the rule by which the scheduler refuses a fusion."""
    proposal = find_scheduler(scheduler).propose(fusion, GPU)
    assert isinstance(proposal, Refusal), proposal
    assert proposal.because
    return proposal.rule


def plan_of(scheduler: str, fusion: Fusion, **settings: Setting) -> KernelPlan:
    """Return the scheduler's plan of a fusion that it takes, with some fields set."""
    estimate(scheduler, fusion)
    return find_scheduler(scheduler).build(fusion, GPU, settings)


def text_of(plan: KernelPlan) -> str:
    """Return the CUDA text of a plan's only kernel."""
    (source,) = plan_sources(plan)
    return source.text


def assert_builds(plan: KernelPlan) -> None:
    """Build a plan's kernels for one of two targets; none may spill, or be warned of."""
    pytest.importorskip("cuda.bindings.nvrtc")
    assert_kernels_build([Source(s.name, s.text) for s in plan_sources(plan)], plan.parameters)


def assert_kernels_build(sources: Sequence[Source], about: object) -> None:
    """Build kernels for one of two targets, drawn by what they are; none may spill or be warned of.

    Those with bulk copies are for sm_90a alone. about: what is told of kernels that spill.
    """
    needs_bulk = any(f'"{header}.cuh"' in s.text for s in sources for header in BULK)
    drawn = crc32(f"{about} {[s.name for s in sources]}".encode()) % len(TARGETS)
    target = TARGETS[-1] if needs_bulk else TARGETS[drawn]
    for artifact in build(sources, [target], jobs=2).values():
        assert artifact.spill_bytes == 0, f"{artifact.name} spills on {target}: {about}"
        assert not artifact.warnings, f"{artifact.name} on {target}: {artifact.warnings}"


def run_on_host(
    scheduler: str, fusion: Fusion, folder: Path, inputs: Mapping[str, Any] | None = None
) -> None:
    """Run a scheduler's kernels on the host, in both orders of threads, and compare."""
    plan = plan_of(scheduler, fusion)
    sizes = fusion.hints
    given = {**random_inputs(fusion, sizes), **(inputs or {})}
    for backwards in (False, True):
        outputs = run_plan(plan, given, folder, backwards=backwards)
        verdict = compare(fusion, sizes, given, outputs)
        assert verdict.ok, f"{plan.parameters}\n{verdict.text()}"


def wrong_on_host(plans: Sequence[Any], folder: Path) -> list[str]:
    """Run the kernels of plans of one kernel each, compiled together; return what is wrong."""
    kernels = [(s.kernel, s.text) for p in plans for s in plan_sources(p)]
    wrong: list[str] = []
    for seed, (plan, built) in enumerate(zip(plans, build_all(kernels, folder), strict=True)):
        segment = plan.problem.segment
        inputs = random_inputs(segment, segment.hints, seed)
        outputs = run_plan(plan, inputs, folder, seed=seed, built=[built])
        verdict = compare(segment, segment.hints, inputs, outputs)
        if not verdict.ok:
            wrong.append(f"{seed}: {plan.parameters}\n{verdict.text()}")
    return wrong
