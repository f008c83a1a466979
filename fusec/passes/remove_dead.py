"""Remove nodes that no output needs."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Node
from fusec.passes.rewrite import edit_pins


def remove_dead(fusion: Fusion) -> Fusion:
    """Remove nodes that no output depends on; pins lose the removed names."""
    live = {o.value for o in fusion.outputs}
    kept: list[Node] = []
    gone: list[str] = []
    for node in reversed(fusion.nodes):
        if any(v in live for v in node.outputs):
            live.update(node.inputs)
            kept.append(node)
        else:
            gone += [v.name for v in node.outputs]
    if not gone:
        return fusion
    kept.reverse()
    return replace(fusion, nodes=tuple(kept), pins=edit_pins(fusion.pins, gone, {}))
