"""Groups of segments, so that an overview fits a screen however many there are.

A group is a run of segments in order of execution, so no path leads out of it and back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from fusec.explain.facts import SegmentFacts

MOST_SHOWN = 12
"""Boxes of an overview, at most."""
FEW = 4
"""With fewer groups an overview says too little."""


@dataclass(frozen=True)
class Group:
    """Segments that are drawn as one box; members: their numbers, in order of execution."""

    name: str
    members: tuple[int, ...]


def groups_of(segments: Mapping[int, SegmentFacts]) -> tuple[Group, ...]:
    """Return at most MOST_SHOWN groups of the segments that are drawn, by number.

    The parts of modules, or words of their outputs' names, that all members begin with, as
    `layers_0`, are the name of a group; where names are no help, groups are of equal numbers of
    segments.
    """
    if len(segments) <= MOST_SHOWN:
        return tuple(Group(s.name, (number,)) for number, s in segments.items())
    words = {number: _words(s) for number, s in segments.items()}
    finer = [Group(s.name, (number,)) for number, s in segments.items()]
    for depth in range(max(map(len, words.values())), 0, -1):
        groups = _runs(segments, {number: w[:depth] for number, w in words.items()})
        if len(groups) <= MOST_SHOWN:
            return tuple(groups if len(groups) >= FEW else _joined(finer))
        finer = groups
    return tuple(_joined(finer))


def _words(segment: SegmentFacts) -> tuple[str, ...]:
    """Return the parts of a segment's module, else of its first output: `layers`, `0`, `mlp`."""
    if segment.module:
        return tuple(segment.module.split("."))
    name = segment.outputs[0] if segment.outputs else segment.name
    return tuple(re.findall(r"[A-Za-z]+|\d+", name)) or (name,)


def _runs(segments: Mapping[int, SegmentFacts], keys: Mapping[int, tuple[str, ...]]) -> list[Group]:
    """Return runs of segments with equal keys; a run of one has the segment's name."""
    groups: list[Group] = []
    for key, run in groupby(segments, key=keys.__getitem__):
        members = [*run]
        name = "_".join(key) if len(members) > 1 else segments[members[0]].name
        groups.append(Group(name, tuple(members)))
    return groups


def _joined(groups: Sequence[Group]) -> list[Group]:
    """Return neighbours joined, so that MOST_SHOWN groups remain."""
    ends = [round(k * len(groups) / MOST_SHOWN) for k in range(MOST_SHOWN + 1)]
    joined: list[Group] = []
    for begin, end in pairwise(ends):
        own = groups[begin:end]
        if own:
            name = own[0].name if len(own) == 1 else f"{own[0].name} to {own[-1].name}"
            joined.append(Group(name, tuple(m for g in own for m in g.members)))
    return joined
