"""The schedule spaces of a fusion's segments as text and as JSON, and the selected schedules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from fusec.activity import activity
from fusec.dataclasses import dataclass
from fusec.ir.annotations import Setting
from fusec.schedule.registry import find_scheduler
from fusec.schedule.settings.overrides import set_by_user
from fusec.schedule.space import listing, setting_text
from fusec.segment.protocol import Estimate
from fusec.segment.segmented import Segment, SegmentedFusion
from fusec.target import Target


@dataclass(frozen=True)
class Candidate:
    """A schedule: its free fields, its predicted seconds or why its plan cannot run."""

    settings: Mapping[str, Setting]
    seconds: float | None
    refused: str | None


@dataclass(frozen=True)
class Space:
    """The schedules of a segment; fields: their values; the first candidate is built."""

    segment: str
    scheduler: str
    outputs: tuple[str, ...]
    overridden: tuple[str, ...]
    fields: Mapping[str, tuple[Setting, ...]]
    candidates: tuple[Candidate, ...]


def spaces_of(segmented: SegmentedFusion, target: Target) -> tuple[Space, ...]:
    """Return the space of each segment, with the overrides of its fusion."""
    spaces = list[Space]()
    for number, segment in enumerate(segmented.segments, start=1):
        with activity(f"schedules of {segment.name} ({number} of {len(segmented.segments)})"):
            spaces.append(_space(segment, target))
    return tuple(spaces)


def _space(segment: Segment, target: Target) -> Space:
    scheduler, settings = find_scheduler(segment.scheduler), set_by_user(segment)
    free = [f.name for f in scheduler.free(segment.fusion, target)]
    others = {n: {k: v for k, v in settings.items() if k != n} for n in free}
    found = scheduler.estimated_space(segment.fusion, target, settings)
    if segment.tuned is not None:
        first = scheduler.estimated_space(segment.fusion, target, segment.tuned.entry.parameters)
        found = tuple(dict(first + found).items())
    return Space(
        segment.name,
        segment.scheduler,
        tuple(o.value.name for o in segment.fusion.outputs),
        tuple(settings),
        {n: scheduler.allowed(segment.fusion, target, n, others[n]) for n in free},
        tuple(
            Candidate(p.settings, estimate.seconds(target), None)
            if isinstance(estimate, Estimate)
            else Candidate(p.settings, None, f"{estimate.because} ({estimate.rule})")
            for p, estimate in found
        ),
    )


def space_json(spaces: Iterable[Space]) -> str:
    """Return spaces as JSON text."""
    from dataclasses import asdict

    return json.dumps([asdict(s) for s in spaces], indent=2) + "\n"


def space_text(spaces: Iterable[Space]) -> str:
    """Return spaces as text: fields with values, then the candidates, the first one is built."""
    return "\n".join("\n".join(_lines(s)) + "\n" for s in spaces)


def _lines(space: Space) -> Iterator[str]:
    count = len(space.candidates)
    schedules = f"{count} schedule{'' if count == 1 else 's'}"
    yield f"{space.segment} {space.scheduler} ({', '.join(space.outputs)}): {schedules}"
    for name, values in space.fields.items():
        own = ", overridden" if name in space.overridden else ""
        yield f"  {name}: {listing(values)}{own}"
    if not space.fields:
        return
    names = list(space.fields)
    rows = [
        ["us", *names],
        *([_time_text(c), *(setting_text(c.settings[n]) for n in names)] for c in space.candidates),
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(names) + 1)]
    for number, row in enumerate(rows):
        mark = "*" if number == 1 else " "
        cells = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        yield f"{mark} {'  '.join(cells)}"


def _time_text(candidate: Candidate) -> str:
    return "-" if candidate.seconds is None else f"{candidate.seconds * 1e6:.2f}"
