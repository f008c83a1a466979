"""Kernel plans of segments, and alternatives with lower register use if the compiler spills."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from fusec.dataclasses import replace
from fusec.ir.dim import symbol
from fusec.schedule.plan import Guard, KernelPlan
from fusec.schedule.pressure import Occupancy, occupancy
from fusec.schedule.registry import find_scheduler
from fusec.schedule.settings.overrides import settings_of
from fusec.segment.protocol import Refusal
from fusec.segment.segmented import Segment
from fusec.target import Target

REGISTERS = (1, 3 / 4, 1 / 2, 1 / 4)
"""Fractions of an SM's registers for which a segment is planned, until its kernel does not spill.
"""


def plan_segment(part: Segment, target: Target) -> KernelPlan:
    """Return a segment's kernel plan, or one for fewer registers if its kernels would spill."""
    plans = _plans(part, target)
    first = next(plans)
    return next((p for p in chain((first,), plans) if not _overflows(p, target)), first)


def plans_for_fewer(part: Segment, target: Target) -> Iterator[KernelPlan]:
    """Return plans of a segment for fewer registers per SM, in which a thread holds less."""
    return islice(_plans(part, target), 1, None)


def _plans(part: Segment, target: Target) -> Iterator[KernelPlan]:
    """Yield the distinct plans of a segment: for all registers of an SM, then for fewer.

    Each has guards for the sizes that it specializes.
    """
    scheduler, settings = find_scheduler(part.scheduler), settings_of(part)
    known: list[object] = []
    for share in REGISTERS:
        smaller = replace(target, registers=int(target.registers * share))
        offer = scheduler.offer(part.fusion, smaller, settings)
        if isinstance(offer, Refusal):
            assert share < 1, offer
            continue
        plan = offer[0]
        if plan.parameters in known:
            continue
        known.append(plan.parameters)
        sizes = (
            Guard(symbol(name), "==", size, "the kernel is specialized for this size")
            for name, size in plan.specialised.items()
        )
        yield replace(plan, guards=(*sizes, *plan.guards))


def _overflows(plan: KernelPlan, target: Target) -> bool:
    """Return whether threads are predicted to exceed the registers of their launch bounds."""
    return any(o.wanted > o.most for o in occupancies(plan, target))


def occupancies(plan: KernelPlan, target: Target) -> tuple[Occupancy, ...]:
    """Return the predicted number of blocks per SM of each of a plan's kernels."""
    found: list[Occupancy] = []
    for kernel in plan.kernels:
        of = kernel.of or plan
        pressure = find_scheduler(of.scheduler).pressure(of, kernel)
        found.append(occupancy(kernel, pressure, target))
    return tuple(found)
