"""Results of segments that reuse the memory of inputs after their last use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Input, Value
from fusec.ops.communication import communicates, places
from fusec.schedule.plan import KernelPlan, TensorArgument
from fusec.schedule.registry import find_scheduler
from fusec.schedule.settings.overrides import settings_of
from fusec.segment.protocol import Refusal
from fusec.segment.segmented import Decision, Segment, SegmentedFusion, tensor_bytes
from fusec.target import Target


def reuse_in_place(segmented: SegmentedFusion, target: Target) -> SegmentedFusion:
    """Write results of segments into inputs that have no later use.

    Only if each element is read just for the element that overwrites it, and if the segment's
    scheduler then has a plan that writes it in place. Outputs and inputs of the fusion stay
    separate, and so do all tensors of a distributed fusion, which are parts of others.
    """
    if any(communicates(n) or places(n) for n in segmented.fusion.nodes):
        return segmented
    ends = _last_readers(segmented)
    decisions: list[Decision] = []
    segments: list[Segment] = []
    for segment in segmented.segments:
        dying = [i for i in segment.fusion.inputs if ends.get(i.value.name) == segment.id]
        for value in _by_size(segmented.fusion, segment):
            found = next(_candidates(segment, value, dying, target), None)
            if found is not None:
                segment, entry = found
                dying.remove(entry)
                names = value.name, entry.value.name
                decisions.append(Decision("reuse in place", names, f"{segment.name} {BECAUSE}"))
        segments.append(segment)
    if not decisions:
        return segmented
    every = (*segmented.decisions, *decisions)
    return replace(segmented, segments=tuple(segments), decisions=every)


BECAUSE = "is its last reader, and reads each element before overwriting it"


def _last_readers(segmented: SegmentedFusion) -> Mapping[str, int]:
    """Return the last reader of each intermediate tensor, if no view of it exists.

    A segment without kernels passes on its inputs.
    """
    fusion = segmented.fusion
    kept = {i.value.name for i in fusion.inputs} | {o.value.name for o in fusion.outputs}
    found: dict[str, int] = {}
    for segment in segmented.segments:
        names = {i.value.name for i in segment.fusion.inputs if not i.value.is_scalar}
        if segment.estimate is not None and segment.estimate.kernels == 0:
            kept |= names | {o.value.name for o in segment.fusion.outputs}
        found |= dict.fromkeys(names, segment.id)
    return {name: last for name, last in found.items() if name not in kept}


def _by_size(fusion: Fusion, segment: Segment) -> list[Value]:
    """Return the results that only other segments read, the largest first."""
    own = (o.value for o in segment.fusion.outputs if o.value not in fusion.output_of)
    return sorted(own, key=lambda v: -tensor_bytes(v, fusion.hints))


def _candidates(
    segment: Segment, value: Value, dying: Iterable[Input], target: Target
) -> Iterator[tuple[Segment, Input]]:
    """Yield the segment with a result written into an input, and that input, if possible."""
    form = value.shape, value.dtype, segment.fusion.effects.strides(value)
    for entry in dying:
        given = entry.value
        if (given.shape, given.dtype, entry.strides) != form:
            continue
        outputs = tuple(
            replace(o, alias=given.name) if o.value is value else o for o in segment.fusion.outputs
        )
        changed = replace(segment, fusion=replace(segment.fusion, outputs=outputs))
        effects = changed.fusion.effects
        if any(effects.unsafe()) or not effects.reads_in_place(value):
            continue
        scheduler = find_scheduler(segment.scheduler)
        offer = scheduler.offer(changed.fusion, target, settings_of(changed))
        if not isinstance(offer, Refusal) and _writes_into(offer[0], given.name, value.name):
            yield changed, entry


def _writes_into(plan: KernelPlan, given: str, name: str) -> bool:
    """Return whether a single kernel accesses a tensor and writes a result into it."""
    users = [
        [a for a in k.arguments if isinstance(a, TensorArgument) and a.name in (given, name)]
        for k in plan.kernels
    ]
    used = [arguments for arguments in users if arguments]
    return len(used) == 1 and [a.name for a in used[0] if a.written] == [given]
