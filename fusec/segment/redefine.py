"""Redefinition: other definitions of segments, tried by segmenting again, kept where cheaper.

A scheduler offers them for a segment that it has accepted (`after`, the default), or for single
nodes before there are segments (`before`). Both were proposed in Fuser#1243.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fusec.diagnostics import Unsupported
from fusec.ir.graph import Fusion, Node, Value
from fusec.passes.rewrite import rewrite
from fusec.segment.offers import HOST
from fusec.segment.protocol import Redefining, Redefinition, Scheduler
from fusec.segment.segmented import Decision, Segment, SegmentedFusion, extract
from fusec.target import Target

LEAST_GAIN = 0.05
"""The part of the time that another definition must save: predictions are no better than that."""
MOST_TRIES = 64
WHOLE = 8
"""Segments up to which the whole fusion is segmented again, not the neighbourhood alone."""

Search = Callable[[Fusion], SegmentedFusion]


def redefine(
    fusion: Fusion,
    search: Search,
    schedulers: Sequence[Scheduler],
    target: Target,
    when: str,
    without: Collection[str] = (),
) -> SegmentedFusion:
    """Return the segments of a fusion under the definitions that are cheapest.

    when: `after` asks for accepted segments, `before` for single nodes, `never` not at all. Pinned
    fusions stay as they are, and so do values whose kernel has a schedule by their name. without:
    names of definitions that are not tried.
    """
    found = search(fusion)
    able = {s.name: s for s in schedulers if isinstance(s, Redefining)}
    if when == "never" or not able or fusion.pins:
        return found
    log: list[Decision] = []
    tried: set[tuple[str, str]] = set()
    left_out = frozenset(without)
    scheduled = {o.of for o in fusion.schedules}
    vain: set[object] = set()
    structures = _Structures()
    while len(tried) < MOST_TRIES:
        offered = (
            _offered(found, able, target) if when == "after" else _single(fusion, able, target)
        )
        new = [
            (s, r)
            for s, r in offered
            if r.rule and r.name not in left_out and r.value not in scheduled
            if (r.name, r.value) not in tried
        ]
        best: tuple[float, Redefinition, Fusion, SegmentedFusion] | None = None
        for segment, redefinition in new:
            tried.add((redefinition.name, redefinition.value))
            near = None
            if segment is not None and not redefinition.whole:
                near = _neighbourhood(found, segment)
            # A repeated layer is tried once.
            alike = None if near is None else structures.around(near, segment, redefinition.name)
            if alike in vain:
                continue
            made = _try(fusion, near, redefinition, search, found, target, log)
            if made is None and alike is not None:
                vain.add(alike)
            if made is not None and (best is None or made[0] > best[0]):
                best = (made[0], redefinition, *made[1:])
        if best is None:
            break
        gain, kept, fusion, found = best
        rather = f"saves {gain * 1e6:.2f} us of {(gain + found.seconds(target)) * 1e6:.2f} us"
        because = f"{kept.name}: {kept.because}; {rather}"
        log.append(Decision("redefine", (kept.value,), because))
    log += [
        Decision("redefine", (r.value,), f"{r.name}: {r.because}")
        for _, r in _offered(found, able, target)
        if r.rule is None
    ]
    return replace(found, decisions=(*found.decisions, *log))


def _offered(
    found: SegmentedFusion, able: Mapping[str, Redefining], target: Target
) -> Iterable[tuple[Segment | None, Redefinition]]:
    """Return what the schedulers offer for the segments that they accepted."""
    for segment in found.segments:
        scheduler = able.get(segment.scheduler)
        if scheduler is not None:
            for redefinition in scheduler.redefinitions(segment.fusion, found.fusion, target):
                yield segment, redefinition


def _single(
    fusion: Fusion, able: Mapping[str, Redefining], target: Target
) -> Iterable[tuple[Segment | None, Redefinition]]:
    """Return what the schedulers offer for nodes on their own."""
    for node in fusion.nodes:
        if node.op.family in ("contraction", "reduction"):
            alone = extract(fusion, [node], fusion.name)
            for scheduler in able.values():
                for redefinition in scheduler.redefinitions(alone, fusion, target):
                    yield None, redefinition


class _Structures:
    """The structures of segments, found once for each."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._known: dict[int, tuple[Segment, int]] = {}

    def of(self, segment: Segment) -> int:
        """Return a number that segments of one structure share."""
        known = self._known.get(id(segment))
        if known is None:
            structure = segment.fusion.structure()
            number = self._numbers.setdefault(structure, len(self._numbers))
            known = self._known[id(segment)] = segment, number
        return known[1]

    def around(self, near: Iterable[Segment], segment: Segment | None, name: str) -> object:
        """Return what is the same wherever a redefinition has the same neighbourhood."""
        return name, tuple((self.of(s), s is segment) for s in near)


def _neighbourhood(found: SegmentedFusion, segment: Segment) -> tuple[Segment, ...] | None:
    """Return a segment with those beside it; None where that is next to everything.

    Of kernels that run as often as its own, and of no other exchange.
    """
    if len(found.segments) <= WHOLE:
        return None
    adjacent = {segment.id}
    for edge in found.edges:
        if segment.id in (edge.producer, edge.consumer):
            adjacent |= {edge.producer, edge.consumer}
    beside = (s for s in found.segments if s.id in adjacent)
    kernels = (s for s in beside if s.scheduler not in HOST or s is segment)
    return tuple(s for s in kernels if s.iterations == segment.iterations)


def _try(
    fusion: Fusion,
    near: tuple[Segment, ...] | None,
    redefinition: Redefinition,
    search: Search,
    found: SegmentedFusion,
    target: Target,
    log: list[Decision],
) -> tuple[float, Fusion, SegmentedFusion] | None:
    """Return (the seconds saved, the redefined fusion, its segments), or None with the reason."""
    assert redefinition.rule is not None
    changed = rewrite(fusion, redefinition.rule)
    if changed is fusion:
        return None
    try:
        if near is not None:
            local = _part(found.fusion, near)
            before = sum(s.estimate.seconds(target) for s in near if s.estimate is not None)
            after = search(rewrite(local, redefinition.rule)).seconds(target)
            if after > before * (1 - LEAST_GAIN):
                log.append(_undone(redefinition, before, after))
                return None
        other = search(changed)
    except Unsupported as error:
        because = f"{redefinition.name}: {error.diagnostic.message}"
        log.append(Decision("undo", (redefinition.value,), because))
        return None
    meant = redefinition.meant
    if meant is not None and not any(meant(s.fusion) for s in other.segments):
        because = f"{redefinition.name}: no kernel becomes cheaper"
        log.append(Decision("undo", (redefinition.value,), because))
        return None
    before, after = found.seconds(target), other.seconds(target)
    least = LEAST_GAIN * before if near is None else 0.0
    if before - after <= least:
        log.append(_undone(redefinition, before, after))
        return None
    return before - after, changed, other


def _undone(redefinition: Redefinition, before: float, after: float) -> Decision:
    because = f"{redefinition.name}: {after * 1e6:.2f} us rather than {before * 1e6:.2f} us"
    return Decision("undo", (redefinition.value,), because)


def _part(fusion: Fusion, segments: Sequence[Segment]) -> Fusion:
    """Return some segments together as a fusion of its own."""
    names = {v.name for s in segments for n in s.nodes for v in n.outputs}
    nodes: list[Node] = [n for n in fusion.nodes if n.output.name in names]
    inside = set(nodes)
    final = {o.value for o in fusion.outputs}
    results: set[Value] = set()
    for node in nodes:
        for value in node.outputs:
            if value in final or any(u not in inside for u in fusion.users.get(value, ())):
                results.add(value)
    return extract(fusion, nodes, fusion.name, frozenset(results))
