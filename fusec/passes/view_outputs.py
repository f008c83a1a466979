"""Outputs that are reshapes of one tensor share memory, as in PyTorch."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Node, Operand, Value


def view_outputs(fusion: Fusion) -> Fusion:
    """Make outputs that reshape the same temporary tensor reshapes of the first of them.

    The first one is stored, and the others are views of it. Readers of an output that is identical
    to the one that it views read that one.
    """
    finals = {o.value for o in fusion.outputs}
    plain = {o.value for o in fusion.effects.fresh if not o.stride_order and o.part is None}
    pinned = {name for pin in fusion.pins for name in pin.values}
    stored: dict[Operand, Value] = {}
    same: dict[Operand, Value] = {}
    nodes: list[Node] = []
    for node in fusion.nodes:
        if any(o in same for o in node.inputs):
            node = replace(node, operands=tuple(same.get(o, o) for o in node.operands))
        if node.op.name == "reshape" and node.output in plain and node.output.name not in pinned:
            source = node.inputs[0]
            if source in fusion.producer and source not in finals:
                first = stored.setdefault(source, node.output)
                if first is not node.output:
                    node, source = replace(node, operands=(first,)), first
            if source in plain and source.type == node.output.type:
                same[node.output] = source
        nodes.append(node)
    changed = any(new is not old for new, old in zip(nodes, fusion.nodes, strict=True))
    return fusion.with_nodes(nodes) if changed else fusion
