"""Moves between accepted segments: recompute values instead of reading them, and split segments.

Minimum cuts of bytes propose what to recompute, a separate search how to split a segment. Each move
is offered to the schedulers and undone unless it saves time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from fusec.ir.graph import Node, Value
from fusec.segment.graph import Group
from fusec.segment.groups import Groups
from fusec.segment.merge import MANY, MARGIN, Merges
from fusec.segment.offers import Offer
from fusec.segment.piece import Piece
from fusec.segment.recompute import (
    Before,
    Sharers,
    before,
    cheapest,
    cone,
    leaf_bytes,
    may_repeat,
)
from fusec.segment.segmented import Decision, Rematerialised, tensor_bytes
from fusec.segment.shift import beginnings
from fusec.segment.split import Splitter

ROUNDS = 8
"""Maximum number of passes over all segments; few searches need more than two."""
TIMES = {"split": "one kernel takes {old:.2f} us, separate kernels {new:.2f} us"}
"""How the times of a move are reported, if not as the default `rather than`."""
MAX_TIED = 16
"""Number of groups up to which results around one are cached for others of the same structure."""

Moves = Mapping[Piece, frozenset[Node]]
Change = Callable[[], Iterable[Piece]]
"""Makes a change, and returns the pieces that it affects directly."""


def refine(
    merges: Merges,
    splitter: Splitter,
    new: Group | None = None,
    *,
    rematerialise: bool = True,
    keep_schedulers: bool = False,
) -> None:
    """Let segments recompute values instead of reading them, or split them, while that saves time.

    Segments that change may merge afterwards. new: only segments adjacent to these nodes are tried;
    the others are known to be final. keep_schedulers: reject a move that changes the scheduler of a
    segment.
    """
    work = _Refinement(merges, splitter, rematerialise, new, keep_schedulers=keep_schedulers)
    for _ in range(ROUNDS):
        work.moved.clear()
        work.run()
        # Ranks do not order segments before those that write into their inputs.
        if not work.moved or merges.groups.graph.fusion.effects.writers:
            return
        merged = merges.run([p for p in work.moved if p in merges.groups.pieces])
        if not merged:
            return
        work.look_again(merged)


class _Refinement:
    def __init__(
        self,
        merges: Merges,
        splitter: Splitter,
        rematerialise: bool,
        new: Group | None,
        *,
        keep_schedulers: bool,
    ) -> None:
        self.merges = merges
        self.groups = merges.groups
        self.splitter = splitter
        self.rematerialise = rematerialise
        self.new = new
        self.keep_schedulers = keep_schedulers
        self.failed: set[object] = set()
        self.known: dict[int, float] = {}
        self.moved: dict[Piece, None] = {}
        self.shifted: set[Piece] = set()
        """Pieces for which no shift was kept since they or a neighbour changed."""

    def run(self) -> None:
        """Try moves until none is kept."""
        for piece in self.groups:
            self.merges.of_piece(piece)  # moves compare with the cached offers of what they change
        for _ in range(ROUNDS):
            if not (self.rematerialise and self.recompute()) and not self.split():
                return

    def recompute(self) -> bool:
        """Try once for every segment to recompute what it should; return whether any changed."""
        moved = [self.recompute_alone(piece) for piece in self.concerned()]
        moved += [self.recompute_jointly(value) for value in self.shared()]
        moved += [self.shift_into_sources(piece) for piece in self.concerned()]
        return any(moved)

    def concerned(self) -> list[Piece]:
        """Return the segments to try: all, or those with new nodes and their neighbours."""
        if self.new is None:
            return list(self.groups)
        own = [p for p in self.groups if not self.new.isdisjoint(p.owned)]
        return sorted({p for o in own for p in (o, *o.before, *o.after)})

    def split(self) -> bool:
        """Try once to split every segment that might be faster so; return whether any changed."""
        offers = {p: self.merges.of_piece(p) for p in self.concerned() if not p.fixed}
        seconds = {p: o.seconds for p, o in offers.items() if o.estimate and o.estimate.kernels}
        goals = self.splitter.goals(seconds, {p: self.least(p) for p in seconds})
        moved = [self.split_piece(piece, goal) for piece, goal in goals.items()]
        return any(moved)

    def least(self, piece: Piece) -> float:
        """Return a lower bound on the seconds of a split piece, cached for all pieces like it."""
        number = self.merges.structures.together(frozenset({piece}))
        if number not in self.known:
            self.known[number] = self.splitter.least(self.merges.segment_like(piece))
        return self.known[number]

    def split_piece(self, piece: Piece, goal: float) -> bool:
        """Try to replace a segment by faster fragments; return whether it was replaced."""
        if piece not in self.groups.pieces or len(piece.owned) < 2:
            return False
        offer = self.merges.of_piece(piece)
        key = ("split", self.merges.structures.together(frozenset({piece})), goal)
        if key in self.failed:
            return False
        least = self.merges.offers.least_in_parts(offer, self.merges.segment_like(piece))
        fragments = [] if least >= goal else self.splitter.fragments(self.groups, piece, goal)
        names, pieces = [v.name for v in piece.made], list[Piece]()

        def split() -> Iterable[Piece]:
            touched = self.groups.split(piece, fragments)
            pieces.extend(touched[: len(fragments)])
            return touched

        def rejoin() -> Iterable[Piece]:
            return self.groups.rejoin(pieces, piece)

        if fragments and self.judge("split", names, split, rejoin, {piece: offer}):
            self.groups.rank()
            return True
        self.failed.add(key)
        return False

    def recompute_alone(self, piece: Piece) -> bool:
        """Try to recompute values in one segment; return whether the change was kept."""
        seen = self.before(piece)
        if seen is None:
            return False
        key = self.key([seen])
        if key in self.failed:
            return False
        nodes = cheapest(seen, {}, seen.leaves)
        moves = {piece: nodes}
        if nodes == piece.again:
            moved = False
        else:
            moved = self.attempt(moves)
            for part in () if moved else self.parts(seen, nodes):
                moved |= self.attempt({piece: piece.again | part})
        if not moved and key is not None:
            self.failed.add(key)
        return moved

    def parts(self, seen: Before, nodes: frozenset[Node]) -> list[frozenset[Node]]:
        """Return the nodes of a cut that single values need, the largest value first."""
        fusion = self.groups.graph.fusion
        values = [v for v in seen.leaves if fusion.producer.get(v) in nodes]
        values.sort(key=lambda v: -tensor_bytes(v, fusion.hints))
        return [cone(fusion, nodes, v) for v in values] if len(values) > 1 else []

    def shared(self) -> list[Value]:
        """Return the values that several segments read and could recompute."""
        producer, final = self.groups.graph.fusion.producer, self.groups.graph.final
        position, concerned = self.groups.graph.position, frozenset(self.concerned())
        found = [
            v
            for v, readers in self.groups.readers.items()
            if 1 < len(readers) <= MANY and v in producer and v not in final
            and may_repeat(producer[v])
            and (self.new is None or not concerned.isdisjoint(readers))
        ]  # fmt: skip
        return sorted(found, key=lambda v: position[producer[v]])

    def recompute_jointly(self, value: Value) -> bool:
        """Try to avoid writing a value by letting all of its readers recompute it."""
        readers = sorted(self.groups.readers.get(value, ()))
        if len(readers) < 2:
            return False
        all_seen = [s for s in map(self.before, readers) if s is not None]
        key = self.key(all_seen, value)
        if len(all_seen) < len(readers) or key in self.failed:
            return False
        read = {v for s in all_seen for v in s.leaves}
        sharers: Sharers = {v: len(self.groups.readers.get(v, ())) for v in read}
        moves: dict[Piece, frozenset[Node]] = {}
        fusion = self.groups.graph.fusion
        for seen in all_seen:
            nodes = cone(fusion, cheapest(seen, sharers, {value}), value)
            moves[seen.piece] = seen.piece.again | nodes
        wanted = all(nodes for nodes in moves.values())
        moved = wanted and self.attempt(moves)
        if not moved and key is not None:
            self.failed.add(key)
        return moved

    def shift_into_sources(self, piece: Piece) -> bool:
        """Try to move the first nodes of this segment into the segments that it reads from."""
        if piece.fixed or piece not in self.groups.pieces or piece in self.shifted:
            return False
        self.shifted.add(piece)
        moved = [
            self.shift(source, piece)
            for source in self.groups.sources(piece)
            if not source.fixed and source.host == piece.host and source.alive
        ]
        return any(moved)

    def shift(self, source: Piece, piece: Piece) -> bool:
        """Try to move the first nodes of a segment into one that it reads from."""
        for nodes, value in beginnings(self.groups, source, piece):
            if piece not in self.groups.pieces:
                return False
            hand_on = partial(self.groups.hand_on, nodes, piece, source)
            hand_back = partial(self.groups.hand_on, nodes, source, piece)
            if self.judge("shift", [value.name], hand_on, hand_back):
                return True
        return False

    def before(self, piece: Piece) -> Before | None:
        """Return the nodes before a segment, if it could recompute any of them."""
        views = piece.fixed and not piece.pinned
        if views or piece not in self.groups.pieces:
            return None
        seen = before(self.groups, piece)
        return seen if seen.could_repeat() else None

    def key(self, all_seen: Iterable[Before], value: Value | None = None) -> object:
        """Return a key that is equal wherever the search would find the same."""
        seen = list(all_seen)
        tied = frozenset(p for s in seen for p in (s.piece, *s.owners) if p in self.groups.pieces)
        if not tied or len(tied) > MAX_TIED:
            return None
        place = sorted(tied)
        maker = None if value is None else self.groups.maker(value)
        which = None if maker is None or value is None else maker.made.index(value)
        mine = tuple(place.index(s.piece) for s in seen)
        return self.merges.structures.together(tied), mine, which

    # -- moves

    def attempt(self, moves: Moves) -> bool:
        """Apply some moves, call the schedulers, and undo the moves unless they save time."""
        old = {piece: piece.again for piece in moves}
        if all(old[p] == again for p, again in moves.items()):
            return False
        values = sorted({v.name for p, again in moves.items() for v in self.spared(p, again)})

        def become(again: Moves) -> Iterable[Piece]:
            for piece, nodes in again.items():
                piece.again = nodes
            return again

        fewer = any(old[piece] - again for piece, again in moves.items())
        return self.judge(
            "rematerialise", values, lambda: become(moves), lambda: become(old), closes=fewer
        )

    def judge(
        self,
        action: str,
        values: Iterable[str],
        move: Change,
        undo: Change,
        known: Mapping[Piece, Offer] | None = None,
        *,
        closes: bool = False,
    ) -> bool:
        """Make a change, call the schedulers, and undo it unless it saves time.

        known: offers of the pieces that leave the groups; closes: whether it may close a cycle.
        """
        names = tuple(values)
        offers = dict(known or {})
        changed = self.merges.settle(move(), offers)
        now = {p: self.merges.of_piece(p) for p in changed if p in self.groups.pieces}
        because = self.objection(offers, now, closes=closes or known is not None)
        if because is not None:
            for piece in self.merges.settle(undo()):
                if piece in self.groups.pieces and piece in offers:
                    self.merges.remember(piece, offers[piece])
            if names and _bytes(now) < _bytes(offers):
                self.merges.decisions.append(Decision("undo", names, because))
            return False
        saved, old, new = _bytes(offers) - _bytes(now), _seconds(offers), _seconds(now)
        times = TIMES.get(action, "{new:.2f} us rather than {old:.2f} us")
        because = f"{times.format(old=old * 1e6, new=new * 1e6)}; {_moved(saved)}"
        self.merges.decisions.append(Decision(action, names, because))
        self.moved |= dict.fromkeys(now)
        self.look_again(now)
        return True

    def look_again(self, changed: Iterable[Piece]) -> None:
        """Allow shifts of changed pieces and their neighbours to be tried again."""
        for piece in changed:
            self.shifted.difference_update((piece, *piece.before, *piece.after))

    def spared(self, piece: Piece, again: frozenset[Node]) -> list[Value]:
        """Return the values that a segment would no longer read."""
        producer = self.groups.graph.fusion.producer
        return [v for v in piece.leaves if v in producer and producer[v] in again]

    def objection(
        self, old: Mapping[Piece, Offer], new: Mapping[Piece, Offer], *, closes: bool
    ) -> str | None:
        """Return why a move is rejected, or None; closes: whether it may close a cycle."""
        for piece in old:
            if piece not in new and piece.fixed:
                return "a pinned segment would become empty"
        for piece, offer in sorted(new.items()):
            alone = frozenset({piece})
            if not offer.accepted:
                return self.merges.named_offer(alone).reasons()
            if self.groups.crosses_boundary(alone):
                return "segment_set forces a boundary"
            before = old[piece].scheduler if piece in old else offer.scheduler
            if self.keep_schedulers and before != offer.scheduler:
                return f"the scheduler would change from {before} to {offer.scheduler}"
        # Recomputed nodes come from earlier segments, so only a reader of an overwritten input can
        # close a cycle. Nodes that are no longer recomputed, or only by a part, may come from any
        # segment.
        if (closes or self.groups.graph.fusion.effects.writers) and self.groups.order() is None:
            return "segments would depend on each other"
        slower = _seconds(new) - _seconds(old)
        fewer = _bytes(new) < _bytes(old)
        if slower > MARGIN:
            return f"{'saves bytes, but ' if fewer else ''}takes {slower * 1e6:.2f} us longer"
        if slower >= -MARGIN and not fewer:
            return "saves neither time nor bytes"
        return None


def _moved(saved: int) -> str:
    return f"moves {abs(saved):,} bytes {'less' if saved >= 0 else 'more'}"


def _bytes(offers: Mapping[Piece, Offer]) -> int:
    estimates = (o.estimate for o in offers.values())
    return sum(e.bytes + e.workspace_bytes for e in estimates if e is not None)


def _seconds(offers: Mapping[Piece, Offer]) -> float:
    return sum(o.seconds for _, o in sorted(offers.items()))


def rematerialised(groups: Groups, order: list[Piece]) -> tuple[Rematerialised, ...]:
    """Return the values that segments compute again instead of reading them, with the bytes."""
    graph = groups.graph
    fusion, hints = graph.fusion, graph.fusion.hints
    found: dict[Value, list[int]] = {}
    saved: dict[Value, int] = {}
    for number, piece in enumerate(order):
        if not piece.again:
            continue
        _, leaves = graph.expanded(piece.nodes)
        read = set(leaves)
        values = [v for v in leaves if fusion.producer.get(v) in piece.again]
        for value in sorted(values, key=lambda v: graph.position[fusion.producer[v]]):
            found.setdefault(value, []).append(number)
            needed = cone(fusion, {*piece.again, *graph.copied}, value)
            more = {v for n in needed for v in n.inputs if v in piece.leaves} - read
            read |= more
            kept = value in graph.final or value in groups.readers
            saved.setdefault(value, 0 if kept else tensor_bytes(value, hints))
            saved[value] += tensor_bytes(value, hints) - leaf_bytes(groups, more)
    return tuple(
        Rematerialised(value, tuple(numbers), saved[value], _because(value, saved[value], groups))
        for value, numbers in found.items()
    )


def _because(value: Value, saved: int, groups: Groups) -> str:
    stored = value in groups.graph.final or value in groups.readers
    spared = "its read" if stored else "its write and reads"
    return f"{spared} would move {saved:,} bytes more than reading its operands instead"
