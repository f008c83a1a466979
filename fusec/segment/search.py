"""Segmentation: the whole fusion first, then regions, then merges by price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.graph import Fusion, Node, Pin
from fusec.segment.canonical import as_defined, canonical, sizes_of_inputs
from fusec.segment.hazards import copy_last, copy_where_moved, is_copy
from fusec.segment.merge import MayMerge, Merges, surroundings
from fusec.segment.offers import Offer, Offers
from fusec.segment.partition import Graph, Group, Partition
from fusec.segment.pins import fix
from fusec.segment.protocol import Scheduler
from fusec.segment.regions import reduction_regions, singles, tissue_regions
from fusec.segment.segmented import Decision, Segment, SegmentedFusion
from fusec.segment.views import view_nodes
from fusec.target import Target


def segment(
    fusion: Fusion,
    schedulers: Sequence[Scheduler],
    target: Target,
    *,
    gone: Iterable[str] = (),
    may_merge: MayMerge | None = None,
) -> SegmentedFusion:
    """Return the fusion as a DAG of segments that the schedulers accept.

    Pins are the fusion's own (`fusion.pins`); `gone` names pinned values that passes removed, which
    is no error. `may_merge` may forbid a merge, whatever its price. Unsupported names a node that
    nobody takes. The result follows from structure: independent nodes may come in any order.
    """
    # Nodes without use go with the canonical order; a pin may still name them.
    removed = {*gone, *(v.name for n in fusion.nodes for v in n.outputs)}
    work, decisions = copy_where_moved(canonical(sizes_of_inputs(fusion)))
    offers = Offers(schedulers, target)
    apart: frozenset[Node] = frozenset()
    while True:
        start = _prepare(canonical(work), offers, removed, apart)
        merges = Merges(start.partition, offers, start.fixed, may_merge)
        if not _take_whole(merges, start):
            if start.partition.order() is None:
                work, more = _order_aliases(start.partition.graph.fusion)
                decisions = (*decisions, *more)
                continue
            # Reductions take what only they need before elementwise nodes find each other.
            merges.take(reduction_regions(merges.partition, merges.fixed))
            merges.take(tissue_regions(merges.partition, merges.fixed))
            merges.run()
        blocked = _copies_in_the_way(merges)
        if not blocked:
            _require_takers(merges, start, apart)
            found = _finish(merges, start, (*decisions, *start.decisions))
            return replace(found, fusion=as_defined(found.fusion, fusion))
        apart |= blocked


@dataclass(frozen=True)
class _Start:
    partition: Partition
    pins: dict[Group, Pin]
    fixed: frozenset[Group]
    decisions: tuple[Decision, ...]


def _prepare(fusion: Fusion, offers: Offers, removed: set[str], apart: frozenset[Node]) -> _Start:
    """Return single nodes as groups, beside what pins fix and the outputs that are views."""
    pinned = fix(fusion, [s.name for s in offers.schedulers], removed)
    copied = pinned.graph.copied - apart
    pins = dict(pinned.groups)
    views = view_nodes(fusion, frozenset(n for g in pins for n in g))
    if views.last:
        graph = Graph(fusion, copied | (views.chain - apart))
        partition = Partition(graph, singles(graph, (*pins, views.last)))
        segment = partition.fusion_of([views.last], "views")
        estimate = offers.of(segment, surroundings(partition, [views.last])).estimate
        if estimate is not None and estimate.kernels == 0:
            fixed = frozenset({*pins, views.last})
            return _Start(partition, pins, fixed, pinned.decisions)
    graph = Graph(fusion, copied)
    partition = Partition(graph, singles(graph, pins))
    return _Start(partition, pins, frozenset(pins), pinned.decisions)


def _take_whole(merges: Merges, start: _Start) -> bool:
    """Merge everything if nothing forbids it and somebody takes it."""
    partition = start.partition
    free = frozenset(g for g in partition.groups if g not in start.fixed)
    sets = any(n.op.name == "segment_set" for g in free for n in g)
    if start.pins or sets or not free or merges.forbidden(free) is not None:
        return not free and not start.pins
    offer = merges.offer(free)
    if offer.accepted:
        merges.partition = partition.merged(free)
        return True
    merges.decisions.append(Decision("split", _results(partition, free), offer.reasons()))
    return False


def _results(partition: Partition, chosen: Iterable[Group]) -> tuple[str, ...]:
    return tuple(v.name for v in partition.results(frozenset(chosen)))


def _order_aliases(fusion: Fusion) -> tuple[Fusion, tuple[Decision, ...]]:
    """Return the fusion with aliased outputs copied last, so that every reader can run before."""
    late = [o for o in fusion.outputs if o.alias is not None and not is_copy(fusion, o.value)]
    if not late:
        first = fusion.pins[0] if fusion.pins else None
        message = "the pinned segments need each other's results"
        raise FusecError(message, span=None if first is None else first.span)
    return copy_last(fusion, late)


def _copies_in_the_way(merges: Merges) -> frozenset[Node]:
    """Return the copies with which nobody takes a group: they get groups of their own."""
    graph, blocked = merges.partition.graph, set[Node]()
    for group in merges.partition.groups:
        if group in merges.fixed or merges.offer(frozenset({group})).accepted:
            continue
        for node in graph.members(group) - group:
            if not all(v.is_scalar for v in node.outputs):
                blocked.add(node)
    return frozenset(blocked)


def _finish(merges: Merges, start: _Start, before: tuple[Decision, ...]) -> SegmentedFusion:
    """Return the segments in execution order, each with what every scheduler said."""
    partition = merges.partition
    fusion = partition.graph.fusion
    order = partition.order()
    assert order is not None, "a merge closed a cycle"
    segments: list[Segment] = []
    for id, group in enumerate(order):
        name = fusion.name if len(order) == 1 else f"{fusion.name}_s{id}"
        part, pin = partition.fusion_of([group], name), start.pins.get(group)
        only = None if pin is None else pin.scheduler
        offer = merges.offers.of(part, surroundings(partition, [group]), only)
        assert offer.scheduler is not None
        segments.append(
            Segment(
                id,
                offer.scheduler,
                part,
                offer.estimate,
                offer.refusals,
                _why(offer),
                None if pin is None else pin.name,
            )
        )
    decisions = (*before, *merges.decisions, *_boundaries(merges, order))
    return SegmentedFusion(fusion, tuple(segments), decisions)


def _why(offer: Offer) -> str:
    others = "".join(f"; {name} {seconds * 1e6:.2f} us" for name, seconds in offer.dearer)
    return f"{offer.scheduler} {offer.seconds * 1e6:.2f} us{others}"


def _require_takers(merges: Merges, start: _Start, apart: frozenset[Node]) -> None:
    """Raise Unsupported for a segment that nobody takes: rather one that was no copy at first."""
    partition = merges.partition
    refused: list[tuple[bool, Group, Offer]] = []
    for group in partition.order() or ():
        pin = start.pins.get(group)
        part = partition.fusion_of([group], partition.graph.fusion.name)
        only = None if pin is None else pin.scheduler
        offer = merges.offers.of(part, surroundings(partition, [group]), only)
        if not offer.accepted:
            refused.append((group <= apart, group, offer))
    if refused:
        _, group, offer = min(refused, key=lambda r: r[0])
        part = partition.fusion_of([group], partition.graph.fusion.name)
        raise _nobody(group, part, offer, start.pins.get(group))


def _nobody(group: Group, part: Fusion, offer: Offer, pin: Pin | None) -> Unsupported:
    notes = [f"{name}: {refusal}" for name, refusal in offer.refusals]
    if pin is not None:
        message = f"no scheduler takes the pinned segment `{pin.name}`"
        return Unsupported(message, span=pin.span, notes=notes)
    node = next(n for n in part.nodes if n in group)
    message = f"no scheduler takes `{node.op.name}` (`{node.output.name}` {node.output.type})"
    return Unsupported(message, span=node.span, notes=notes)


def _boundaries(merges: Merges, order: tuple[Group, ...]) -> Iterable[Decision]:
    """Yield why each pair of neighbouring segments stayed apart."""
    number = {group: id for id, group in enumerate(order)}
    for consumer in order:
        for producer in sorted(merges.partition.sources(consumer), key=number.__getitem__):
            chosen = merges.partition.closure([producer, consumer])
            because = merges.forbidden(chosen)
            if because is None:
                offer = merges.offer(chosen)
                apart = sum(merges.offer(frozenset({g})).seconds for g in order if g in chosen)
                because = (
                    f"one kernel takes {offer.seconds * 1e6:.2f} us, apart {apart * 1e6:.2f} us"
                    if offer.accepted
                    else offer.reasons()
                )
            subject = (f"s{number[producer]}", f"s{number[consumer]}")
            yield Decision("boundary", subject, because)
