"""The host level of a segmentation: groups formed by the caller's predicate, without schedulers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.segment.groups import Groups
from fusec.segment.piece import Chosen, Piece
from fusec.segment.segmented import Segment, SegmentedFusion

ShouldMerge = Callable[[Fusion, Fusion], bool]
"""Returns whether two groups, given as separate fusions, should be merged."""


def merge_by(groups: Groups, should_merge: ShouldMerge | None) -> list[Piece]:
    """Merge neighbours by the predicate, and return the groups in execution order.

    None merges all groups that no `segment_set` separates. Fixed groups are unchanged, and groups
    with a host number are only merged with others of the same number.
    """
    refused: set[Chosen] = set()
    for start in groups.order() or ():
        piece: Piece | None = start if start.alive else None
        while piece is not None:
            piece = _grown(groups, piece, should_merge, refused)
    return groups.order() or []


def _grown(
    groups: Groups, piece: Piece, should_merge: ShouldMerge | None, refused: set[Chosen]
) -> Piece | None:
    """Return a piece merged with the first neighbour that the predicate accepts, or None."""
    for other in _neighbours(groups, piece):
        pair = frozenset({piece, other})
        chosen = None if pair in refused else groups.closure(pair)
        if chosen is None or (should_merge is not None and chosen != pair):
            continue  # groups between them come first
        apart = any(p.fixed for p in chosen) or len({p.host for p in chosen}) > 1
        crosses = apart or groups.crosses_boundary(chosen)
        if not crosses and (should_merge is None or _asked(groups, piece, other, should_merge)):
            return groups.merge(chosen)
        refused.add(pair)
    return None


def _neighbours(groups: Groups, piece: Piece) -> Iterable[Piece]:
    yield from groups.sources(piece)
    yield from groups.consumers(piece)
    for value in (*piece.leaves, *piece.made):
        if not value.is_scalar:
            yield from (p for p in sorted(groups.readers.get(value, ())) if p is not piece)


def _asked(groups: Groups, piece: Piece, other: Piece, should_merge: ShouldMerge) -> bool:
    first, second = sorted((piece, other), key=lambda p: p.rank)
    name = groups.graph.fusion.name
    try:
        return bool(should_merge(groups.fusion_of([first], name), groups.fusion_of([second], name)))
    except Exception as error:
        message = error.diagnostic.message if isinstance(error, FusecError) else error
        raise FusecError(
            f"should_merge raised {type(error).__name__}: {message}",
            span=next((n.span for n in groups.members([second]) if n.span is not None), None),
            notes=[f"called with {_named(groups, first)} and {_named(groups, second)}"],
            help="it takes two fusions and returns whether they should be one segment",
        ) from error


def _named(groups: Groups, piece: Piece) -> str:
    names = ", ".join(f"`{v.name}`" for v in groups.results([piece]))
    return f"the group that computes {names}"


def host_segments(groups: Groups, order: list[Piece]) -> SegmentedFusion:
    """Return groups as segments of kind `none`."""
    fusion = groups.graph.fusion
    segments = (
        Segment(k, "none", groups.fusion_of([piece], f"{fusion.name}_h{k}"), None)
        for k, piece in enumerate(order)
    )
    return SegmentedFusion(fusion, tuple(segments))
