"""Find the copied nodes that keep a segment from being accepted: those of one operand, or all."""

from __future__ import annotations

from collections.abc import Collection

from fusec.ir.graph import Node, Value
from fusec.segment.merge import Merges, surroundings
from fusec.segment.piece import Piece
from fusec.segment.segmented import extract, tensor_bytes


def blocking_copies(merges: Merges, piece: Piece) -> frozenset[Node]:
    """Return the copies to remove so that a scheduler accepts a piece, or all copies in it.

    If it suffices to read one operand from memory, the reader still computes the others: a GEMM
    that cannot compute its activations still reads its weights through a permutation. If several
    operands qualify, the smallest is chosen.
    """
    graph = merges.groups.graph
    copies = {n for n in piece.members - piece.nodes if not all(v.is_scalar for v in n.outputs)}
    producer, hints = graph.fusion.producer, graph.fusion.hints
    read = dict.fromkeys(v for n in piece.nodes for v in n.inputs if producer.get(v) in copies)
    for value in sorted(read, key=lambda v: (tensor_bytes(v, hints), graph.position[producer[v]])):
        if len(read) > 1 and _is_accepted_reading(merges, piece, copies, value):
            return frozenset(_made_of(merges, copies, [value]))
    return frozenset(copies)


def _is_accepted_reading(
    merges: Merges, piece: Piece, copies: Collection[Node], value: Value
) -> bool:
    """Return whether some scheduler accepts a piece that reads one of its copies from memory."""
    graph = merges.groups.graph
    others = [v for n in piece.nodes for v in n.inputs if v is not value]
    kept = _made_of(merges, copies, others, value)
    scalars = {n for n in piece.members if n not in copies}
    nodes = piece.nodes | kept | scalars
    chosen = frozenset({piece})
    results = frozenset(merges.groups.results(chosen))
    segment = extract(graph.fusion, nodes, graph.fusion.name, results)
    return merges.offers.of(segment, surroundings(merges.groups, chosen)).accepted


def _made_of(
    merges: Merges,
    copies: Collection[Node],
    values: Collection[Value],
    without: Value | None = None,
) -> set[Node]:
    """Return the copies from which values are computed, stopping at `without`."""
    producer = merges.groups.graph.fusion.producer
    found, left = set[Node](), list(values)
    while left:
        value = left.pop()
        node = producer.get(value)
        if value is not without and node is not None and node in copies and node not in found:
            found.add(node)
            left += node.inputs
    return found
