"""The gap between a segmentation and the one of least traffic, with proof."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from time import monotonic

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Unsupported
from fusec.exact.conflicts import Conflicts
from fusec.exact.costs import Costs
from fusec.exact.program import prove
from fusec.exact.space import Space
from fusec.exact.states import States
from fusec.ir.graph import Fusion
from fusec.ops.communication import stands_alone
from fusec.segment.canonical import canonical
from fusec.segment.floor import floor_bytes
from fusec.segment.protocol import Scheduler
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from fusec.target import Target

SHARES = (0.2, 1.0)
"""Fractions of the remaining time for states: the first before the program, the second after it."""
STEPS = (1 / 32, 1 / 8, 1 / 2, 1.0)
"""Limits of the searches, as fractions of the way from the lower bound to the best known bytes."""


@dataclass(frozen=True)
class Bound:
    """The best known segmentation, and a lower bound on all of them.

    bytes: traffic and workspace of `segments`, each given by the names of its nodes' results;
    floor_bytes: the compulsory traffic; lower_bytes: the proven lower bound, equal to `bytes` if
    `proven`; gap: the fraction of `bytes` that may still be saved; method: what proved the lower
    bound: `floor`, `program` or `states`; nodes: how many partial segmentations, or nodes of the
    program's tree, were explored.
    """

    bytes: int
    floor_bytes: int
    proven: bool
    lower_bytes: int
    gap: float
    segments: tuple[tuple[str, ...], ...]
    method: str
    nodes: int


def _require_one_rank(fusion: Fusion) -> None:
    """Raise Unsupported for a collective or a loop over slices: the bound covers only kernels."""
    node = next((n for n in fusion.nodes if stands_alone(n)), None)
    if node is not None:
        raise Unsupported(
            "the exact bound does not support a fusion divided over ranks or streams",
            span=node.span,
            notes=[f"`{node.output.name}` is computed by {node.op.name}"],
        )


def bound(
    fusion: Fusion, schedulers: Sequence[Scheduler], target: Target, *, seconds: float = 60.0
) -> Bound:
    """Return the least traffic of any segmentation of an optimised fusion, within a time limit.

    Pins are ignored. Reductions, GEMMs, scans and sorts are computed once, all other nodes any
    number of times. Schedulers decide which segments are legal and what they cost. In fusions of
    more than `THOROUGH` nodes only useful values cross between segments: not those that are cheap
    to recompute or that one elementwise node makes smaller.
    """
    _require_one_rank(fusion)
    end = monotonic() + seconds
    found = segment(fusion, schedulers, target)
    work = canonical(found.fusion)
    floor = floor_bytes(work)
    known = _Known(found.bytes, min(floor, found.bytes), _names(found), "floor", 0)
    space = Space(work)
    space.keep(o.value for s in found.segments for o in s.fusion.outputs)
    conflicts = Conflicts(space, schedulers, target)
    states = States(space, Costs(space, schedulers, target, conflicts))
    for share in SHARES:
        known = _by_states(known, states, share * (end - monotonic()))
        if known.lower < known.bytes and share < 1:
            known = _by_program(known, space, conflicts, share * (end - monotonic()))
    gap = 1 - known.lower / known.bytes if known.bytes else 0.0
    proven = known.lower == known.bytes
    return Bound(
        known.bytes, floor, proven, known.lower, gap, known.segments, known.method, known.nodes
    )


@dataclass(frozen=True)
class _Known:
    """The best segmentation so far and the best lower bound, with its proof."""

    bytes: int
    lower: int
    segments: tuple[tuple[str, ...], ...]
    method: str
    nodes: int


def _names(found: SegmentedFusion) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(n.output.name for n in s.nodes) for s in found.segments)


def _by_states(known: _Known, states: States, seconds: float) -> _Known:
    """Return the best result of a search through all segmentations, as far as time allows."""
    end = monotonic() + seconds
    for step in STEPS:
        if known.lower >= known.bytes or monotonic() > end:
            break
        limit = known.lower + ceil((known.bytes - known.lower) * step)
        found = states.run(limit, end - monotonic())
        if states.undercut:
            # A scheduler predicts less traffic than its segment's bound: nothing is proven.
            return known
        if found.lower > known.lower:
            known = replace(known, lower=found.lower, method="states", nodes=found.states)
        if found.bytes is not None:
            parts = (states.space.part(s.nodes, s.results) for s in found.steps)
            segments = tuple(tuple(n.output.name for n in p.nodes) for p in parts)
            return _Known(found.bytes, found.bytes, segments, "states", found.states)
    return known


def _by_program(known: _Known, space: Space, conflicts: Conflicts, seconds: float) -> _Known:
    """Return the best result including an integer program's bound."""
    proof = prove(space, conflicts, seconds)
    if proof is None or proof.lower <= known.lower:
        return known
    lower = min(proof.lower, known.bytes)
    return replace(known, lower=lower, method="program", nodes=proof.nodes)
