"""Merges selected by the cost model: pairs, siblings, a producer with all its consumers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import pairwise

from fusec.ir.graph import Fusion, Value
from fusec.ops.communication import stands_alone
from fusec.segment.groups import Groups
from fusec.segment.halves import find_waist
from fusec.segment.least import LeastSeconds
from fusec.segment.loops import loops, times
from fusec.segment.offers import NVRTC, Offer, Offers, Surroundings, renamed
from fusec.segment.piece import Chosen, Piece
from fusec.segment.segmented import Decision
from fusec.segment.structures import Structures

MayMerge = Callable[[Fusion], bool | str]
"""Decides whether nodes may be one segment: True, False, or the reason against it."""
MARGIN = 1e-12
"""Seconds below which predicted times count as equal."""
MANY = 12
"""Number of neighbours up to which all are also tried together; of more, only the nearest are
tried."""

MOST_SEGMENTS = 64
"""Number of the most recently offered segments that are kept."""

Entry = tuple[float, tuple[int, ...], int, Chosen, bool]
"""A merge by its negative gain, exact or an upper bound on the gain; the last field tells which."""


class Merges:
    """Groups under construction: merged step by step, with every step logged as a decision."""

    def __init__(
        self,
        groups: Groups,
        offers: Offers,
        may_merge: MayMerge | None = None,
        whole: frozenset[str] = frozenset(),
    ) -> None:
        """Start from some groups; fixed ones stay as they are.

        whole: first results of nodes that must not all be in one group; empty if they may.
        """
        self.whole = whole
        self.groups = groups
        self.offers = offers
        self.may_merge = may_merge
        self.decisions: list[Decision] = []
        shared = offers.by_structure(groups.graph.fusion)
        self.structures = Structures(groups, shared.numbers)
        self._asked = shared.asked
        # A number outlives changes of its group's readers: it is of one search.
        self._known: dict[tuple[int, str | None], Offer] = {}
        self._least: dict[int, float] = {}
        self._segments: dict[Hashable, Fusion] = {}
        self._bounds = LeastSeconds(groups.graph.fusion, offers.target) if offers.bounded else None
        self._of_piece: dict[Piece, Offer] = {}

    def offer(self, chosen: Chosen) -> Offer:
        """Return the offer for the union of groups; its reasons may name values of a similar one.

        `named_offer` returns it with their own names.
        """
        key = self.structures.together(chosen), _only(chosen)
        offer = self._known.get(key)
        if offer is None:
            offer = self._known[key] = self._ask(chosen)[0]
        return offer

    def of_piece(self, piece: Piece) -> Offer:
        """Return the offer for one group."""
        offer = self._of_piece.get(piece)
        if offer is None:
            offer = self._of_piece[piece] = self.offer(frozenset({piece}))
        return offer

    def remember(self, piece: Piece, offer: Offer) -> None:
        """Keep the offer for a piece that was restored."""
        self._of_piece[piece] = offer

    def forget(self, piece: Piece) -> None:
        """Drop the cached results of a piece that has changed."""
        self._of_piece.pop(piece, None)
        piece.structure = None

    def any_offer(self, piece: Piece) -> Offer:
        """Return the offer of all schedulers for a group that is pinned to one of them."""
        chosen = frozenset({piece})
        return self.offers.of(self._fusion_of(chosen), surroundings(self.groups, chosen))

    def named_offer(self, chosen: Chosen) -> Offer:
        """Return the offer for the union of some groups, with their own names in its reasons."""
        offer, asked, own = self._ask(chosen)
        if asked == own:
            return offer
        names = {a.name: o.name for a, o in zip(asked, own, strict=True)}
        return renamed(offer, names)

    def _ask(self, chosen: Chosen) -> tuple[Offer, list[Value], list[Value]]:
        """Return an offer, the values of the segment that was offered, and those of this one."""
        whole, values = self.structures.whole(chosen)
        around = surroundings(self.groups, chosen)
        key = whole, _only(chosen), around.pinned
        known = self._asked.get(key)
        if known is None:
            segment = self._segments[whole] = self._fusion_of(chosen)
            if len(self._segments) > MOST_SEGMENTS:
                del self._segments[next(iter(self._segments))]
            offer = self.offers.of(segment, around, key[1])
            known = self._asked[key] = offer, values
        return (*known, values)

    def segment_like(self, piece: Piece) -> Fusion:
        """Return a fusion with the structure of a group, the one that was already offered if any.

        Cached analyses of it, such as the elements that it needs, are reused.
        """
        chosen = frozenset({piece})
        whole, _ = self.structures.whole(chosen)
        return self._segments.get(whole) or self._fusion_of(chosen)

    def _fusion_of(self, chosen: Chosen) -> Fusion:
        return self.groups.fusion_of(chosen, self.groups.graph.fusion.name)

    def forbidden(self, chosen: Chosen) -> str | None:
        """Return why some groups may not be merged regardless of predicted time, or None."""
        if any(p.fixed for p in chosen):
            return self._fixed(chosen)
        if len({p.host for p in chosen}) > 1:
            return self._why_separate(chosen)
        if self.groups.crosses_boundary(chosen):
            return "segment_set forces a boundary"
        if self.whole and self._is_whole(chosen):
            return "the whole graph is the candidate to split"
        if self.may_merge is not None:
            said = self.may_merge(self._fusion_of(chosen))
            if said is not True:
                return said or "`should_merge` returned False"
        return None

    def _is_whole(self, chosen: Chosen) -> bool:
        """Return whether some groups hold all nodes that are to be split."""
        if sum(len(p.members) for p in chosen) < len(self.whole):
            return False
        return self.whole <= {n.output.name for p in chosen for n in p.members}

    def _fixed(self, chosen: Chosen) -> str:
        families = sorted({n.op.family for p in chosen for n in p.nodes if stands_alone(n)})
        return f"{families[0]} stands alone" if families else "one of them is pinned"

    def _why_separate(self, chosen: Chosen) -> str:
        counts, nodes = loops(self.groups.graph.fusion), [n for p in chosen for n in p.nodes]
        if len({counts.get(n) for n in nodes}) > 1:
            return f"they run {times(counts, nodes)}"
        return "they are separate groups at the host level"

    def gain(self, chosen: Chosen) -> float | None:
        """Return the seconds that a merge saves; None if it is not allowed."""
        if len(chosen) < 2 or self.forbidden(chosen) is not None or self.is_too_long(chosen):
            return None
        offer = self.offer(chosen)
        if not offer.accepted:
            return None
        return sum(self.of_piece(p).seconds for p in sorted(chosen)) - offer.seconds

    def most_gain(self, chosen: Chosen) -> float | None:
        """Return an upper bound on the seconds that a merge saves; None if it is not allowed.

        If the offer is already known, the bound is exact.
        """
        number = self.structures.together(chosen)
        if (number, None) in self._known:
            return self.gain(chosen)
        if len(chosen) < 2 or self.forbidden(chosen) is not None or self.is_too_long(chosen):
            return None
        least = self._least.get(number)
        if least is None:
            bounds = self._bounds
            least = 0.0 if bounds is None else bounds.of(self.groups, chosen)
            self._least[number] = least
        return sum(self.of_piece(p).seconds for p in sorted(chosen)) - least

    def is_too_long(self, chosen: Chosen) -> bool:
        """Return whether some groups are too long for one kernel, by their operations alone."""
        nodes = [n for p in chosen for n in p.nodes]
        return self.offers.is_too_long(nodes, self.groups.graph.fusion.hints)

    def apply(self, chosen: Chosen, action: str, gain: float) -> Piece:
        """Merge some groups and log the reason."""
        offer = self.offer(chosen)
        names = tuple(v.name for v in self.groups.results(chosen))
        unpriced = any(not self.of_piece(p).accepted for p in chosen)
        saved = (
            "no scheduler supports the parts separately"
            if unpriced
            else f"saves {gain * 1e6:.2f} us"
        )
        because = f"{offer.scheduler}, {offer.seconds * 1e6:.2f} us: {saved}"
        self.decisions.append(Decision(action, names, because))
        refined = any(p.again or len(p.owned) > len(p.nodes) for p in chosen)
        merged = self.structures.merge(chosen)
        if refined:
            # Values that one part recomputes may be computed, or were read, by another.
            merged.owned = {n for p in chosen for n in p.owned}
            merged.again = frozenset(n for p in chosen for n in p.again) - merged.owned
            self.settle([merged])
        return merged

    def settle(
        self, moved: Iterable[Piece], before: dict[Piece, Offer] | None = None
    ) -> list[Piece]:
        """Refresh groups that were changed, and return all groups that change as a consequence.

        `before` receives the old offers, which must be cached: a half-changed group has no
        estimate.
        """
        changed = dict.fromkeys(moved)
        touched: dict[Piece, None] = {}
        while changed:
            piece, _ = changed.popitem()
            touched[piece] = None
            if before is not None and piece not in before and piece in self.groups.pieces:
                before[piece] = self.of_piece(piece)
            for value in self.groups.refresh(piece):
                maker = self.groups.maker(value)
                if maker is not None:
                    changed[maker] = None
            self.forget(piece)
        return list(touched)

    def take(self, regions: Iterable[Iterable[Piece]]) -> None:
        """Merge the given regions, largest gain first, if their groups are still separate."""
        halved: list[Chosen] = []
        parts = (part for region in regions for part in self._halved(region, halved))
        self._drain(parts, grow=False)

    def _halved(
        self, region: Iterable[Piece], halved: list[Chosen] | None = None
    ) -> Iterable[Iterable[Piece]]:
        """Yield a region or, if NVRTC would take too long for it, halves that compile in time.

        halved: regions that were halved. A subset of one that is still too long is not halved
        differently, since its pieces could be merged across the halves.
        """
        parts = sorted(region)
        chosen = self.groups.closure(parts)
        if chosen is None or len(parts) < 2 or self.forbidden(chosen) is not None:
            return
        if self.is_too_long(chosen) or any(r.rule == NVRTC for _, r in self.offer(chosen).refusals):
            if halved is not None:
                if any(chosen <= other for other in halved):
                    return
                halved.append(chosen)
            middle = find_waist(self.groups, parts)
            yield from self._halved(parts[:middle])
            yield from self._halved(parts[middle:])
        else:
            yield parts

    def run(self, around: Iterable[Piece] | None = None) -> list[Piece]:
        """Merge neighbours and siblings, the largest gain first, until no merge gains.

        `around`: only merges that include one of these groups, or share a value with it. Return the
        merged groups.
        """
        return self._drain(candidates(self.groups, around or self.groups), grow=True)

    def _drain(self, regions: Iterable[Iterable[Piece]], grow: bool) -> list[Piece]:
        done: list[Piece] = []
        tried: set[Chosen] = set()
        queue = list(self._entries(regions, tried))
        heapify(queue)
        while queue:
            negative, order, number, chosen, is_known = heappop(queue)
            if not all(p in self.groups.pieces for p in chosen):
                continue
            if not is_known:
                # Most merges are superseded by others before a scheduler is called for them.
                gain = self.gain(chosen)
                if gain is not None and gain >= -MARGIN:
                    heappush(queue, (-gain, order, number, chosen, True))
                continue
            # An earlier merge may have made a new path between these groups.
            closed = self.groups.closure(chosen)
            if closed != chosen:
                again = None if closed is None else self._entry(closed, tried)
                if again is not None:
                    heappush(queue, again)
                continue
            gain = self.gain(chosen)
            if gain is None or gain < -negative - MARGIN:
                # A merge of groups that recomputed values changed what these must compute.
                if gain is not None and gain >= -MARGIN:
                    heappush(queue, (-gain, order, number, chosen, True))
                continue
            merged = self.apply(chosen, "merge" if grow else "region", gain)
            done.append(merged)
            if grow:
                for entry in self._entries(candidates(self.groups, [merged]), tried):
                    heappush(queue, entry)
        return [p for p in done if p in self.groups.pieces]

    def _entries(self, regions: Iterable[Iterable[Piece]], tried: set[Chosen]) -> Iterable[Entry]:
        seen: set[Chosen] = set()
        for region in regions:
            wanted = frozenset(region)
            if wanted in seen or wanted in tried:
                continue
            seen.add(wanted)
            closed = self.groups.closure(wanted)
            entry = None if closed is None else self._entry(closed, tried)
            if entry is not None:
                yield entry

    def _entry(self, chosen: Chosen, tried: set[Chosen]) -> Entry | None:
        if chosen in tried:
            return None
        tried.add(chosen)
        gain = self.most_gain(chosen)
        # At equal predicted time fewer segments are better; the margin covers rounding of the sum.
        if gain is None or gain < -MARGIN:
            return None
        return (-gain - MARGIN, tuple(sorted(p.first for p in chosen)), len(tried), chosen, False)


def _only(chosen: Chosen) -> str | None:
    """Return the scheduler that a pin requires, the only one to call."""
    return next(iter(chosen)).only if len(chosen) == 1 else None


def surroundings(groups: Groups, chosen: Chosen) -> Surroundings:
    """Return what a scheduler needs to know about some groups beyond their own fusion."""
    pinned = any(p.pinned for p in chosen)
    return Surroundings(groups.graph.fusion.effects.overwritten, groups.crossing(chosen), pinned)


def candidates(groups: Groups, around: Iterable[Piece]) -> Iterable[tuple[Piece, ...]]:
    """Yield sets of groups worth merging that hold one of `around` or share a value with it."""
    for piece in around:
        consumers, sources = groups.consumers(piece), groups.sources(piece)
        for other in (*consumers[:MANY], *sources[:MANY]):
            yield (piece, other)
        for others in (consumers, sources):
            if 1 < len(others) <= MANY:
                yield (piece, *others)
        for value in (*piece.leaves, *piece.made):
            if not value.is_scalar:
                yield from _sharing(groups, piece, value)


def _sharing(groups: Groups, piece: Piece, value: Value) -> Iterable[tuple[Piece, ...]]:
    """Yield sets of the groups that share a value."""
    readers = sorted(groups.readers.get(value, ()))
    if len(readers) > MANY:
        # Far siblings gain little, and would be tried again whenever one of them merges.
        if piece in groups.readers[value]:
            at = readers.index(piece)
            yield from pairwise(readers[max(0, at - 1) : at + 2])
        return
    if piece in readers:
        yield from ((piece, other) for other in readers if other is not piece)
    else:
        yield from pairwise(readers)
    if len(readers) > 1:
        yield tuple(readers)
    maker = groups.maker(value)
    if maker is not None:
        yield (maker, *readers)
