"""How far a segmentation is from the one that moves the fewest bytes, with proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic

from fusec.ir.graph import Fusion
from fusec.segment.canonical import canonical
from fusec.segment.exact_conflicts import Conflicts
from fusec.segment.exact_prices import Prices
from fusec.segment.exact_program import prove
from fusec.segment.exact_space import Space
from fusec.segment.exact_states import States
from fusec.segment.floor import floor_bytes
from fusec.segment.protocol import Scheduler
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
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
    end = monotonic() + seconds
    found = segment(fusion, schedulers, target)
    work = canonical(found.fusion)
    floor = floor_bytes(work)
    known = _Known(found.bytes, min(floor, found.bytes), _names(found), "floor", 0)
    space = Space(work)
    space.keep(o.value for s in found.segments for o in s.fusion.outputs)
    conflicts = Conflicts(space, schedulers, target)
    if known.lower < known.bytes:
        # The program needs little time; the states find better segmentations, too.
        share = 0.75 * (end - monotonic())
        known = _by_states(known, Prices(space, schedulers, target, conflicts), share)
    if known.lower < known.bytes:
        known = _by_program(known, space, conflicts, end - monotonic())
    gap = 1 - known.lower / known.bytes if known.bytes else 0.0
    proven = known.lower == known.bytes
    return Bound(
        known.bytes, floor, proven, known.lower, gap, known.segments, known.method, known.nodes
    )


@dataclass(frozen=True)
class _Known:
    """The best segmentation so far and the best lower bound, with what proved it."""

    bytes: int
    lower: int
    segments: tuple[tuple[str, ...], ...]
    method: str
    nodes: int


def _names(found: SegmentedFusion) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(n.output.name for n in s.nodes) for s in found.segments)


def _by_states(known: _Known, prices: Prices, seconds: float) -> _Known:
    """Return what is known after a search through all segmentations, as far as time allows."""
    space = prices.space
    states = States(space, prices, known.bytes, seconds)
    found = states.run()
    if states.undercut:
        # Some scheduler prices less than the traffic of its segment: nothing is proven.
        return known
    lower = max(known.lower, found.lower)
    if found.bytes is None:
        method = "states" if lower > known.lower else known.method
        return replace(known, lower=lower, method=method, nodes=found.states)
    segments = tuple(
        tuple(n.output.name for n in space.part(s.nodes, s.results).nodes) for s in found.steps
    )
    return _Known(found.bytes, lower, segments, "states", found.states)


def _by_program(known: _Known, space: Space, conflicts: Conflicts, seconds: float) -> _Known:
    """Return what is known after an integer program."""
    proof = prove(space, conflicts, seconds)
    if proof is None or proof.lower <= known.lower:
        return known
    lower = min(proof.lower, known.bytes)
    return replace(known, lower=lower, method="program", nodes=proof.nodes)
