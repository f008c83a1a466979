"""Merges by price: pairs, siblings, a producer with all its consumers, from a priority queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush
from itertools import pairwise

from fusec.ir.graph import Fusion, Node
from fusec.segment.offers import Offer, Offers, Surroundings
from fusec.segment.partition import Group, Partition
from fusec.segment.segmented import Decision

MayMerge = Callable[[Fusion], bool]
Chosen = frozenset[Group]
MARGIN = 1e-12
"""Seconds below which prices count as equal."""

Entry = tuple[float, tuple[int, ...], int, Chosen]


class Merges:
    """A partition on its way: merged step by step, every step kept as a decision."""

    def __init__(
        self,
        partition: Partition,
        offers: Offers,
        fixed: Collection[Group],
        may_merge: MayMerge | None = None,
    ) -> None:
        """Start from a partition; `fixed` groups stay as they are."""
        self.partition = partition
        self.offers = offers
        self.fixed = frozenset(fixed)
        self.may_merge = may_merge
        self.decisions: list[Decision] = []
        self._offers: dict[Group, Offer] = {}

    def offer(self, chosen: Chosen) -> Offer:
        """Return the offer for some groups together."""
        union = frozenset[Node]().union(*chosen)
        if union not in self._offers:
            segment = self.partition.fusion_of(chosen, self.partition.graph.fusion.name)
            self._offers[union] = self.offers.of(segment, surroundings(self.partition, chosen))
        return self._offers[union]

    def forbidden(self, chosen: Chosen) -> str | None:
        """Return why some groups may not be merged, whatever the price, or None."""
        if chosen & self.fixed:
            return "a pin fixes one of them"
        if self.partition.graph.crosses_boundary(frozenset[Node]().union(*chosen)):
            return "segment_set forces a boundary"
        if self.may_merge is not None:
            name = self.partition.graph.fusion.name
            if not self.may_merge(self.partition.fusion_of(chosen, name)):
                return "the caller forbids it"
        return None

    def gain(self, chosen: Chosen) -> float | None:
        """Return the seconds that a merge saves; None where it may not be."""
        if len(chosen) < 2 or self.forbidden(chosen) is not None:
            return None
        offer = self.offer(chosen)
        if not offer.accepted:
            return None
        apart = (self.offer(frozenset({g})).seconds for g in self._ranked(chosen))
        return sum(apart) - offer.seconds

    def apply(self, chosen: Chosen, action: str, gain: float) -> Group:
        """Merge some groups and keep why."""
        offer = self.offer(chosen)
        names = tuple(v.name for v in self.partition.results(chosen))
        unpriced = any(not self.offer(frozenset({g})).accepted for g in chosen)
        saved = "nobody takes the parts alone" if unpriced else f"saves {gain * 1e6:.2f} us"
        because = f"{offer.scheduler}, {offer.seconds * 1e6:.2f} us: {saved}"
        self.decisions.append(Decision(action, names, because))
        self.partition = self.partition.merged(chosen)
        return frozenset[Node]().union(*chosen)

    def take(self, regions: Iterable[Iterable[Group]]) -> None:
        """Merge the given regions, the largest gain first, as far as they are still apart."""
        self._drain(regions, grow=False)

    def run(self) -> None:
        """Merge neighbours and siblings, the largest gain first, until no merge gains."""
        self._drain(candidates(self.partition, self.partition.groups), grow=True)

    def _drain(self, regions: Iterable[Iterable[Group]], grow: bool) -> None:
        tried: set[Chosen] = set()
        queue = list(self._entries(regions, tried))
        heapify(queue)
        while queue:
            negative, _, _, chosen = heappop(queue)
            alive = frozenset(self.partition.groups)
            if not chosen <= alive:
                continue
            # An earlier merge may have made a new path between these groups.
            closed = self.partition.closure(chosen)
            if closed != chosen:
                again = self._entry(closed, tried)
                if again is not None:
                    heappush(queue, again)
                continue
            merged = self.apply(chosen, "merge" if grow else "region", -negative)
            for entry in self._entries(candidates(self.partition, [merged]) if grow else (), tried):
                heappush(queue, entry)

    def _entries(self, regions: Iterable[Iterable[Group]], tried: set[Chosen]) -> Iterable[Entry]:
        for candidate in regions:
            entry = self._entry(self.partition.closure(candidate), tried)
            if entry is not None:
                yield entry

    def _entry(self, chosen: Chosen, tried: set[Chosen]) -> Entry | None:
        if chosen in tried:
            return None
        tried.add(chosen)
        gain = self.gain(chosen)
        rank = tuple(self.partition.graph.first(g) for g in self._ranked(chosen))
        # At equal price fewer segments are better; the margin is for the rounding of the sum.
        if gain is None or gain < -MARGIN:
            return None
        return (-gain, rank, len(tried), chosen)

    def _ranked(self, chosen: Chosen) -> list[Group]:
        return sorted(chosen, key=self.partition.graph.first)


def surroundings(partition: Partition, chosen: Collection[Group]) -> Surroundings:
    """Return what some groups' own fusion does not tell a scheduler."""
    return Surroundings(partition.graph.mutable, partition.crossing(chosen))


def candidates(partition: Partition, around: Iterable[Group]) -> Iterable[tuple[Group, ...]]:
    """Yield sets of groups worth merging that hold one of `around` or share a value with it."""
    producer = partition.graph.fusion.producer
    for group in around:
        values = [v for node in sorted(group, key=partition.graph.position.__getitem__)
                  for v in node.outputs if v in partition.readers]  # fmt: skip
        consumers = tuple(
            dict.fromkeys(r for v in values for r in partition.readers[v] if r != group)
        )
        sources = tuple(g for g in partition.sources(group) if g != group)
        for other in (*consumers, *sources):
            yield (group, other)
        yield (group, *consumers)
        yield (group, *sources)
        for value in (*partition.graph.leaves(group), *values):
            if value.is_scalar:
                continue
            readers = partition.readers.get(value, ())
            yield from pairwise(readers)
            yield readers
            if value in producer:
                yield (partition.owner[producer[value]], *readers)
