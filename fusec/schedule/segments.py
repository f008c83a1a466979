"""Kernel plans of segments, and further ones for when the compiler spills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusec.ir.dim import symbol
from fusec.schedule.overrides import settings_of
from fusec.schedule.plan import Guard, KernelPlan
from fusec.schedule.pressure import Occupancy, occupancy
from fusec.schedule.registry import find_scheduler
from fusec.segment.protocol import Refusal
from fusec.segment.segmented import Segment
from fusec.target import Target

FEWER_REGISTERS = (3 / 4, 1 / 2, 1 / 4)
"""Parts of an SM's registers for which a segment is planned again whose kernel spills with all."""


def plan_segment(part: Segment, target: Target) -> KernelPlan:
    """Return a segment's kernel plan, or that for fewer registers where its kernels would spill."""
    plan = _planned(part, target)
    if not _overflows(plan, target):
        return plan
    others = plans_for_fewer(part, target)
    return next((p for p in others if not _overflows(p, target)), plan)


def _overflows(plan: KernelPlan, target: Target) -> bool:
    """Return whether threads hold more than launch bounds leave them, as predicted."""
    return any(o.wanted > o.most for o in occupancies(plan, target))


def _planned(part: Segment, target: Target) -> KernelPlan:
    """Return a segment's kernel plan, with the guards that keep it to the sizes put into it."""
    plan = find_scheduler(part.scheduler).build(part.fusion, target, settings_of(part))
    sizes = (
        Guard(symbol(name), "==", size, "the kernel is specialised to this size")
        for name, size in plan.specialised.items()
    )
    return replace(plan, guards=(*sizes, *plan.guards))


def occupancies(plan: KernelPlan, target: Target) -> tuple[Occupancy, ...]:
    """Return how many blocks of each of a plan's kernels an SM holds, as predicted."""
    found: list[Occupancy] = []
    for kernel in plan.kernels:
        of = kernel.of or plan
        pressure = find_scheduler(of.scheduler).pressure(of, kernel)
        found.append(occupancy(kernel, pressure, target))
    return tuple(found)


def plans_for_fewer(part: Segment, target: Target) -> Iterator[KernelPlan]:
    """Yield plans of a segment as for SMs with fewer registers, in which a thread holds less."""
    tried = [_planned(part, target).parameters]
    for share in FEWER_REGISTERS:
        smaller = replace(target, registers=int(target.registers * share))
        scheduler, settings = find_scheduler(part.scheduler), settings_of(part)
        if isinstance(scheduler.propose(part.fusion, smaller, settings), Refusal):
            continue
        plan = _planned(part, smaller)
        if plan.parameters not in tried:
            tried.append(plan.parameters)
            yield plan
