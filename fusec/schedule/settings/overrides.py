"""The user's schedule overrides: which segments they apply to, their legality, and their cost."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.codes.segments import SCHEDULE_FIELD, SCHEDULE_VALUE
from fusec.codes.unsupported import SCHEDULE_REFUSED
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, InternalError, Span, Unsupported
from fusec.ir.annotations import Override, Setting
from fusec.ir.graph import whole_name
from fusec.options import SCHEDULERS
from fusec.schedule.former import present
from fusec.schedule.registry import PlanningScheduler, find_scheduler, schedulers
from fusec.schedule.space import listing, setting_text
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.segmented import Segment, SegmentedFusion
from fusec.segment.traffic import bytes_written
from fusec.target import Target


def with_overrides(segmented: SegmentedFusion, target: Target) -> SegmentedFusion:
    """Return the segments with the overrides of their fusion, and with the cost of these.

    Raise FusecError or Unsupported, with its location, for one that is meaningless or impossible.
    """
    set_: dict[int, dict[str, Override]] = {s.id: {} for s in segmented.segments}
    meant = [(o, _segments_of(o, segmented)) for o in segmented.fusion.schedules]
    for general in (True, False):  # overrides of one segment take precedence
        for override, segments in meant:
            for segment in segments:
                if general == (segment.scheduler == override.of):
                    for each in _present(override, segment.scheduler):
                        _add(set_[segment.id], each, segment)
    if not any(set_.values()):
        return segmented
    segments = (_overridden(s, tuple(set_[s.id].values()), target) for s in segmented.segments)
    return replace(segmented, segments=tuple(segments))


def settings_of(segment: Segment) -> dict[str, Setting]:
    """Return the fields that are set, with their values: by the user, or by a tuning record."""
    if segment.tuned is not None:
        return dict(segment.tuned.entry.parameters)
    return set_by_user(segment)


def set_by_user(segment: Segment) -> dict[str, Setting]:
    """Return the fields that the user sets, with their values."""
    return {o.name: o.value for o in segment.overrides}


def _present(override: Override, scheduler: str) -> list[Override]:
    """Return an override with the present names of its field and value."""
    former = find_scheduler(scheduler).former
    found = present(former, override.name, override.value)
    if found == {override.name: override.value}:
        return [override]
    written = f"{override.name}: {setting_text(override.value)}"
    return [replace(override, name=n, value=v, written=written) for n, v in found.items()]


def _add(known: dict[str, Override], override: Override, segment: Segment) -> None:
    other = known.get(override.name)
    if other is not None and other.of == override.of and other.written != override.written:
        former = next(filter(None, (override.written, other.written)))
        message = f"`{override.name}` of `{override.of}` is set twice"
        place = [f"`{former}` is its former name"]
        raise FusecError(message, span=override.span, notes=place)
    differs = other is not None and segment.scheduler != other.of != override.of
    if other is not None and differs and _file(other.span) == _file(override.span):
        place = [f"`{other.of}` is also in {segment.name}, which sets {setting_text(other.value)}"]
        message = f"`{override.name}` of {segment.name} is set twice"
        raise FusecError(message, span=override.span, notes=place)
    known[override.name] = override


def _file(span: Span | None) -> str | None:
    return None if span is None else span.file


def _segments_of(override: Override, segmented: SegmentedFusion) -> Sequence[Segment]:
    """Return the segments that are meant: by pin, by output or result, number, or scheduler."""
    of, every = override.of, segmented.segments
    ways = (
        [s for s in every if s.pin == of],
        [s for s in every if of in {whole_name(o) for o in s.fusion.outputs}],
        [s for s in every if of in {v.name for n in s.nodes for v in n.outputs}],
        [s for s in every if s.name == of],
        [s for s in every if s.scheduler == of],
    )
    found = next((way for way in ways if way), None)
    if found is None and segmented.fusion.saved and of in SCHEDULERS:
        return []  # another phase may have such segments
    if found is None:
        listed = ", ".join(f"{s.name} ({s.scheduler})" for s in every)
        raise FusecError(
            f"no segment is named `{of}` or computes it",
            span=override.of_span,
            notes=["a pass may have removed it, or no output needs it"],
            help=f"the segments are {listed}",
        )
    return found


def _overridden(segment: Segment, overrides: tuple[Override, ...], target: Target) -> Segment:
    if not overrides:
        return segment
    scheduler = find_scheduler(segment.scheduler)
    for override in overrides:
        _check(override, segment, scheduler, target)
    settings = {o.name: o.value for o in overrides}
    if scheduler.refusal(segment.fusion, target, settings) is not None:
        raise _first_refused(segment, overrides, target)
    proposal = scheduler.propose(segment.fusion, target, settings)
    if isinstance(proposal, Refusal):
        raise _refused(overrides[-1], proposal, segment, settings, target)
    return replace(segment, overrides=overrides, estimate=as_stored(segment, proposal))


def _first_refused(segment: Segment, overrides: tuple[Override, ...], target: Target) -> FusecError:
    """Return the error of the first override that is incompatible with the previous ones."""
    scheduler = find_scheduler(segment.scheduler)
    settings: dict[str, Setting] = {}
    for override in overrides:
        settings[override.name] = override.value
        refusal = scheduler.refusal(segment.fusion, target, settings)
        if refusal is not None:
            return _refused(override, refusal, segment, settings, target)
    raise InternalError("schedule parameters that are rejected together are rejected one by one")


def as_stored(segment: Segment, estimate: Estimate) -> Estimate:
    """Return the estimate of a plan with the bytes that the segment writes."""
    return replace(estimate, written=min(bytes_written(segment.fusion), estimate.bytes))


def _check(
    override: Override, segment: Segment, scheduler: PlanningScheduler, target: Target
) -> None:
    """Raise FusecError if there is no such field, or if its values are of another kind."""
    import difflib

    free = scheduler.free(segment.fusion, target)
    field = next((f for f in free if f.name == override.name), None)
    if field is None:
        names = [f.name for f in free]
        close = difflib.get_close_matches(override.name, names, n=1)
        help = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(names) or 'none'}"
        if override.name in ("scheduler", "family"):
            pin = f"{{values: [{override.of}], scheduler: {override.value}}}"
            help = f"`segments:` fixes a scheduler: write `segments: {{s: {pin}}}`"
        raise FusecError(
            f"`{segment.scheduler}` ({segment.name}) has no parameter `{override.name}`",
            span=override.name_span,
            notes=_who_has(override, segment, target),
            help=help,
            code=SCHEDULE_FIELD,
        )
    value, words = override.value, [v for v in field.values if isinstance(v, str)]
    if type(value) is type(field.values[0]) and (not words or value in words):
        return
    close = difflib.get_close_matches(str(value), words, n=1)
    raise FusecError(
        f"{override.name} cannot be `{setting_text(value)}`",
        span=override.span,
        help=f"did you mean `{close[0]}`?" if close else f"it is one of {field.text}",
        code=SCHEDULE_VALUE,
    )


SHOWN = 8
"""Most values of a segment with which a line that pins it is printed."""


def _who_has(override: Override, segment: Segment, target: Target) -> list[str]:
    """Return a note that names the schedulers of the same segment that have a parameter."""
    supporting = [s for s in schedulers() if s.requirement(segment.fusion) is None]
    others = [
        s.name for s in supporting
        if any(f.name == override.name for f in s.family.free(segment.fusion, target))
    ]  # fmt: skip
    if not others:
        return []
    values = [v.name for node in segment.nodes for v in node.outputs]
    names = " and ".join(f"`{name}`" for name in others)
    pin = f"{segment.name}: {{values: [{', '.join(values)}], scheduler: {others[0]}}}"
    line = f": `segments: {{{pin}}}`" if len(values) <= SHOWN else ""
    return [f"for this segment {names} has it{line}"]


def _refused(
    override: Override,
    refusal: Refusal,
    segment: Segment,
    settings: dict[str, Setting],
    target: Target,
) -> FusecError:
    others = {k: v for k, v in settings.items() if k != override.name}
    scheduler = find_scheduler(segment.scheduler)
    allowed = allowed_text(scheduler, segment, override.name, target, others)
    rule = "" if refusal.rule == "value" else f" ({refusal.rule})"
    return Unsupported(
        f"`{segment.scheduler}` ({segment.name}) with {override.name} "
        f"{setting_text(override.value)}: {refusal.because}{rule}",
        span=override.span,
        help=f"valid values of {override.name} here: {allowed}",
        code=SCHEDULE_REFUSED,
    )


def allowed_text(
    scheduler: PlanningScheduler,
    segment: Segment,
    name: str,
    target: Target,
    settings: dict[str, Setting],
) -> str:
    """Return the values that a field may have together with some settings, as text."""
    values = scheduler.allowed(segment.fusion, target, name, settings)
    field = next(f for f in scheduler.free(segment.fusion, target) if f.name == name)
    if not values:
        return "none"
    return listing(values) + (" or between" if isinstance(field.values, range) else "")
