"""First nodes of a segment that the preceding segment could compute instead.

The crossing value may be smaller after a few more operations: a GEMM's result that is cast, sliced
or reduced first. The candidates are the nodes that one value needs; those with the least crossing
traffic come first.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusec.ir.graph import Node, Value
from fusec.segment.cheap import is_injective
from fusec.segment.groups import Groups
from fusec.segment.piece import Piece
from fusec.segment.segmented import tensor_bytes

MOST = 6
"""Maximum number of candidates that are tried for a pair of segments."""
REACH = 64
"""Maximum number of nodes of a segment that are considered."""


def beginnings(
    groups: Groups, source: Piece, piece: Piece
) -> Iterator[tuple[frozenset[Node], Value]]:
    """Yield sets of a piece's first nodes that its source could compute, with their last value.

    They only need results of the source, values that it could read without waiting for others, and
    each other; writing and reading their results for the rest of the piece moves fewer bytes than
    the current crossing values.
    """
    fusion, place = groups.graph.fusion, groups.graph.position
    crossing = {v for v in source.made if piece in groups.readers.get(v, ())}
    if not crossing:
        return
    own = sorted(piece.nodes, key=place.__getitem__)[:REACH]
    depends: dict[Value, frozenset[Node]] = {}
    roots: dict[Value, frozenset[Value]] = {}
    for node in own:
        if node in groups.graph.copied or not is_injective(node) or node.op.ends_segment:
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
    ends: list[tuple[int, int, Value]] = []
    for value, used in roots.items():
        left = _left(groups, piece, depends[value])
        if left < sum(_crossing_bytes(groups, r) for r in used):
            ends.append((left, -place[fusion.producer[value]], value))
    for _, _, value in sorted(ends, key=lambda e: e[:2])[:MOST]:
        if depends[value] < frozenset(piece.nodes):
            yield depends[value], value


def _left(groups: Groups, piece: Piece, nodes: frozenset[Node]) -> int:
    """Return the bytes moved for results of nodes of a piece that the rest, or others, read."""
    fusion, copied = groups.graph.fusion, groups.graph.copied
    total = 0
    for value in (v for n in nodes for v in n.outputs):
        stack, crosses = list(fusion.users.get(value, ())), False
        while stack and not crosses:
            user = stack.pop()
            if user in copied and not groups.is_owned(user):
                stack.extend(u for v in user.outputs for u in fusion.users.get(v, ()))
            else:
                crosses = user not in nodes
        total += _crossing_bytes(groups, value) if crosses else 0
    return total


def _crossing_bytes(groups: Groups, value: Value) -> int:
    """Return the bytes of reading a value in another segment, and of writing it only for that."""
    stored = value in groups.graph.final
    return (1 if stored else 2) * tensor_bytes(value, groups.graph.fusion.hints)


def _needs(
    groups: Groups, source: Piece, piece: Piece, node: Node, known: dict[Value, frozenset[Node]]
) -> frozenset[Node] | None:
    """Return the nodes of the piece that a node needs, itself included; None if it must wait."""
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
