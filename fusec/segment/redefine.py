"""Alternative definitions of segments: try each by segmenting again, keep it if that is cheaper.

A scheduler offers them for a segment that it has accepted (`after`, the default), or for single
nodes before there are segments (`before`). Both were proposed in Fuser#1243.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion, Node, Operand
from fusec.options import HOST_SCHEDULER, PLAN_DEFINITIONS
from fusec.passes.rewrite import Rewriter, Rule, rewrite
from fusec.segment.offers import HOST
from fusec.segment.plan_definitions import LEAST_GAIN, PlanDefinitions
from fusec.segment.protocol import Redefining, Redefinition, Scheduler, is_redefining
from fusec.segment.resume import Resume, resume_without
from fusec.segment.segmented import Decision, Segment, SegmentedFusion, extract
from fusec.target import Target

MOST_TRIES = 64
MOST_PAIRS = 8
PAIR_LOSS = 0.1
"""Relative slowdown up to which a definition that is slower alone is still tried in a pair."""
WHOLE = 8
"""Number of segments up to which the whole fusion is segmented again; beyond it, only a part is."""

Search = Callable[[Fusion, Resume | None], SegmentedFusion]
"""Returns the segments of a fusion, starting from known ones if given."""


def redefine(
    fusion: Fusion,
    search: Search,
    schedulers: Sequence[Scheduler],
    target: Target,
    when: str,
    without: Collection[str] = (),
    plans: PlanDefinitions | None = None,
) -> SegmentedFusion:
    """Return the segments of a fusion under the cheapest definitions.

    when: `after` queries accepted segments, `before` single nodes, `never` neither. Values whose
    kernel has a schedule by their name are not redefined; a pinned segment stays one segment.
    without: names of definitions that are not tried. plans: cached comparisons of plan definitions
    for other fusions, with the same schedulers and target.
    """
    kept = PLAN_DEFINITIONS if when == "never" else without
    fusion = replace(fusion, as_defined=frozenset(PLAN_DEFINITIONS).intersection(kept))
    found = search(fusion, None)
    able = {s.name: s for s in schedulers if is_redefining(s)}
    if when == "never" or not able:
        return found
    trials = _Trials(search, able, target, when, frozenset(without))
    found = trials.saturate(fusion, found)
    plans = plans or plan_definitions(schedulers, target)
    found = plans.with_cheaper(found, bool(fusion.schedules), trials.log)
    return replace(found, decisions=(*found.decisions, *trials.log))


def plan_definitions(schedulers: Sequence[Scheduler], target: Target) -> PlanDefinitions:
    """Return the comparison of plan definitions for the schedulers that generate kernels."""
    kernels = [s for s in schedulers if s.name not in (*HOST, HOST_SCHEDULER)]
    return PlanDefinitions(kernels, target)


@dataclass(frozen=True)
class _Trial:
    """A fusion under another definition, and its segments; saved: seconds, over all segments.

    others: the values that are defined in the same way elsewhere.
    """

    redefinition: Redefinition
    saved: float
    fusion: Fusion
    found: SegmentedFusion
    others: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """Return the results that are redefined."""
        return (self.redefinition.value, *self.others)


class _Trials:
    """Tries each definition once by segmenting again; `log` records what was kept and undone."""

    def __init__(
        self,
        search: Search,
        able: Mapping[str, Redefining],
        target: Target,
        when: str,
        without: frozenset[str],
    ) -> None:
        """Start with nothing tried."""
        self.log: list[Decision] = []
        self._search, self._able, self._target = search, able, target
        self._when, self._without = when, without
        self._tried: set[tuple[str, str]] = set()
        self._vain: set[object] = set()
        self._structures = _Structures()
        self._definitions = _Definitions(able, target)
        self._last = "", inf

    def saturate(self, fusion: Fusion, found: SegmentedFusion) -> SegmentedFusion:
        """Return the segments after the best definition of each round, until none is cheaper."""
        while len(self._tried) < MOST_TRIES:
            kept, slower = self._round(fusion, found)
            if kept is None:
                kept = self._best_pair(found, slower)
            if kept is None:
                break
            before = found.seconds(self._target)
            rather = f"saves {kept.saved * 1e6:.2f} us of {before * 1e6:.2f} us"
            because = f"{kept.redefinition.name}: {kept.redefinition.because}; {rather}"
            self.log.append(Decision("redefine", kept.values, because))
            fusion, found = kept.fusion, kept.found
        return found

    def _new(
        self, fusion: Fusion, found: SegmentedFusion
    ) -> list[tuple[Segment | None, Redefinition]]:
        """Return the schedulers' definitions that have not been tried yet."""
        if self._when == "after":
            offered = self._definitions.of_all(found)
        else:
            offered = _single(fusion, self._able, self._target)
        scheduled = {o.of for o in fusion.schedules}
        return [
            (s, r)
            for s, r in offered
            if r.rule and r.name not in self._without and r.value not in scheduled
            if (r.name, r.value) not in self._tried
        ]

    def _round(self, fusion: Fusion, found: SegmentedFusion) -> tuple[_Trial | None, list[_Trial]]:
        """Return the definition that saves the most, or None, and the ones that are slower alone.

        With many segments, stop at the first segment with a faster definition: the rest are tried
        against the resulting segmentation. A value's definitions come in order, and those after a
        slower one are skipped.
        """
        best: _Trial | None = None
        better: Segment | None = None
        slower: list[_Trial] = []
        for segment, redefinition in self._new(fusion, found):
            if better is not None and segment is not better:
                break
            self._tried.add((redefinition.name, redefinition.value))
            near = None
            if segment is not None and not redefinition.whole and not fusion.pins:
                near = _neighbourhood(found, segment)
            # A repeated layer is tried once.
            alike = None
            if near is not None:
                alike = self._structures.around(near, segment, redefinition.name)
            if alike in self._vain or (near and self._last == (redefinition.value, inf)):
                continue
            resume = None
            if near is not None and segment is not None:
                resume = resume_without(found, [segment])
            trial = self._try(redefinition, fusion, found, resume)
            if trial is not None:
                trial = self._noted(trial, near)
            if trial is None:
                if alike is not None:
                    self._vain.add(alike)
            elif near is None and not self._pays(trial, found):
                slower.append(trial)
            elif best is None or trial.saved > best.saved:
                best, better = trial, None if near is None else segment
        if best is not None and better is not None:
            best = self._everywhere(best, better, fusion, found)
        return best, slower

    def _everywhere(
        self, trial: _Trial, segment: Segment, fusion: Fusion, found: SegmentedFusion
    ) -> _Trial:
        """Return a trial with the same definition in all equal neighbourhoods, such as layers.

        They are tried at once, and later one by one if together they save too little.
        """
        name = trial.redefinition.name
        near = _neighbourhood(found, segment) or ()
        alike, least = self._structures.around(near, segment, name), self._least_gain(near)
        taken = {s.id for s in near}
        rules = [trial.redefinition.rule]
        chosen: list[tuple[Segment, str]] = []
        new = self._new(fusion, found)
        for other, redefinition in new:
            if other is None or redefinition.name != name or other.id in taken:
                continue
            its = _neighbourhood(found, other) or ()
            if self._structures.around(its, other, name) == alike:
                taken |= {s.id for s in its}
                least += self._least_gain(its)
                rules.append(redefinition.rule)
                chosen.append((other, redefinition.value))
        if not chosen:
            return trial
        together = replace(trial.redefinition, rule=_first_of([r for r in rules if r is not None]))
        dropped = [segment, *(s for s, _ in chosen)]
        both = self._try(together, fusion, found, resume_without(found, dropped))
        if both is None or both.saved <= max(least, trial.saved):
            return trial
        tried = {name for name, value in self._tried if value == trial.redefinition.value}
        of = {s.id for s, _ in chosen}
        self._tried |= {(r.name, r.value) for s, r in new if s and s.id in of and r.name in tried}
        return replace(both, others=tuple(value for _, value in chosen))

    def _least_gain(self, near: Iterable[Segment]) -> float:
        """Return the seconds that a definition of some segments must save."""
        costs = (s.estimate.seconds(self._target) for s in near if s.estimate is not None)
        return LEAST_GAIN * sum(costs)

    def _noted(self, trial: _Trial, near: tuple[Segment, ...] | None) -> _Trial | None:
        """Return a trial; with `near`, None unless it saves enough of these segments' time."""
        after = trial.found.seconds(self._target)
        name, before = self._last
        is_slower = name == trial.redefinition.value and after > before
        self._last = trial.redefinition.value, inf if is_slower else after
        if near is None:
            return trial
        if trial.saved > self._least_gain(near):
            return trial
        self.log.append(_undone(trial.redefinition, after + trial.saved, after))
        return None

    def _best_pair(self, found: SegmentedFusion, slower: Sequence[_Trial]) -> _Trial | None:
        """Return the best definition that is enabled by one that does not pay alone."""
        before = found.seconds(self._target)
        left, best = MOST_PAIRS, None
        for first in sorted(slower, key=lambda t: -t.saved):
            if -first.saved > PAIR_LOSS * before:
                break
            for _, second in self._new(first.fusion, first.found):
                if second.name == first.redefinition.name or not left:
                    continue
                left -= 1
                self._tried.add((second.name, second.value))
                made = self._try(second, first.fusion, found, None)
                if made is None:
                    continue
                name = f"{first.redefinition.name} and {second.name}"
                both = replace(first.redefinition, name=name, because=second.because)
                trial = replace(made, redefinition=both)
                if self._pays(trial, found) and (best is None or trial.saved > best.saved):
                    best = trial
        return best

    def _try(
        self,
        redefinition: Redefinition,
        fusion: Fusion,
        found: SegmentedFusion,
        resume: Resume | None,
    ) -> _Trial | None:
        """Return the segments of a fusion under a definition, or None with the reason in the log.

        found: the segments to compare with.
        """
        assert redefinition.rule is not None
        changed = rewrite(fusion, redefinition.rule)
        if changed is fusion:
            return None
        try:
            other = self._search(changed, resume)
        except FusecError as error:  # or a pin that no longer holds
            because = f"{redefinition.name}: {error.diagnostic.message}"
            self.log.append(Decision("undo", (redefinition.value,), because))
            return None
        meant = redefinition.meant
        if meant is not None and not any(meant(s.fusion) for s in other.segments):
            because = f"{redefinition.name}: no kernel becomes cheaper"
            self.log.append(Decision("undo", (redefinition.value,), because))
            return None
        saved = found.seconds(self._target) - other.seconds(self._target)
        return _Trial(redefinition, saved, changed, other)

    def _pays(self, trial: _Trial, found: SegmentedFusion) -> bool:
        """Return whether a definition saves enough of the whole; log it if not."""
        before = found.seconds(self._target)
        if trial.saved > LEAST_GAIN * before:
            return True
        self.log.append(_undone(trial.redefinition, before, before - trial.saved))
        return False


def _first_of(rules: Sequence[Rule]) -> Rule:
    """Return a rule that applies the first applicable one of some rules."""

    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        made = (each(node, work) for each in rules)
        return next((m for m in made if m is not None), None)

    return rule


class _Definitions:
    """The schedulers' definitions for the segments that they accepted."""

    def __init__(self, able: Mapping[str, Redefining], target: Target) -> None:
        self._able = able
        self._target = target
        self._known: dict[object, Sequence[Redefinition]] = {}

    def of_all(self, found: SegmentedFusion) -> Iterable[tuple[Segment | None, Redefinition]]:
        """Yield the definitions of each segment; with many segments, unchanged ones keep theirs."""
        is_large = len(found.segments) > WHOLE
        for segment in found.segments:
            scheduler = self._able.get(segment.scheduler)
            if scheduler is None:
                continue
            key = _with_siblings(found, segment) if is_large else None
            offered = None if key is None else self._known.get(key)
            if offered is None:
                offered = scheduler.redefinitions(segment.fusion, found.fusion, self._target)
                if key is not None:
                    self._known[key] = offered
            for redefinition in offered:
                yield segment, redefinition


def _with_siblings(found: SegmentedFusion, segment: Segment) -> object:
    """Return a key that is equal as long as neither a segment nor its readers change."""
    results = tuple(o.value for o in segment.fusion.outputs)
    readers = tuple(tuple(found.fusion.users.get(v, ())) for v in results)
    return segment.scheduler, segment.nodes, results, readers


def _single(
    fusion: Fusion, able: Mapping[str, Redefining], target: Target
) -> Iterable[tuple[Segment | None, Redefinition]]:
    """Return the schedulers' definitions for single nodes."""
    for node in fusion.nodes:
        if node.op.family in ("contraction", "reduction"):
            alone = extract(fusion, [node], fusion.name)
            for scheduler in able.values():
                for redefinition in scheduler.redefinitions(alone, fusion, target):
                    yield None, redefinition


class _Structures:
    """Structure numbers of segments, computed once for each."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._known: dict[int, tuple[Segment, int]] = {}

    def of(self, segment: Segment) -> int:
        """Return a number that segments of one structure share."""
        known = self._known.get(id(segment))
        if known is None:
            structure = segment.fusion.structure(offsets=False)
            number = self._numbers.setdefault(structure, len(self._numbers))
            known = self._known[id(segment)] = segment, number
        return known[1]

    def around(self, near: Iterable[Segment], segment: Segment | None, name: str) -> object:
        """Return a key that is equal wherever a redefinition has the same neighbourhood."""
        return name, tuple((self.of(s), s is segment) for s in near)


def _neighbourhood(found: SegmentedFusion, segment: Segment) -> tuple[Segment, ...] | None:
    """Return a segment and its neighbours; None if the segmentation is small.

    Only kernels that run as often as its own, and no other host operations.
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


def _undone(redefinition: Redefinition, before: float, after: float) -> Decision:
    because = f"{redefinition.name}: {after * 1e6:.2f} us rather than {before * 1e6:.2f} us"
    return Decision("undo", (redefinition.value,), because)
