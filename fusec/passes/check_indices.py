"""Check data-dependent indices, for `--check-bounds`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec.dataclasses import replace
from fusec.ir.annotations import Pin
from fusec.ir.dim import Dim
from fusec.ir.graph import Fusion, Node, Type, Value
from fusec.ops.checks import CHECK_INDEX
from fusec.ops.names import fresh_name


def indexed(node: Node) -> tuple[int, Dim] | None:
    """Return the number of the operand that is an index, and its exclusive upper bound."""
    lookup = node.op.lookup
    return None if lookup is None else (lookup.index, lookup.extent(node))


def check_indices(fusion: Fusion) -> Fusion:
    """Insert a check before every use of a data-dependent index; equal checks are shared."""
    nodes: list[Node] = []
    made: dict[tuple[Value, Dim, str | None], Value] = {}
    pins: dict[str, list[str]] = {}
    pin_of = {value: pin.name for pin in fusion.pins for value in pin.values}
    taken = fusion.names
    for node in fusion.nodes:
        found = indexed(node)
        index = None if found is None else node.operands[found[0]]
        if found is None or not isinstance(index, Value) or index.dim is not None:
            nodes.append(node)
            continue
        at, extent = found
        pin = pin_of.get(node.output.name)
        key = (index, extent, pin)
        if key not in made:
            name = fresh_name(taken, f"{index.name}_checked")
            made[key] = Value(name, Type(index.dtype, index.type.shape))
            attributes = {"extent": extent, "number": len(made)}
            nodes.append(Node(CHECK_INDEX, (index,), attributes, (made[key],), node.span))
            if pin is not None:
                pins.setdefault(pin, []).append(name)
        operands = (*node.operands[:at], made[key], *node.operands[at + 1 :])
        nodes.append(replace(node, operands=operands))
    if not made:
        return fusion
    return replace(fusion, nodes=tuple(nodes), pins=tuple(_longer(fusion.pins, pins)))


def _longer(pins: Iterable[Pin], more: Mapping[str, list[str]]) -> Iterable[Pin]:
    for pin in pins:
        yield replace(pin, values=(*pin.values, *more.get(pin.name, ())))
