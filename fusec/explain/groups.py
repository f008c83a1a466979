"""Groups of segments, so that an overview of any number of segments fits a screen.

A group is a run of segments in order of execution, so no path leads out of it and back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from fusec.dataclasses import dataclass
from fusec.explain.facts import SegmentFacts

MOST_SHOWN = 12
"""Maximum number of boxes in an overview."""
MOST_STRAYS = 2
"""Maximum number of consecutive segments with other names in a group."""
FEW = 4
"""An overview with fewer groups is too coarse."""


@dataclass(frozen=True)
class Group:
    """Segments that are shown as one box; members: their numbers, in order of execution."""

    name: str
    members: tuple[int, ...]


def groups_of(segments: Mapping[int, SegmentFacts]) -> tuple[Group, ...]:
    """Return at most MOST_SHOWN groups of the visible segments, given by number.

    A group is named by the modules, or words of output names, that all its members begin with, as
    `layers_0`; if names do not help, groups have equal numbers of segments.
    """
    if len(segments) <= MOST_SHOWN:
        return tuple(Group(s.name, (number,)) for number, s in segments.items())
    prefixes = {number: _prefixes(s) for number, s in segments.items()}
    finer = [Group(s.name, (number,)) for number, s in segments.items()]
    for depth in range(max(map(len, prefixes.values())), 0, -1):
        groups = _runs(segments, {n: own[:depth][-1] for n, own in prefixes.items()})
        if len(groups) <= MOST_SHOWN:
            return tuple(groups if len(groups) >= FEW else _joined(finer))
        finer = groups
    return tuple(_joined(finer))


def _prefixes(segment: SegmentFacts) -> tuple[str, ...]:
    """Return the prefixes of a segment's module, else of its first output: `layers`, `layers_0`."""
    if segment.module:
        parts = segment.module.split(".")
        return tuple("_".join(parts[: k + 1]) for k in range(len(parts)))
    name = segment.outputs[0] if segment.outputs else segment.name
    return tuple(name[: word.end()] for word in re.finditer(r"[A-Za-z]+|\d+", name)) or (name,)


def _runs(segments: Mapping[int, SegmentFacts], keys: Mapping[int, str]) -> list[Group]:
    """Return runs of segments with equal keys; a run of one has the segment's name.

    Up to MOST_STRAYS segments within a longer run belong to it: passes have named their results.
    """
    runs: list[tuple[str, list[int]]] = []
    for number in segments:
        key = keys[number]
        after = _runs_after(runs, key)
        if after is None:
            runs.append((key, [number]))
        else:
            strays = [member for _, own in runs[len(runs) - after :] for member in own]
            del runs[len(runs) - after :]
            runs[-1][1].extend((*strays, number))
    return [
        Group(key if len(members) > 1 else segments[members[0]].name, tuple(members))
        for key, members in runs
    ]


def _runs_after(runs: Sequence[tuple[str, Sequence[int]]], key: str) -> int | None:
    """Return the number of runs after the last one of a key; None if they are too large."""
    strays = 0
    for after, (own, members) in enumerate(reversed(runs)):
        if own == key:
            return after if strays < len(members) else None
        strays += len(members)
        if strays > MOST_STRAYS:
            return None
    return None


def _joined(groups: Sequence[Group]) -> list[Group]:
    """Merge neighbours so that MOST_SHOWN groups remain."""
    ends = [round(k * len(groups) / MOST_SHOWN) for k in range(MOST_SHOWN + 1)]
    joined: list[Group] = []
    for begin, end in pairwise(ends):
        own = groups[begin:end]
        if own:
            name = own[0].name if len(own) == 1 else f"{own[0].name} to {own[-1].name}"
            joined.append(Group(name, tuple(m for g in own for m in g.members)))
    return joined
