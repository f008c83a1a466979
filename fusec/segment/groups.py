"""Groups of nodes that are merged step by step, with the DAG between them kept as they change.

Every group has a rank, and no edge leads to a smaller one (`ranks`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush

from fusec.ir.graph import Fusion, Node, Value
from fusec.segment.graph import Graph, Group
from fusec.segment.piece import Chosen, Fragment, Piece
from fusec.segment.ranks import MAX_BETWEEN, closure, make_room
from fusec.segment.segmented import extract

MOST_FUSIONS = 64
"""Number of the most recently built fusions of pieces that are kept."""


class Groups:
    """The groups of a graph, merged in place."""

    def __init__(
        self, graph: Graph, groups: Iterable[Group], fixed: Collection[Group] = ()
    ) -> None:
        """Take disjoint groups that cover all owned nodes; `fixed` ones are never merged."""
        self.graph = graph
        self.pieces: dict[Piece, None] = {}
        self.readers: dict[Value, dict[Piece, None]] = {}
        self._holder: dict[Node, Piece] = {}
        self._fusions: dict[Hashable, Fusion] = {}
        found: list[Piece] = []
        for group in groups:
            piece = Piece(set(group), *graph.expanded(group))
            piece.first = graph.first(group)
            piece.fixed = group in fixed
            found.append(piece)
        for piece in sorted(found):
            self._enter(piece)
        for piece in self.pieces:
            self._connect(piece)
        self.cyclic = self.order() is None
        self.rank()

    def _enter(self, piece: Piece) -> None:
        self.pieces[piece] = None
        for node in piece.nodes:
            self._holder[node] = piece
        for value in piece.leaves:
            self.readers.setdefault(value, {})[piece] = None

    def _connect(self, piece: Piece) -> None:
        """Add the edges into a piece, and list its results that others read."""
        for value in piece.leaves:
            maker = self.maker(value)
            if maker is not None and maker is not piece:
                piece.before[maker] = None
                maker.after[piece] = None
        for reader in self.readers_before(piece):
            piece.before[reader] = None
            reader.after[piece] = None
        final, readers = self.graph.final, self.readers
        piece.made = [
            value
            for node in sorted(piece.nodes, key=self.graph.position.__getitem__)
            for value in node.outputs
            if value in final or value in readers
        ]

    def owner(self, node: Node) -> Piece:
        """Return the piece that owns a node."""
        piece = self._holder[node]
        while piece.into is not None:
            if piece.into.into is not None:
                piece.into = piece.into.into
            piece = piece.into
        self._holder[node] = piece
        return piece

    def is_owned(self, node: Node) -> bool:
        """Return whether a node belongs to some piece; copies do only if they are outputs."""
        return node in self._holder

    def maker(self, value: Value) -> Piece | None:
        """Return the piece that computes a value; None for an input."""
        node = self.graph.fusion.producer.get(value)
        return None if node is None else self.owner(node)

    def sources(self, piece: Piece) -> list[Piece]:
        """Return the pieces whose values `piece` reads, in order."""
        found = (self.maker(v) for v in piece.leaves)
        return sorted({p: None for p in found if p is not None and p is not piece})

    def consumers(self, piece: Piece) -> list[Piece]:
        """Return the pieces that read results of `piece`, in order."""
        readers = (r for v in piece.made for r in self.readers.get(v, ()))
        return sorted({r: None for r in readers if r is not piece})

    def readers_before(self, piece: Piece) -> list[Piece]:
        """Return the pieces that read an input that `piece` writes: they must run first."""
        writers = self.graph.fusion.effects.writers
        written = dict.fromkeys(v for node, v in writers.items() if node in piece.nodes)
        readers = (r for v in written for r in self.readers.get(v, ()))
        return [r for r in readers if r is not piece]

    def writers_of(self, values: Iterable[Value]) -> list[Piece]:
        """Return the pieces that write into some of the given inputs."""
        writers, among = self.graph.fusion.effects.writers, set(values)
        found = dict.fromkeys(self.owner(n) for n, value in writers.items() if value in among)
        return [p for p in found if p in self.pieces]

    # -- order

    def order(self) -> list[Piece] | None:
        """Return the pieces in execution order, ties in canonical order; None for a cycle."""
        waiting = {p: len(p.before) for p in self.pieces}
        ready = [p for p, count in waiting.items() if not count]
        heapify(ready)
        done: list[Piece] = []
        while ready:
            piece = heappop(ready)
            done.append(piece)
            for later in piece.after:
                waiting[later] -= 1
                if not waiting[later]:
                    heappush(ready, later)
        return done if len(done) == len(self.pieces) else None

    def closure(self, chosen: Iterable[Piece], limit: int = MAX_BETWEEN) -> Chosen | None:
        """Return the pieces and all others on paths between them, which a merge must include.

        None if more than `limit` pieces would have to be visited.
        """
        return closure(frozenset(chosen), limit)

    def cycles(self, piece: Piece) -> Chosen:
        """Return a piece and all others on paths from it back to it, which it must include."""
        return _reached(piece, forward=True) & _reached(piece, forward=False)

    def merge(self, chosen: Chosen) -> Piece:
        """Merge a closed set of pieces into one; the merged pieces die."""
        make_room(chosen)
        parts = sorted(chosen)
        piece = _largest(parts)
        merged = Piece(piece.nodes, piece.members, piece.leaves)
        merged.first, merged.host, merged.rank = parts[0].first, parts[0].host, piece.rank
        merged.sets = any(p.sets for p in parts)
        for part in parts:
            part.alive, part.into = False, merged
            del self.pieces[part]
            if part is not piece:
                merged.nodes |= part.nodes
                merged.members |= part.members
                merged.leaves.update(part.leaves)
        self.pieces[merged] = None
        for part in parts:
            self._hand_over(part, merged, chosen)
        merged.made = self.results(chosen)
        for value in (v for p in parts for v in p.made):
            merged.leaves.pop(value, None)
            self._reread(value, parts, None)
        for part in parts:
            for value in part.leaves:
                self._reread(value, (part,), merged)
        return merged

    def _hand_over(self, part: Piece, merged: Piece, chosen: Chosen) -> None:
        for other in part.before:
            other.after.pop(part, None)
            if other not in chosen and other is not merged:
                other.after[merged] = None
                merged.before[other] = None
        for other in part.after:
            other.before.pop(part, None)
            if other not in chosen and other is not merged:
                other.before[merged] = None
                merged.after[other] = None

    def _reread(self, value: Value, parts: Iterable[Piece], merged: Piece | None) -> None:
        """Make `merged` a reader of a value instead of some pieces."""
        readers = self.readers.get(value)
        if readers is None:
            return
        for part in parts:
            readers.pop(part, None)
        if merged is not None and value in merged.leaves:
            readers[merged] = None
        elif not readers:
            del self.readers[value]

    def refresh(self, piece: Piece) -> list[Value]:
        """Recompute the results, members and leaves of a piece after its readers changed.

        Return the values that it started or stopped reading. A piece without any needed result is
        removed from the groups, and returns when one of its results is needed again.
        """
        graph, producer = self.graph, self.graph.fusion.producer
        place = graph.position.__getitem__
        piece.made = [
            value
            for node in sorted(piece.owned, key=place)
            for value in node.outputs
            if value in graph.final or any(r is not piece for r in self.readers.get(value, ()))
        ]
        stack = sorted({producer[v] for v in piece.made}, key=place, reverse=True)
        old, piece.leaves, piece.members = piece.leaves, dict[Value, None](), set(stack)
        while stack:
            for value in stack.pop().inputs:
                node = producer.get(value)
                inner = node in piece.owned or node in graph.copied or node in piece.again
                if node is None or not inner:
                    piece.leaves[value] = None
                elif node not in piece.members:
                    piece.members.add(node)
                    stack.append(node)
        piece.nodes = piece.members & piece.owned
        for value in old:
            self._reread(value, (piece,), piece)
        for value in piece.leaves:
            self.readers.setdefault(value, {})[piece] = None
        for each in (piece, *self.writers_of((*old, *piece.leaves))):
            self._reorder(each)
        if piece.made:
            self.pieces[piece] = None
        else:
            self.pieces.pop(piece, None)
        return [v for v in (*old, *piece.leaves) if (v in old) != (v in piece.leaves)]

    def _reorder(self, piece: Piece) -> None:
        """Recompute the pieces that must run before a piece."""
        for other in piece.before:
            other.after.pop(piece, None)
        piece.before = {}
        for other in (*self.sources(piece), *self.readers_before(piece)):
            piece.before[other] = None
            other.after[piece] = None

    def hand_on(self, nodes: frozenset[Node], source: Piece, target: Piece) -> list[Piece]:
        """Move nodes from one piece to another; return the pieces to refresh, these two first."""
        readers = [r for n in nodes for v in n.outputs for r in self.readers.get(v, ())]
        source.owned = source.owned - nodes
        target.owned = target.owned | nodes
        for node in nodes:
            self._holder[node] = target
        return list(dict.fromkeys((target, source, *readers)))

    def split(self, piece: Piece, fragments: Iterable[Fragment]) -> list[Piece]:
        """Replace a piece by fragments; return the pieces to refresh, the fragments first."""
        later = list(piece.after)
        self._leave(piece)
        found: list[Piece] = []
        for fragment in fragments:
            new = Piece(set(fragment.owned), set(fragment.owned), {})
            first = self.graph.first(fragment.owned)
            new.again, new.first, new.host = fragment.again, first, piece.host
            self._hold(new)
            found.append(new)
        return [*found, *later]

    def rejoin(self, parts: Iterable[Piece], piece: Piece) -> list[Piece]:
        """Undo the split of a piece; return the pieces to refresh, this one first."""
        later = dict[Piece, None]()
        for part in parts:
            later.update(part.after)
            self._leave(part)
        self._hold(piece)
        return [piece, *(p for p in later if p in self.pieces)]

    def _leave(self, piece: Piece) -> None:
        """Remove a piece and its edges from the groups."""
        for value in piece.leaves:
            self._reread(value, (piece,), None)
        for other in piece.before:
            other.after.pop(piece, None)
        for other in piece.after:
            other.before.pop(piece, None)
        piece.before, piece.after = {}, {}
        self.pieces.pop(piece, None)

    def _hold(self, piece: Piece) -> None:
        """Make a piece the owner of its nodes; its leaves and results are computed later."""
        self.pieces[piece] = None
        for node in piece.owned:
            self._holder[node] = piece

    def rank(self) -> None:
        """Rank all pieces again, after pieces without a rank were added."""
        for rank, piece in enumerate(self.order() or ()):
            piece.rank = rank

    # -- unions of pieces

    def is_result(self, value: Value, chosen: Collection[Piece]) -> bool:
        """Return whether a result of the pieces is an output or is read by other pieces."""
        return value in self.graph.final or self.is_read(value, chosen)

    def is_read(self, value: Value, chosen: Collection[Piece]) -> bool:
        """Return whether other pieces than the given ones read a value."""
        return any(r not in chosen for r in self.readers.get(value, ()))

    def results(self, chosen: Collection[Piece]) -> list[Value]:
        """Return the values that the pieces together produce for others."""
        place, producer = self.graph.position, self.graph.fusion.producer
        found = [v for p in chosen for v in p.made if self.is_result(v, chosen)]
        return sorted(found, key=lambda v: (place[producer[v]], producer[v].outputs.index(v)))

    def crossing(self, chosen: Collection[Piece]) -> frozenset[Value]:
        """Return the values of the pieces that others read."""
        return frozenset(v for p in chosen for v in p.made if self.is_read(v, chosen))

    def members(self, chosen: Iterable[Piece]) -> list[Node]:
        """Return the nodes of the pieces with the copies that they compute, in order."""
        nodes = set[Node]().union(*(p.members for p in chosen))
        return sorted(nodes, key=self.graph.position.__getitem__)

    def fusion_of(self, chosen: Collection[Piece], name: str) -> Fusion:
        """Return the pieces as one fusion, the same object as before for recently used nodes.

        Schedulers need not repeat their analysis of it.
        """
        nodes, results = self.members(chosen), frozenset(self.results(chosen))
        key = name, results, *nodes
        known = self._fusions.get(key)
        if known is None:
            known = self._fusions[key] = extract(self.graph.fusion, nodes, name, results)
            if len(self._fusions) > MOST_FUSIONS:
                del self._fusions[next(iter(self._fusions))]
        return known

    def crosses_boundary(self, chosen: Collection[Piece]) -> bool:
        """Return whether the pieces contain both a `segment_set` and a user of it."""
        if not any(p.sets for p in chosen):
            return False
        members = set[Node]().union(*(p.members for p in chosen))
        users = self.graph.fusion.users
        return any(
            user in members
            for node in members
            if node.op.ends_segment
            for user in users.get(node.output, ())
        )

    def depths(self, breaks: Collection[Piece]) -> dict[Piece, int]:
        """Return, for each piece, the number of `breaks` before it on a longest path.

        A `segment_set` also counts as a break, and so does an alias edge: a writer is deeper than
        every reader.
        """
        producer, depth = self.graph.fusion.producer, dict[Piece, int]()
        for piece in self.order() or ():
            deepest = 0
            for value in piece.leaves:
                source = self.maker(value)
                if source is not None:
                    ends = source in breaks or producer[value].op.ends_segment
                    deepest = max(deepest, depth[source] + ends)
            late = (depth[p] + 1 for p in self.readers_before(piece))
            depth[piece] = max([deepest, *late])
        return depth

    def __iter__(self) -> Iterator[Piece]:
        """Yield the pieces, ordered by their first nodes."""
        return iter(sorted(self.pieces))


def _largest(parts: list[Piece]) -> Piece:
    """Return the piece into whose sets the others are put, in time of the others."""
    return max(parts, key=lambda p: len(p.members) + len(p.leaves))


def _reached(piece: Piece, *, forward: bool) -> Chosen:
    """Return a piece with all pieces after (or before) it, in groups with cycles."""
    seen, left = {piece}, [piece]
    while left:
        current = left.pop()
        new = [p for p in (current.after if forward else current.before) if p not in seen]
        seen.update(new)
        left += new
    return frozenset(seen)
