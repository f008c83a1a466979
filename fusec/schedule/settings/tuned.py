"""Measured schedules, which replace those that the cost model selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.dataclasses import replace
from fusec.ir.annotations import Setting
from fusec.schedule.former import all_present
from fusec.schedule.original_orders import orders_of
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import PlanningScheduler, find_scheduler
from fusec.schedule.settings.overrides import as_stored
from fusec.schedule.space import Parameters
from fusec.schedule.summation import digest_at
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.segmented import Segment, SegmentedFusion
from fusec.target import Target
from fusec.tuned import Entry, Store, Tuned, find, key_of

MOST_DISTANCE = 4.0
"""Most doublings of extents, in total, for which a measured schedule applies to a segment."""
DEARER = 1.05
"""Most predicted time, relative to the first plan, of a schedule measured at other sizes."""


def with_tuned(
    segmented: SegmentedFusion, target: Target, stores: Sequence[Store]
) -> SegmentedFusion:
    """Return the segments with measured schedules, except those with a field set by the user.

    A record applies at the sizes at which it was measured, else at the nearest ones where it is
    legal and its predicted time is close to that of the first plan; never if a template of its
    kernels has changed.
    """
    if not stores:
        return segmented
    segments = tuple(_tuned(s, target, stores) for s in segmented.segments)
    changed = any(s.tuned is not None for s in segments)
    return replace(segmented, segments=segments) if changed else segmented


def _tuned(segment: Segment, target: Target, stores: Sequence[Store]) -> Segment:
    if segment.overrides or segment.estimate is None:
        return segment
    scheduler = find_scheduler(segment.scheduler)
    for found in find(stores, segment.scheduler, key_of(segment.fusion)):
        if found.doublings > MOST_DISTANCE:
            break
        if not found.entry.is_current:
            continue
        settings = all_present(scheduler.former, found.entry.parameters)
        entry = replace(found.entry, parameters=settings)
        offer = _offer(segment, entry, found.doublings, scheduler, target)
        if offer is not None:
            plan, estimate = offer
            about = entry, found.doublings == 0, found.source
            tuned = Tuned(*about, _reordered(segment, plan, scheduler, target))
            return replace(segment, tuned=tuned, estimate=as_stored(segment, estimate))
    return segment


def _offer(
    segment: Segment, entry: Entry, doublings: float, scheduler: PlanningScheduler, target: Target
) -> tuple[KernelPlan, Estimate] | None:
    """Return a segment's plan with a record and its cost, or None if it does not apply.

    doublings: of extents between the measured sizes and those of the segment.
    """
    settings = entry.parameters
    if not are_fields(settings, segment, scheduler, target):
        return None
    offer = scheduler.offer(segment.fusion, target, settings)
    if isinstance(offer, Refusal) or is_requested(offer[0]):
        return None
    is_exact = not doublings
    if is_exact and entry.summation and entry.summation != _summation(segment, offer[0]):
        return None  # its kernels had another summation order when they were measured
    first, estimate = segment.estimate, offer[1]
    if (
        first is not None
        and not is_exact
        and estimate.seconds(target) > DEARER * first.seconds(target)
    ):
        return None
    return offer


def _summation(segment: Segment, plan: KernelPlan) -> str:
    fusion = segment.fusion
    return digest_at(fusion, orders_of(fusion, fusion, [plan]), fusion.hints)


def is_requested(plan: KernelPlan) -> bool:
    """Return whether a plan has values that are selected only by a user's schedule."""
    return isinstance(plan.parameters, Parameters) and bool(plan.parameters.requested)


def _reordered(
    segment: Segment, plan: KernelPlan, scheduler: PlanningScheduler, target: Target
) -> tuple[str, ...]:
    """Return the sums whose order differs from that of the untuned plan."""
    untuned = scheduler.offer(segment.fusion, target)
    if isinstance(untuned, Refusal):
        return ()
    sizes = segment.fusion.hints
    orders = (
        {name: order.at(sizes) for name, order in p.orders.items()} for p in (plan, untuned[0])
    )
    tuned, default = orders
    return tuple(name for name, order in tuned.items() if order != default.get(name))


def are_fields(
    settings: Mapping[str, Setting],
    segment: Segment,
    scheduler: PlanningScheduler,
    target: Target,
) -> bool:
    """Return whether each setting is a free field of the segment's record, and of its kind."""
    values = {f.name: f.values for f in scheduler.free(segment.fusion, target)}
    return all(
        name in values and type(value) is type(values[name][0]) for name, value in settings.items()
    )
