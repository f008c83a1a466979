"""Segmentation: the whole fusion first, then regions, then merges selected by the cost model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from fusec.codes.unsupported import NO_SCHEDULER
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.annotations import Pin
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Fusion, Node
from fusec.ops.communication import holders, stands_alone
from fusec.passes.copy_unaligned import Unaligned, copy_unaligned
from fusec.passes.protect_inputs import Copied, copy_last, copy_unsafe
from fusec.segment.blocking import blocking_copies
from fusec.segment.canonical import as_defined, canonical, sizes_of_inputs
from fusec.segment.fewer_values import RefusedPin, with_fewer_values
from fusec.segment.graph import Graph, Group
from fusec.segment.groups import Groups
from fusec.segment.levels import ShouldMerge, host_segments, merge_by
from fusec.segment.loops import loops, of_several
from fusec.segment.merge import MayMerge, Merges, surroundings
from fusec.segment.offers import Offer, Offers
from fusec.segment.piece import Chosen, Piece
from fusec.segment.pins import fix
from fusec.segment.protocol import Scheduler
from fusec.segment.refine import refine, rematerialised
from fusec.segment.regions import (
    backward_regions,
    injective_regions,
    islands,
    reduction_regions,
    singles,
    softmax_regions,
)
from fusec.segment.resume import Resume
from fusec.segment.segmented import Decision, Refusals, Segment, SegmentedFusion
from fusec.segment.softmaxes import Softmax, find_softmaxes, separate_softmaxes
from fusec.segment.split import Splits, Splitter
from fusec.segment.views import view_nodes
from fusec.target import Target

WHOLE = 512
"""Number of nodes up to which a fusion is offered as a whole."""


def segment(
    fusion: Fusion,
    schedulers: Sequence[Scheduler],
    target: Target,
    *,
    gone: Iterable[str] = (),
    may_merge: MayMerge | None = None,
    rematerialise: bool = True,
    copies: bool = True,
    should_merge: ShouldMerge | None = None,
    offers: Offers | None = None,
    resume: Resume | None = None,
    keep_schedulers: bool = False,
) -> SegmentedFusion:
    """Return the fusion as a DAG of segments that the schedulers accept.

    Pins are the fusion's own (`fusion.pins`); `gone` names pinned values that passes removed, which
    is not an error. `may_merge` may forbid a merge regardless of its predicted time.
    `rematerialise`: let accepted segments recompute values instead of reading them if that moves
    fewer bytes. `copies`: let each reader compute casts, copies and broadcasts itself, as scalars
    always are. Unsupported names a node that no scheduler accepts. The result depends only on
    structure: independent nodes may come in any order.

    `should_merge` drives a host level of groups above the segments: segments lie within these
    groups; without schedulers, the groups are the result. `boundaries: explicit` of a fusion
    separates the groups only at `segment_set`. `offers` are those of an earlier search with the
    same schedulers and target, and cached offers are reused. `resume`: segments to start from; only
    nodes in none of them are grouped, and join these. `keep_schedulers`: move values between
    accepted segments only if each of these keeps its scheduler.
    """
    # Canonicalization drops unused nodes; a pin may still name them.
    removed = {*gone, *(v.name for n in fusion.nodes for v in n.outputs)}
    offers = offers or Offers(schedulers, target)
    # Results of other searches may be reused only if those had the same options.
    shares = may_merge is None and rematerialise and copies
    splits = offers.splits if shares else Splits(target)
    ways = _Ways(
        offers, splits, removed, may_merge, rematerialise, copies, keep_schedulers, resume=resume
    )
    try:
        return _search(fusion, ways, should_merge)
    except RefusedPin as error:
        again = partial(_search, ways=replace(ways, resume=None), should_merge=should_merge)
        raise with_fewer_values(error, fusion, again) from None


@dataclass(frozen=True)
class _Ways:
    """Options of a search.

    whole: the seconds that the fusion takes as a whole, if it is not to be offered as that; names:
    the first results of the nodes that it has then. resume: the segments to start from, if any.
    """

    offers: Offers
    splits: Splits
    removed: set[str]
    may_merge: MayMerge | None
    rematerialise: bool
    copies: bool
    keep_schedulers: bool = False
    whole: float | None = None
    names: frozenset[str] = frozenset()
    resume: Resume | None = None


def _search(fusion: Fusion, ways: _Ways, should_merge: ShouldMerge | None) -> SegmentedFusion:
    offers = ways.offers
    work, copies = copy_unsafe(canonical(sizes_of_inputs(fusion)))
    work, unaligned = copy_unaligned(work)
    decisions = (*_decisions(copies), *(_copy(m) for m in unaligned))
    grouped = frozenset[str]() if ways.resume is None else ways.resume.uncopied
    uncopied = frozenset(n for n in work.nodes if n.output.name in grouped)
    while True:
        start = _prepare(canonical(work), ways, uncopied, should_merge)
        if start.host is not None and not offers.schedulers:
            return replace(start.host, fusion=as_defined(start.host.fusion, fusion))
        merges = Merges(start.groups, offers, ways.may_merge, ways.names)
        softmaxes: list[Softmax] = []
        new: Group | None = None
        if ways.resume is not None:
            new = None if start.groups.cyclic else ways.resume.restore(merges)
            if new is None:
                ways = replace(ways, resume=None)
                continue
        if new is not None or ways.whole is not None or not _take_whole(merges, start):
            if start.groups.cyclic:
                work, more = _order_aliases(start.groups.graph.fusion)
                decisions = (*decisions, *more)
                continue
            for island in islands(merges.groups) if start.alone and new is None else ():
                _take(merges, island)
            softmaxes = _merge(merges, new)
        blocked = _blocking_copies(merges)
        if not blocked:
            _require_takers(merges, start, uncopied)
            splitter = Splitter(ways.splits, partial(_in_parts, ways=ways), ways.whole)
            kept = ways.keep_schedulers
            refine(merges, splitter, new, rematerialise=ways.rematerialise, keep_schedulers=kept)
            earlier = () if ways.resume is None else ways.resume.decisions
            explained = ways.whole is None  # trial splits need no reasons
            found = _finish(merges, start, (*decisions, *start.decisions, *earlier), explained)
            separate = tuple(separate_softmaxes(softmaxes, found))
            return replace(
                found,
                fusion=as_defined(found.fusion, fusion),
                decisions=(*found.decisions, *separate),
                uncopied=frozenset(n.output.name for n in uncopied),
            )
        uncopied |= blocked


def _merge(merges: Merges, new: Group | None) -> list[Softmax]:
    """Merge regions and then neighbours; return the softmaxes among the regions.

    new: every merge must include one of these nodes; the others are already grouped.
    """

    def concerned(regions: Iterable[Chosen]) -> list[Chosen]:
        return [r for r in regions if new is None or any(not new.isdisjoint(p.nodes) for p in r)]

    regions = concerned(softmax_regions(merges.groups))
    softmaxes = find_softmaxes(merges, regions)
    merges.take(regions)
    regions = concerned(backward_regions(merges.groups))
    softmaxes += find_softmaxes(merges, regions)
    merges.take(regions)
    # Reductions take in the nodes that only they need before elementwise nodes merge with each
    # other.
    merges.take(concerned(reduction_regions(merges.groups)))
    merges.take(concerned(injective_regions(merges.groups)))
    if new is None:
        merges.run()
    else:
        merges.run([p for p in merges.groups if not new.isdisjoint(p.nodes)])
    return softmaxes


def _in_parts(fusion: Fusion, seconds: float, ways: _Ways) -> SegmentedFusion | None:
    """Return a fusion in at least two segments; None if some nodes are accepted by no scheduler."""
    names = frozenset(n.output.name for n in fusion.nodes if n.op.family != "scalar")
    parts = replace(ways, whole=seconds, names=names, resume=None)
    try:
        return _search(fusion, parts, None)
    except Unsupported:
        return None


@dataclass(frozen=True)
class _Start:
    groups: Groups
    pins: dict[Group, Pin]
    decisions: tuple[Decision, ...]
    open: tuple[tuple[Group, Pin], ...] = ()
    host: SegmentedFusion | None = None
    alone: frozenset[Group] = frozenset()

    def pin(self, piece: Piece) -> Pin | None:
        """Return the pin that fixed a piece."""
        if not (self.pins and piece.fixed):
            return None
        return self.pins.get(frozenset(piece.owned))

    def responsible_pin(self, piece: Piece) -> Pin | None:
        """Return the pin that keeps a piece from being smaller."""
        held = (pin for group, pin in self.open if group <= piece.owned)
        return self.pin(piece) or next(held, None)


def _prepare(
    fusion: Fusion,
    ways: _Ways,
    uncopied: frozenset[Node],
    should_merge: ShouldMerge | None,
) -> _Start:
    """Return the initial groups: pinned segments, outputs that are views, and single nodes."""
    offers = ways.offers
    pinned = fix(fusion, [s.name for s in offers.schedulers], ways.removed)
    copied = pinned.graph.copied - uncopied
    if not ways.copies:
        copied = frozenset(n for n in copied if n.output.is_scalar)
    pins = {group: pin for group, pin in pinned.groups if not pin.open}
    opened = tuple((group, pin) for group, pin in pinned.groups if pin.open)
    held = [group for group, _ in pinned.groups]
    alone = frozenset(frozenset({n}) for n in fusion.nodes if stands_alone(n))
    fixed = {*pins, *alone}
    explicit = fusion.boundaries == "explicit"
    if should_merge is not None or explicit:
        graph = Graph(fusion, copied)
        groups = Groups(graph, singles(graph, held), fixed)
        start = _start(groups, pins, pinned.decisions, opened, alone)
        return _with_host(start, Groups(graph, singles(graph, held), alone), should_merge)
    views = view_nodes(fusion, frozenset(n for g in held for n in g))
    if views.last:
        # A collective or slice reads an existing buffer, so its operands are never duplicated.
        crossing = {fusion.producer.get(v) for group in alone for n in group for v in n.inputs}
        graph = Graph(fusion, copied | (views.chain - uncopied - crossing))
        held_last = (*held, views.last)
        groups = Groups(graph, _grouped(ways, graph, held_last), {*fixed, views.last})
        last = frozenset({groups.owner(next(iter(views.last)))})
        estimate = offers.of(groups.fusion_of(last, "views"), surroundings(groups, last)).estimate
        if estimate is not None and estimate.kernels == 0:
            return _start(groups, pins, pinned.decisions, opened, alone)
    graph = Graph(fusion, copied)
    groups = Groups(graph, _grouped(ways, graph, held), fixed)
    return _start(groups, pins, pinned.decisions, opened, alone)


def _grouped(ways: _Ways, graph: Graph, held: Collection[Group]) -> tuple[Group, ...]:
    """Return the groups that a search starts from: the held ones, seeds, and single nodes."""
    return singles(graph, held) if ways.resume is None else ways.resume.groups(graph, held)


def _with_host(start: _Start, groups: Groups, should_merge: ShouldMerge | None) -> _Start:
    """Return the start with the groups of the host level, which no segment crosses."""
    if groups.cyclic:
        return start
    _part_loops(groups)
    order = merge_by(groups, should_merge)
    number = {piece: k for k, piece in enumerate(order)}
    # Nodes of a host group run equally often, so its number alone distinguishes both.
    for piece in start.groups.pieces:
        piece.host = number[groups.owner(next(iter(piece.nodes)))]
    return replace(start, host=host_segments(groups, order))


def _start(
    groups: Groups,
    pins: dict[Group, Pin],
    decisions: tuple[Decision, ...],
    opened: tuple[tuple[Group, Pin], ...],
    alone: frozenset[Group],
) -> _Start:
    start = _Start(groups, pins, decisions, opened, alone=alone)
    _part_loops(groups)
    for piece in groups.pieces:
        pin = start.pin(piece)
        if pin is not None:
            piece.pinned, piece.only = True, pin.scheduler
    return start


def _part_loops(groups: Groups) -> None:
    """Number the groups by iteration count, and let no segment mix two numbers.

    The same holds for groups that only some ranks run.
    """
    found, held = loops(groups.graph.fusion), holders(groups.graph.fusion)
    kinds: list[tuple[Dim | None, frozenset[int] | None]] = [(None, None)]
    for piece in groups.pieces if found or held else ():
        nodes = [n for n in groups.members([piece]) if n in piece.nodes]
        own = {(found.get(n), held.get(n.output)) for n in nodes}
        if len({count for count, _ in own}) > 1:
            raise of_several(found, groups.members([piece]))
        if len(own) > 1:
            raise FusecError(
                "a pinned segment holds operations of several ranks", span=nodes[-1].span
            )
        (kind,) = own
        if kind not in kinds:
            kinds.append(kind)
        piece.host = kinds.index(kind)


def _take_whole(merges: Merges, start: _Start) -> bool:
    """Merge everything if that is allowed and some scheduler accepts it."""
    groups = start.groups
    free = frozenset(p for p in groups if not p.fixed)
    if start.alone:
        return False
    if start.pins or not free or any(p.sets for p in free):
        return not free and not start.pins
    nodes = sum(len(p.nodes) for p in free)
    if nodes > WHOLE:
        because = f"{nodes} nodes, more than {WHOLE}: only its parts are considered"
        merges.decisions.append(Decision("split", (groups.graph.fusion.name,), because))
        return False
    return _take(merges, free)


def _take(merges: Merges, chosen: Chosen) -> bool:
    """Merge some groups if that is allowed and some scheduler accepts them."""
    if merges.forbidden(chosen) is not None:
        return False
    offer = merges.named_offer(chosen)
    if offer.accepted:
        merges.groups.merge(chosen)
        return True
    subject = _results(merges.groups, chosen)
    merges.decisions.append(Decision("split", subject, offer.reasons(), offer.refusals))
    return False


def _results(groups: Groups, chosen: Chosen) -> tuple[str, ...]:
    return tuple(v.name for v in groups.results(chosen))


def _order_aliases(fusion: Fusion) -> tuple[Fusion, tuple[Decision, ...]]:
    """Return the fusion with aliased outputs copied last, so that every reader can run before."""
    work, copies = copy_last(fusion)
    if not copies:
        first = fusion.pins[0] if fusion.pins else None
        message = "the pinned segments depend on each other"
        raise FusecError(message, span=None if first is None else first.span)
    return work, _decisions(copies)


def _decisions(copies: Iterable[Copied]) -> tuple[Decision, ...]:
    """Return why outputs are copied last."""
    because = "is read after the write, or at other elements"
    return tuple(
        Decision("copy", (c.temporary, c.output), f"`{c.target}` {because}") for c in copies
    )


def _copy(unaligned: Unaligned) -> Decision:
    return Decision("copy", (unaligned.value, unaligned.copy), unaligned.because)


def _blocking_copies(merges: Merges) -> frozenset[Node]:
    """Return the copies that keep groups from being accepted: they become groups of their own."""
    blocked = set[Node]()
    for piece in merges.groups.pieces:
        if not piece.fixed and not merges.of_piece(piece).accepted:
            blocked |= blocking_copies(merges, piece)
    return frozenset(blocked)


def _finish(
    merges: Merges, start: _Start, before: tuple[Decision, ...], explained: bool
) -> SegmentedFusion:
    """Return the segments in execution order, each with every scheduler's answer.

    explained: whether decisions say why neighbours are separate.
    """
    groups = merges.groups
    fusion = groups.graph.fusion
    order = groups.order()
    assert order is not None, "a merge closed a cycle"
    segments: list[Segment] = []
    counts = loops(fusion)
    for id, piece in enumerate(order):
        name = fusion.name if len(order) == 1 else f"{fusion.name}_s{id}"
        part, pin = groups.fusion_of([piece], name), start.pin(piece)
        offer = merges.named_offer(frozenset({piece}))
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
                None if start.host is None else piece.host,
                iterations=_iterations(counts, piece, fusion.hints),
            )
        )
    boundaries = _boundaries(merges, order) if explained else ()
    decisions = (*before, *merges.decisions, *boundaries)
    return SegmentedFusion(
        fusion, tuple(segments), decisions, rematerialised(groups, order), start.host
    )


def _iterations(counts: Mapping[Node, Dim], piece: Piece, hints: Mapping[str, int]) -> int:
    """Return how often a piece runs."""
    own = next((counts[n] for n in piece.nodes if n in counts), dim(1))
    return own.evaluate(hints)


def _why(offer: Offer) -> str:
    others = "".join(f"; {name} {seconds * 1e6:.2f} us" for name, seconds in offer.dearer)
    return f"{offer.scheduler} {offer.seconds * 1e6:.2f} us{others}"


def _require_takers(merges: Merges, start: _Start, uncopied: frozenset[Node]) -> None:
    """Raise Unsupported for a segment without a scheduler, preferably one that was never a copy."""
    groups = merges.groups
    refused: list[tuple[bool, Piece, Fusion, Offer]] = []
    for piece in groups.order() or ():
        if merges.of_piece(piece).accepted:
            continue
        part = groups.fusion_of([piece], groups.graph.fusion.name)
        refused.append(
            (piece.nodes <= uncopied, piece, part, merges.named_offer(frozenset({piece})))
        )
    if refused:
        _, piece, part, offer = min(refused, key=lambda r: r[0])
        pin = start.responsible_pin(piece)
        other = merges.any_offer(piece).scheduler if pin is not None and pin.scheduler else None
        raise _no_scheduler(piece.nodes, part, offer, pin, other)


def _no_scheduler(
    group: Collection[Node], part: Fusion, offer: Offer, pin: Pin | None, other: str | None
) -> Unsupported:
    """Return the error for a segment without a scheduler; other: one that only the pin excludes."""
    notes = [f"{name}: {refusal}" for name, refusal in offer.refusals]
    if pin is not None:
        message = f"no scheduler supports the pinned segment `{pin.name}`"
        help = None
        if pin.scheduler is not None and other is not None:
            help = f"remove `scheduler: {pin.scheduler}`, or write `scheduler: {other}`"
        elif pin.scheduler is not None:
            help = f"no other scheduler takes it, either: list fewer values in `{pin.name}`"
        refused = RefusedPin(message, span=pin.span, notes=notes, help=help, code=NO_SCHEDULER)
        refused.pin = pin if other is None else None
        return refused
    node = next(n for n in part.nodes if n in group)
    message = f"no scheduler supports `{node.op.name}` (`{node.output.name}` {node.output.type})"
    return Unsupported(message, span=node.span, notes=notes, code=NO_SCHEDULER)


def _boundaries(merges: Merges, order: list[Piece]) -> Iterable[Decision]:
    """Yield why each pair of neighbouring segments was not merged."""
    number = {piece: id for id, piece in enumerate(order)}
    for consumer in order:
        for producer in sorted(merges.groups.sources(consumer), key=number.__getitem__):
            chosen = merges.groups.closure([producer, consumer])
            subject = (f"s{number[producer]}", f"s{number[consumer]}")
            yield Decision("boundary", subject, *_why_separate(merges, chosen))


def _why_separate(merges: Merges, chosen: Chosen | None) -> tuple[str, Refusals]:
    """Return why groups were not merged, and the refusals by scheduler if none accepts them."""
    if chosen is None:
        return "too many groups are between them", ()
    because = merges.forbidden(chosen)
    if because is not None:
        return because, ()
    offer = merges.offer(chosen)
    if not offer.accepted:
        named = merges.named_offer(chosen)
        return named.reasons(), named.refusals
    separate = sum(merges.of_piece(p).seconds for p in sorted(chosen))
    return (
        f"one kernel takes {offer.seconds * 1e6:.2f} us, separate kernels {separate * 1e6:.2f} us",
        (),
    )
