"""Redefinition: other definitions of segments, tried by segmenting again, kept where cheaper.

A scheduler offers them for a segment that it has accepted (`after`, the default), or for single
nodes before there are segments (`before`). Both were proposed in Fuser#1243.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from fusec.diagnostics import Unsupported
from fusec.ir.graph import Fusion
from fusec.passes.rewrite import rewrite
from fusec.segment.offers import HOST
from fusec.segment.protocol import Redefining, Redefinition, Scheduler
from fusec.segment.resume import Resume, resume_without
from fusec.segment.segmented import Decision, Segment, SegmentedFusion, extract
from fusec.target import Target

LEAST_GAIN = 0.05
"""The part of the time that another definition must save: predictions are no better than that."""
MOST_TRIES = 64
WHOLE = 8
"""Segments up to which the whole fusion is segmented again; of more, the redefined one alone."""

Search = Callable[[Fusion, Resume | None], SegmentedFusion]
"""Returns the segments of a fusion; where some are known, it starts from these."""


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
    found = search(fusion, None)
    able = {s.name: s for s in schedulers if isinstance(s, Redefining)}
    if when == "never" or not able or fusion.pins:
        return found
    tries = _Tries(search, target, frozenset(without), {o.of for o in fusion.schedules})
    offers = _Definitions(able, target)
    while len(tries.done) < MOST_TRIES:
        offered = offers.of_all(found) if when == "after" else _single(fusion, able, target)
        best = tries.best(fusion, found, offered)
        if best is None:
            break
        gain, kept, fusion, found = best
        rather = f"saves {gain * 1e6:.2f} us of {(gain + found.seconds(target)) * 1e6:.2f} us"
        because = f"{kept.name}: {kept.because}; {rather}"
        tries.log.append(Decision("redefine", (kept.value,), because))
    tries.log += [
        Decision("redefine", (r.value,), f"{r.name}: {r.because}")
        for _, r in offers.of_all(found)
        if r.rule is None
    ]
    return replace(found, decisions=(*found.decisions, *tries.log))


Kept = tuple[float, Redefinition, Fusion, SegmentedFusion]
"""The seconds that a redefinition saves, the fusion with it, and the segments of that."""


class _Tries:
    """Redefinitions that were tried, by name and value, and what became of them."""

    def __init__(
        self, search: Search, target: Target, without: Collection[str], scheduled: Collection[str]
    ) -> None:
        self.search = search
        self.target = target
        self.without = without
        self.scheduled = scheduled
        self.done: set[tuple[str, str]] = set()
        self.log: list[Decision] = []
        self._vain: set[object] = set()
        self._structures = _Structures()

    def best(
        self,
        fusion: Fusion,
        found: SegmentedFusion,
        offered: Iterable[tuple[Segment | None, Redefinition]],
    ) -> Kept | None:
        """Return the redefinition that saves most; of many segments, of the first that has one.

        Of one value's redefinitions, which come in an order, those after a slower one are left out
        there.
        """
        best: Kept | None = None
        better: Segment | None = None
        last: tuple[str, float] = "", inf
        for segment, redefinition in self._new(offered):
            if better is not None and segment is not better:
                break  # the others are tried beside what this one became
            self.done.add((redefinition.name, redefinition.value))
            near = None
            if segment is not None and not redefinition.whole:
                near = _neighbourhood(found, segment)
            # A repeated layer is tried once.
            alike = None
            if near is not None:
                alike = self._structures.around(near, segment, redefinition.name)
            if alike in self._vain or (near is not None and last == (redefinition.value, inf)):
                continue
            seconds, made = self._try(fusion, segment, near, redefinition, found)
            before = last[1] if last[0] == redefinition.value else inf
            last = redefinition.value, seconds if seconds <= before else inf
            if made is None and alike is not None:
                self._vain.add(alike)
            if made is not None and (best is None or made[0] > best[0]):
                best, better = made, None if near is None else segment
        return best

    def _new(
        self, offered: Iterable[tuple[Segment | None, Redefinition]]
    ) -> list[tuple[Segment | None, Redefinition]]:
        return [
            (s, r)
            for s, r in offered
            if r.rule and r.name not in self.without and r.value not in self.scheduled
            if (r.name, r.value) not in self.done
        ]

    def _try(
        self,
        fusion: Fusion,
        segment: Segment | None,
        near: tuple[Segment, ...] | None,
        redefinition: Redefinition,
        found: SegmentedFusion,
    ) -> tuple[float, Kept | None]:
        """Return the seconds that a redefined fusion takes, and that with it if it saves any."""
        assert redefinition.rule is not None
        changed = rewrite(fusion, redefinition.rule)
        if changed is fusion:
            return inf, None
        resume = None
        if near is not None and segment is not None:
            resume = resume_without(found, [segment])
        try:
            other = self.search(changed, resume)
        except Unsupported as error:
            self._undo(redefinition, error.diagnostic.message)
            return inf, None
        before, after = found.seconds(self.target), other.seconds(self.target)
        meant = redefinition.meant
        if meant is not None and not any(meant(s.fusion) for s in other.segments):
            self._undo(redefinition, "no kernel becomes cheaper")
            return after, None
        concerned = before
        if near is not None:
            estimates = (s.estimate for s in near)
            concerned = sum(e.seconds(self.target) for e in estimates if e is not None)
        if before - after <= LEAST_GAIN * concerned:
            self._undo(redefinition, f"{after * 1e6:.2f} us rather than {before * 1e6:.2f} us")
            return after, None
        return after, (before - after, redefinition, changed, other)

    def _undo(self, redefinition: Redefinition, reason: str) -> None:
        because = f"{redefinition.name}: {reason}"
        self.log.append(Decision("undo", (redefinition.value,), because))


class _Definitions:
    """What the schedulers offer for the segments that they accepted."""

    def __init__(self, able: Mapping[str, Redefining], target: Target) -> None:
        self.able = able
        self.target = target
        self._known: dict[object, Sequence[Redefinition]] = {}

    def of_all(self, found: SegmentedFusion) -> Iterable[tuple[Segment | None, Redefinition]]:
        """Yield the definitions of each segment; of many segments, those that stay keep theirs."""
        is_large = len(found.segments) > WHOLE
        for segment in found.segments:
            scheduler = self.able.get(segment.scheduler)
            if scheduler is None:
                continue
            key = _beside(found, segment) if is_large else None
            offered = None if key is None else self._known.get(key)
            if offered is None:
                offered = scheduler.redefinitions(segment.fusion, found.fusion, self.target)
                if key is not None:
                    self._known[key] = offered
            for redefinition in offered:
                yield segment, redefinition


def _beside(found: SegmentedFusion, segment: Segment) -> object:
    """Return what is the same as long as neither a segment changes nor those that read of it."""
    results = tuple(o.value for o in segment.fusion.outputs)
    readers = tuple(tuple(found.fusion.users.get(v, ())) for v in results)
    return segment.scheduler, segment.nodes, results, readers


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
