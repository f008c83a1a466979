"""One order of nodes for all fusions of the same structure."""

from __future__ import annotations

from fusec.ir.graph import Fusion, Node, Value


def canonical(fusion: Fusion) -> Fusion:
    """Return the fusion with the nodes that its outputs need, ordered by structure alone.

    The order is a depth-first walk from the outputs through the operands: it depends neither on
    names nor on the order in which independent nodes were defined; operands stay near their use.
    """
    done: set[Value] = {i.value for i in fusion.inputs}
    ordered: list[Node] = []
    for output in fusion.outputs:
        stack = [output.value]
        while stack:
            value = stack[-1]
            if value in done:
                stack.pop()
                continue
            node = fusion.producer[value]
            missing = [v for v in node.inputs if v not in done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            done.update(node.outputs)
            ordered.append(node)
    return fusion.with_nodes(ordered)
