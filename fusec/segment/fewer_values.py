"""Pinned segments that no scheduler accepts: find which of their values one does accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.annotations import Pin
from fusec.ir.graph import Fusion
from fusec.segment.segmented import SegmentedFusion

_MOST_TRIALS = 12


class RefusedPin(Unsupported):
    """A pinned segment that no scheduler supports; `pin` is None if only its scheduler does not."""

    pin: Pin | None = None


def with_fewer_values(
    error: RefusedPin, fusion: Fusion, search: Callable[[Fusion], SegmentedFusion]
) -> FusecError:
    """Return the error with the most values of the segment that a scheduler takes together."""
    pin = error.pin
    if pin is None:
        return error
    lines = _lines_of(pin)
    for left in islice(_left_out(len(lines)), _MOST_TRIALS):
        kept = [line for place, line in enumerate(lines) if place not in left]
        fewer = replace(pin, values=tuple(v for line in kept for v in line), scheduler=None)
        pins = tuple(fewer if p is pin else p for p in fusion.pins)
        try:
            found = search(replace(fusion, pins=pins))
        except FusecError:
            continue
        made = {v.name: s.scheduler for s in found.segments for n in s.nodes for v in n.outputs}
        schedulers = {made[line[-1]] for line in kept if line[-1] in made}
        if len(schedulers) != 1:
            continue
        chosen = f", scheduler: {schedulers.pop()}" if pin.scheduler is not None else ""
        without = " and ".join(f"`{lines[place][-1]}`" for place in left)
        names = ", ".join(line[-1] for line in kept)
        written = f"`{pin.name}: {{values: [{names}]{chosen}}}`"
        return error.changed(help=f"no scheduler takes it together with {without}: write {written}")
    return error


def _lines_of(pin: Pin) -> list[list[str]]:
    """Return the values of each name that the file lists, which is the last of its values."""
    written = {*re.findall(r"\w+", "" if pin.span is None else pin.span.text)}
    lines, line = list[list[str]](), list[str]()
    for value in pin.values:
        line.append(value)
        if value in written:
            lines.append(line)
            line = []
    return lines


def _left_out(count: int) -> Iterator[Sequence[int]]:
    """Yield the indices of the names to omit: the fewest first, and the last of a list first."""
    for fewer in range(1, count):
        yield from combinations(reversed(range(count)), fewer)
