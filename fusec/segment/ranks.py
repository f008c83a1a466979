"""Ranks of groups: no edge leads from a group to one of smaller rank.

So the closure of a merge, and whether it would form a cycle, only depend on groups between the
ranks of its groups, and a merge renumbers only those of them that come before or after it.
"""

from __future__ import annotations

from fusec.segment.piece import Chosen, Piece

MAX_BETWEEN = 2048
"""Maximum number of groups visited between those of a merge before it is abandoned."""


def closure(seeds: Chosen, limit: int) -> Chosen | None:
    """Return the pieces and all others on paths between them, which a merge must include.

    None if more than `limit` pieces would have to be visited.
    """
    later = _reach(seeds, forward=True, limit=limit)
    if later is None:
        return None
    if not later:
        return seeds
    inside = set(seeds)
    for piece in sorted(later, key=_rank, reverse=True):
        if any(p in inside for p in piece.after):
            inside.add(piece)
    return seeds if len(inside) == len(seeds) else frozenset(inside)


def make_room(chosen: Chosen) -> None:
    """Renumber the pieces between the chosen ones, first those that must run before them."""
    earlier = _reach(chosen, forward=False, limit=None) or ()
    later = _reach(chosen, forward=True, limit=None) or ()
    ranks = sorted(p.rank for p in (*chosen, *earlier, *later))
    for piece, rank in zip(sorted(earlier, key=_rank), ranks, strict=False):
        piece.rank = rank
    own = ranks[len(earlier)]
    ends = ranks[len(ranks) - len(later) :]
    for piece, rank in zip(sorted(later, key=_rank), ends, strict=True):
        piece.rank = rank
    for piece in chosen:
        piece.rank = own


def _rank(piece: Piece) -> int:
    return piece.rank


def _reach(seeds: Chosen, *, forward: bool, limit: int | None) -> set[Piece] | None:
    """Return the pieces after (or before) the seeds, among those between their ranks."""
    ranks = [p.rank for p in seeds]
    low, high = min(ranks), max(ranks)
    seen: set[Piece] = set()
    stack = list(seeds)
    while stack:
        piece = stack.pop()
        for other in piece.after if forward else piece.before:
            within = other.rank < high if forward else other.rank > low
            if within and other not in seen and other not in seeds:
                if limit is not None and len(seen) >= limit:
                    return None
                seen.add(other)
                stack.append(other)
    return seen
