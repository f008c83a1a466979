"""Segments that several kernels compute faster: each is searched again without being one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from fusec.dataclasses import dataclass
from fusec.index.demanded import Demand, demand
from fusec.ir.graph import Fusion, Node
from fusec.segment.canonical import canonical
from fusec.segment.cheap import find_copied
from fusec.segment.floor import Floor
from fusec.segment.groups import Groups
from fusec.segment.piece import Fragment, Piece
from fusec.segment.protocol import Estimate
from fusec.segment.segmented import SegmentedFusion, owners
from fusec.segment.traffic import bytes_written, demanded_bytes, elements, traffic, work
from fusec.segment.views import view_of
from fusec.target import Target

MODEL_ERROR = 0.05
"""Relative error of predicted times: a split that is closer to the whole's time does not pay.

The median error of predicted times, see `model` in benchmarks/results/segmentation.json.
"""
Search = Callable[[Fusion, float], SegmentedFusion | None]
"""Returns at least two segments of a fusion, or None if some nodes have no scheduler.

A search that cannot get below the given seconds may stop early.
"""


@dataclass(frozen=True)
class _Places:
    """A fragment by its nodes' positions in canonical order, the same for every similar segment."""

    owned: tuple[int, ...]
    again: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """The predicted seconds of a split segment's fragments; `fragments` by position."""

    seconds: float
    fragments: tuple[_Places, ...]


class Splits:
    """Cached results of segments searched again: usually once per structure."""

    def __init__(self, target: Target) -> None:
        """Start with an empty cache."""
        self.target = target
        self._known: dict[object, tuple[float, Split | None]] = {}

    def of(self, segment: Fusion, seconds: float, search: Search) -> Split | None:
        """Return how a segment is split, if its fragments take less than the given seconds."""
        key = segment.structure(offsets=False)
        sought, found = self._known.get(key, (0.0, None))
        if sought < seconds:
            self._known[key] = inf, None  # where nothing can be split, the search recurs here
            found = _split_of(search(segment, seconds), segment, self.target)
            self._known[key] = seconds, found
        return None if found is None or found.seconds >= seconds else found


@dataclass(frozen=True)
class Splitter:
    """Splits pieces; goal: seconds that all of them together must stay below, if any."""

    splits: Splits
    search: Search
    goal: float | None = None

    def goals(
        self, seconds: Mapping[Piece, float], least: Mapping[Piece, float]
    ) -> Mapping[Piece, float]:
        """Return, for each piece, the seconds that its fragments must stay below.

        Pieces that cannot gain are omitted. seconds: predicted time of each piece; least: its lower
        bound (`least`).
        """
        if self.goal is None:
            seconds = {p: s * (1 - MODEL_ERROR) for p, s in seconds.items()}
        least = {p: min(s, least[p]) for p, s in seconds.items()}
        if self.goal is not None:
            spare = self.goal - sum(least.values())
            seconds = {p: min(s, least[p] + spare) for p, s in seconds.items()}
        return {p: s for p, s in seconds.items() if least[p] < s}

    def least(self, segment: Fusion) -> float:
        """Return a lower bound on the seconds of a split segment."""
        return least_seconds(segment, self.splits.target)

    def fragments(self, groups: Groups, piece: Piece, seconds: float) -> list[Fragment]:
        """Return fragments of a piece that take fewer seconds; empty if there are none."""
        order = canonical(groups.fusion_of([piece], groups.graph.fusion.name))
        found = self.splits.of(order, seconds, self.search)
        return [] if found is None else _named(groups, piece, order, found)


def least_seconds(fusion: Fusion, target: Target) -> float:
    """Return a lower bound on the seconds of two or more kernels that compute a fusion.

    Together they read each input, write each output, compute each value, and pay for their
    launches. If some segments are only views, at least one launch moves the compulsory traffic. A
    GEMM kernel also has a prologue that does not overlap with reading.
    """
    made = [v for n in fusion.nodes for v in n.outputs if not v.is_scalar]
    if any(elements(v, fusion.hints) == 0 for v in made):
        return 0.0  # an empty result needs no kernel
    moved, written, kernels = traffic(fusion), bytes_written(fusion), 2
    if _has_views(fusion):
        floor = Floor(fusion)
        moved, written, kernels = floor.bytes, sum(floor.written.values()), 1
    if not moved:
        return 0.0
    flops, sfu = work(fusion)
    best = target.best_reach
    least = Estimate(
        bytes=moved,
        written=written,
        flops=flops,
        sfu=sfu,
        efficiency=best,
        ctas=target.sms,
        kernels=kernels,
    )
    multiplied = kernels * target.launch + _multiplying_seconds(fusion, best, target)
    return max(least.seconds(target), multiplied)


def _multiplying_seconds(fusion: Fusion, best: float, target: Target) -> float:
    """Return a lower bound on the seconds of a fusion's only GEMM: its start and its operand reads.

    A prologue that computes an operand reads as many bytes. best: the highest fraction of the
    bandwidth that any family reaches.
    """
    products = [n for n in fusion.nodes if n.op.family == "contraction"]
    if len(products) != 1:
        return 0.0
    (node,) = products
    if demand(fusion).of(node.output).least < elements(node.output, fusion.hints):
        return 0.0  # some of it is not needed
    needed, read = Demand(fusion, node.inputs), 0
    for entry in fusion.inputs:
        strides = tuple(s.evaluate(fusion.hints) for s in entry.strides)
        read += demanded_bytes(needed.of(entry.value), strides, entry.value.dtype.size)
    cost = target.cost
    fastest = max(target.bandwidth * cost.gemm_memory_reach, target.read_bandwidth * best)
    return cost.gemm_start_seconds + read / fastest


def _has_views(fusion: Fusion) -> bool:
    """Return whether a fragment might need no kernel because it is only a view."""
    made = [v for n in fusion.nodes for v in n.outputs if not v.is_scalar]
    moved = {v for v in made if fusion.producer[v].op.family == "movement"}
    given = frozenset(i.value for i in fusion.inputs)
    computed = given | (frozenset(made) - moved)
    final, copied = {o.value for o in fusion.outputs}, find_copied(fusion)
    return any(
        view_of(fusion, v, computed if v in final else given) is not None
        for v in moved
        if v in final or fusion.producer[v] not in copied
    )


def _split_of(found: SegmentedFusion | None, order: Fusion, target: Target) -> Split | None:
    """Return a segmentation of a segment by the positions of its nodes in `order`."""
    if found is None or len(found.segments) < 2:
        return None
    place = {n.output.name: k for k, n in enumerate(order.nodes)}
    owner = owners(found)
    if not place.keys() >= owner.keys():
        return None  # a copy was needed for which the segment has no node
    fragments = tuple(
        _Places(
            tuple(place[n.output.name] for n in part.nodes if owner[n.output.name] == part.id),
            tuple(place[n.output.name] for n in part.nodes if owner[n.output.name] != part.id),
        )
        for part in found.segments
    )
    return Split(found.seconds(target), fragments)


def _named(groups: Groups, piece: Piece, order: Fusion, split: Split) -> list[Fragment]:
    """Return the fragments of a piece as nodes; they also recompute what the piece does."""
    by_name = {n.output.name: n for n in groups.members([piece])}
    nodes = [by_name[n.output.name] for n in order.nodes]
    taken: set[Node] = set()
    fragments: list[Fragment] = []
    for places in split.fragments:
        mine = {nodes[k] for k in places.owned}
        owned = frozenset(mine & piece.owned)
        taken |= owned
        again = {nodes[k] for k in places.again} | (mine - owned)
        fragments.append(Fragment(owned, frozenset(n for n in again if groups.is_owned(n))))
    # Nodes owned only by others are read from them; unneeded nodes still need an owner.
    fragments.append(Fragment(frozenset(piece.owned - taken), frozenset()))
    return [p for p in fragments if p.owned]
