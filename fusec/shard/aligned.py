"""Which parts of tensors need aligned memory: those that GEMM kernels read or write."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Node, Value
from fusec.ops.communication import places

ASKING = ("contraction",)
"""Families whose kernels require tensors aligned to 16 bytes."""
JOINED = ("movement", "reduction")
"""Families that may be fused into such a kernel before or after, as elementwise operations are."""


def with_aligned_parts(fusion: Fusion) -> Fusion:
    """Return the fusion with slices and stacks marked that such kernels may read or write.

    If a marked one does not begin at a multiple of 16 bytes, it is copied (`Effects.shares`).
    """
    if not any(map(places, fusion.nodes)):
        return fusion
    read, written = _read(fusion), _written(fusion)
    nodes = tuple(_marked(node, read, written) if places(node) else node for node in fusion.nodes)
    return fusion if nodes == fusion.nodes else fusion.with_nodes(nodes)


def _marked(node: Node, read: Mapping[Value, bool], written: Mapping[Value, bool]) -> Node:
    inside = node.op.lies == "inside"
    asked = read[node.output] if inside else written.get(node.inputs[0], False)
    if not asked:
        return node
    return replace(node, attributes={**node.attributes, "aligned": True})


def _read(fusion: Fusion) -> dict[Value, bool]:
    """Return whether such a kernel may read each value, or a part of it."""
    found = dict[Value, bool]()
    for value in reversed(fusion.values):
        found[value] = any(
            user.op.family in ASKING
            or ((_joins(user) or user.op.lies == "inside") and any(map(found.get, user.outputs)))
            for user in fusion.users.get(value, ())
        )
    return found


def _written(fusion: Fusion) -> dict[Value, bool]:
    """Return whether such a kernel may compute each value."""
    found = dict[Value, bool]()
    for node in fusion.nodes:
        made = node.op.family in ASKING or (
            _joins(node) and any(found.get(value, False) for value in node.inputs)
        )
        found |= dict.fromkeys(node.outputs, made)
    return found


def _joins(node: Node) -> bool:
    return node.op.is_elementwise or node.op.family in JOINED
