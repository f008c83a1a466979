"""The beginning of a segment's work that the segment before it could do instead.

What crosses may be smaller after a few more operations: a product's result that is cast, sliced or
added up first. The beginnings that are offered end in one value, the smallest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusec.ir.graph import Node, Value
from fusec.segment.cheap import is_tissue
from fusec.segment.groups import Groups
from fusec.segment.piece import Piece
from fusec.segment.segmented import tensor_bytes

MOST = 6
"""Beginnings that are tried for a pair of segments."""
REACH = 64
"""Nodes of a segment that are looked at."""


def beginnings(
    groups: Groups, source: Piece, piece: Piece
) -> Iterator[tuple[frozenset[Node], Value]]:
    """Yield sets of a piece's first nodes that its source could compute, with what they end in.

    They need nothing but what the source makes, what it could read without waiting for others, and
    each other; each ends in a value that is smaller than what crosses for it now.
    """
    fusion = groups.graph.fusion
    hints, place = fusion.hints, groups.graph.position
    crossing = {v for v in source.made if piece in groups.readers.get(v, ())}
    if not crossing:
        return
    own = sorted(piece.nodes, key=place.__getitem__)[:REACH]
    depends: dict[Value, frozenset[Node]] = {}
    roots: dict[Value, frozenset[Value]] = {}
    for node in own:
        if node in groups.graph.copied or not is_tissue(node) or node.op.name == "segment_set":
            continue
        found = _needs(groups, source, piece, node, depends)
        if found is None:
            continue
        used = {v for n in found for v in n.inputs if v in crossing}
        if used:
            for value in node.outputs:
                depends[value], roots[value] = found, frozenset(used)
        else:
            for value in node.outputs:
                depends[value] = found
    ends = [v for v in roots if _bytes(v, hints) < sum(_bytes(r, hints) for r in roots[v])]
    ends.sort(key=lambda v: (_bytes(v, hints), -place[fusion.producer[v]]))
    for value in ends[:MOST]:
        if depends[value] < frozenset(piece.nodes):
            yield depends[value], value


def _needs(
    groups: Groups, source: Piece, piece: Piece, node: Node, known: dict[Value, frozenset[Node]]
) -> frozenset[Node] | None:
    """Return the nodes of the piece that a node needs, itself among them; None if it must wait."""
    needed = {node}
    stack = list(node.inputs)
    while stack:
        value = stack.pop()
        maker = groups.graph.fusion.producer.get(value)
        if maker is None:
            continue
        if value in known:
            needed |= known[value]
        elif maker in piece.nodes:
            return None
        elif maker in groups.graph.copied and not groups.is_owned(maker):
            stack.extend(maker.inputs)
        elif maker in piece.again:
            return None
        else:
            owner = groups.owner(maker)
            if owner is not source and owner.rank >= source.rank:
                return None
    return frozenset(needed)


def _bytes(value: Value, sizes: Mapping[str, int]) -> int:
    return tensor_bytes(value, sizes)
