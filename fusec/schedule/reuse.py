"""Results of segments in the memory of what they read for the last time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fusec.ir.effects import Effects
from fusec.ir.graph import Fusion, Input, Output
from fusec.schedule.overrides import settings_of
from fusec.schedule.plan import KernelPlan, TensorArgument
from fusec.schedule.registry import find_scheduler
from fusec.segment.protocol import Refusal
from fusec.segment.segmented import Decision, Segment, SegmentedFusion, tensor_bytes
from fusec.target import Target


def reuse_in_place(segmented: SegmentedFusion, target: Target) -> SegmentedFusion:
    """Write results of segments where what they read for the last time lies.

    Only where each element is read for the element that overwrites it, and where the segment's
    scheduler then has a plan that writes it in place. Outputs and inputs of the fusion stay.
    """
    ends = _last_readers(segmented)
    decisions: list[Decision] = []
    segments: list[Segment] = []
    for segment in segmented.segments:
        dying = [i for i in segment.fusion.inputs if ends.get(i.value.name) == segment.id]
        for output in _by_size(segmented.fusion, segment):
            found = next(_candidates(segment, output, dying, target), None)
            if found is None:
                continue
            segment, entry = found
            dying.remove(entry)
            because = "it is read there for the last time, each element for that which overwrites it"
            subject = output.value.name, entry.value.name
            decisions.append(Decision("reuse in place", subject, because))
        segments.append(segment)
    if not decisions:
        return segmented
    every = (*segmented.decisions, *decisions)
    return replace(segmented, segments=tuple(segments), decisions=every)


def _last_readers(segmented: SegmentedFusion) -> Mapping[str, int]:
    """Return the last segment that reads each tensor that only crosses, unless views are made of it.

    A segment without kernels hands on what it reads.
    """
    fusion = segmented.fusion
    kept = {v.name for v in (*(i.value for i in fusion.inputs), *(o.value for o in fusion.outputs))}
    found: dict[str, int] = {}
    for segment in segmented.segments:
        names = {i.value.name for i in segment.fusion.inputs if not i.value.is_scalar}
        if segment.estimate is not None and segment.estimate.kernels == 0:
            kept |= names | {o.value.name for o in segment.fusion.outputs}
        found |= dict.fromkeys(names, segment.id)
    return {name: last for name, last in found.items() if name not in kept}


def _by_size(fusion: Fusion, segment: Segment) -> list[Output]:
    """Return the outputs that only other segments read, the largest first."""
    own = (o for o in segment.fusion.outputs if o.value not in fusion.output_of)
    return sorted(own, key=lambda o: -tensor_bytes(o.value, fusion.hints))


def _candidates(
    segment: Segment, output: Output, dying: Iterable[Input], target: Target
) -> Iterator[tuple[Segment, Input]]:
    """Yield the segment with an output written into an input, with that input, where it can be."""
    value, effects = output.value, segment.fusion.effects
    for entry in dying:
        given = entry.value
        if (given.shape, given.dtype, entry.strides) != (
            value.shape,
            value.dtype,
            effects.strides(value),
        ):
            continue
        outputs = (
            replace(o, alias=given.name) if o is output else o for o in segment.fusion.outputs
        )
        changed = replace(segment, fusion=replace(segment.fusion, outputs=tuple(outputs)))
        if any(Effects(changed.fusion).unsafe()) or not _reads_at_once(changed.fusion, value.name):
            continue
        plan = find_scheduler(segment.scheduler).offer(
            changed.fusion, target, settings_of(changed)
        )
        if not isinstance(plan, Refusal) and _writes_into(plan[0], given.name, value.name):
            yield changed, entry


def _reads_at_once(fusion: Fusion, name: str) -> bool:
    """Return whether what an output overwrites is read for the same elements alone."""
    value = next(o.value for o in fusion.outputs if o.value.name == name)
    return fusion.effects.reads_in_place(value)


def _writes_into(plan: KernelPlan, given: str, name: str) -> bool:
    """Return whether one kernel alone works with a tensor, and writes a result there."""
    users = [
        [a for a in k.arguments if isinstance(a, TensorArgument) and a.name in (given, name)]
        for k in plan.kernels
    ]
    used = [arguments for arguments in users if arguments]
    return len(used) == 1 and [a.name for a in used[0] if a.written] == [given]
