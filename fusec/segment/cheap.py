"""Nodes that each reading segment recomputes, so that their results never cross segments.

Scalars always are. A tensor is if a chain of casts, movements and arithmetic with scalars computes
it from a single tensor that is in memory anyway, and reading that tensor moves no more bytes. So an
upcast or a broadcast never crosses. Longer chains trade arithmetic for bytes; that is
rematerialisation, decided between accepted segments. Operands and results of collectives always
cross.
"""

from __future__ import annotations

from collections.abc import Collection

from fusec.ir.graph import Fusion, Input, Node, Value
from fusec.ops.communication import stands_alone
from fusec.segment.traffic import elements

MAX_FLOPS = 2
"""Operations per element up to which a pointwise node is cheaper to repeat than to read."""
FLAT = frozenset({"pointwise", "movement", "factory", "scalar", "indexing", "random"})
"""Families of operations that compute each element independently."""


def find_copied(fusion: Fusion, kept: Collection[Value] = ()) -> frozenset[Node]:
    """Return the nodes to recompute in each segment that reads them; `kept` values always cross."""
    apart = [n for n in fusion.nodes if stands_alone(n)]
    crossing = {v for n in apart for v in (*n.inputs, *n.outputs)}
    stored = {i.value for i in fusion.inputs} | {o.value for o in fusion.outputs} | crossing
    moving: set[Value] = set()
    cost: dict[Value, int] = {}
    copied: set[Node] = set()
    for node in fusion.nodes:
        if all(v.is_scalar for v in node.outputs):
            copied.add(node)
            continue
        if any(v in kept or v in crossing for v in node.outputs) or not _repeatable(node):
            continue
        source = next((v for v in node.inputs if not v.is_scalar), None)
        if not fusion.effects.may_repeat(node, moving):
            moving |= set(node.outputs)
            continue
        own = elements(node.output, fusion.hints) * node.output.dtype.size
        reading = 0 if source is None else _reading(fusion, source, node, cost)
        lies_in_memory = source is None or source in stored or source in cost
        if reading <= own if lies_in_memory else reading < own:
            copied.add(node)
            cost[node.output] = reading
    return frozenset(copied)


def is_injective(node: Node) -> bool:
    """Return whether a node yields a value per point of any iteration domain, by an index map."""
    return node.op.family in FLAT


def _repeatable(node: Node) -> bool:
    if len(node.outputs) > 1 or sum(not v.is_scalar for v in set(node.inputs)) > 1:
        return False
    cheap = node.op.cost.sfu == 0 and node.op.cost.flops <= MAX_FLOPS
    if node.op.family == "pointwise":
        return cheap
    access = node.op.access
    return node.op.family == "factory" or (access is not None and access.repeatable)


def _reading(fusion: Fusion, source: Value, node: Node, cost: dict[Value, int]) -> int:
    """Return the bytes to read for the operand of `node`; a slice reads less than all of it."""
    whole = cost.get(source)
    if whole is None:
        entry = fusion.input_of.get(source)
        whole = elements(source, fusion.hints) * source.dtype.size
        if entry is not None:
            whole = distinct_bytes(fusion, entry)
    if node.op.access is not None and node.op.access.window is not None:
        total = elements(source, fusion.hints)
        return whole * elements(node.output, fusion.hints) // max(1, total)
    return whole


def distinct_bytes(fusion: Fusion, entry: Input) -> int:
    """Return the bytes of an input's distinct elements at hint sizes: an expanded dim has one."""
    total = entry.value.dtype.size
    for extent, stride in zip(entry.value.shape, entry.strides, strict=True):
        size = extent.evaluate(fusion.hints)
        total *= size if stride.evaluate(fusion.hints) else min(size, 1)
    return total
