"""Rewrite tensors that equal an input except in a slice, in place, as updates of that slice."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.dataclasses import replace
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ops.find import find_op

Slice = tuple[Value, tuple[Dim, ...]]
"""The part that differs from the input, and its offset in it."""


def update_slices(fusion: Fusion) -> Fusion:
    """Use `update_slice` for a cat of a tensor with slices of the input that it is written into.

    Then only that tensor is moved. The slices must be at their positions in the input.
    """
    updated: dict[Node, Node] = {}
    for node, target in fusion.effects.writers.items():
        found = _changed(fusion, node.output, target, (dim(0),) * target.rank)
        if found is not None and found[0] is not node.output:
            source, starts = found
            updated[node] = replace(
                node,
                op=find_op("update_slice"),
                operands=(target, source),
                attributes={"start_indices": starts},
            )
    if not updated:
        return fusion
    return fusion.with_nodes(updated.get(n, n) for n in fusion.nodes)


def _changed(fusion: Fusion, value: Operand, target: Value, place: Sequence[Dim]) -> Slice | None:
    """Return the part of a tensor at `place` of the input that differs from it; None if none."""
    assert isinstance(value, Value)
    node = fusion.producer.get(value)
    if node is not None and _is_slice_at(node, target, place):
        return None
    if node is None or node.op.access is None or node.op.access.concat_dim is None:
        return value, tuple(place)
    axis, found = node.op.access.concat_dim(node), list[Slice]()
    at = list(place)
    for operand in node.operands:
        part = _changed(fusion, operand, target, at)
        found += [] if part is None else [part]
        at[axis] = at[axis] + operand.shape[axis]
    return found[0] if len(found) == 1 and len(node.operands) > 1 else (value, tuple(place))


def _is_slice_at(node: Node, target: Value, place: Sequence[Dim]) -> bool:
    """Return whether a node is the slice of the input at the same offset."""
    access = node.op.access
    if access is None or access.window is None or node.inputs[0] is not target:
        return False
    starts, steps = access.window(node)
    return tuple(starts) == tuple(place) and all(step == 1 for step in steps)
