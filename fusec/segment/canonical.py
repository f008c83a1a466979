"""A canonical order of nodes, equal for all fusions of the same structure."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Node


def sizes_of_inputs(fusion: Fusion) -> Fusion:
    """Return the fusion with every `size` reading an input with that extent, if there is one.

    A size of an intermediate tensor would otherwise make that tensor cross between segments.
    """
    places = {
        extent: (entry.value, axis)
        for entry in reversed(fusion.inputs)
        for axis, extent in reversed(list(enumerate(entry.value.shape)))
    }
    nodes: list[Node] = []
    for node in fusion.nodes:
        place = None if node.output.dim is None else places.get(node.output.dim)
        if (
            node.op.family == "scalar"
            and node.inputs[0] not in fusion.input_of
            and place is not None
        ):
            attributes = {**node.attributes, "dim": place[1]}
            node = replace(node, operands=(place[0],), attributes=attributes)
        nodes.append(node)
    return fusion.with_nodes(nodes)


def as_defined(fusion: Fusion, original: Fusion) -> Fusion:
    """Return the fusion with its nodes in the order of `original`, and copies of outputs last."""
    last = len(original.nodes)
    maker = {v.name: n for n in original.nodes for v in n.outputs}
    position = {v.name: k for k, n in enumerate(original.nodes) for v in n.outputs}
    places: dict[Node, int] = {}
    for node in fusion.nodes:
        name, before = node.output.name, [places[fusion.producer[v]] for v in node.inputs
                                          if v in fusion.producer]  # fmt: skip
        if name in maker and maker[name].op is node.op:
            own = position[name]
        else:
            # A copy has the name of the value it copies, which was renamed.
            users = fusion.users.get(node.output, ())
            copies = [u.output.name for u in users if u.op.copies and not u.op.ends_segment]
            own = min((position.get(n, last) for n in copies if name not in maker), default=last)
        places[node] = max(own, *before) if before else own
    return fusion.with_nodes(sorted(fusion.nodes, key=lambda n: places[n]))


def canonical(fusion: Fusion) -> Fusion:
    """Return the fusion with the nodes that its outputs need, ordered only by structure."""
    return fusion.with_nodes(fusion.canonical_order)
