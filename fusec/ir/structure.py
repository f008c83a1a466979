"""Structural equality of fusions: values numbered by first use, spans and value names left out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from fusec.ir.graph import Const, Fusion, Input, Node, Value


def structure_of(fusion: Fusion) -> tuple[Any, ...]:
    """Return a hashable form of the graph in which names of values do not occur.

    Nodes come in canonical order, so that independent nodes may stand in any order; nodes without
    use do not count.
    """
    number: dict[Value, int] = {i.value: k for k, i in enumerate(fusion.inputs)}
    nodes: list[Hashable] = []
    for node in fusion.canonical_order:
        operands = tuple(_operand(o, number) for o in node.operands)
        nodes.append((node.kind, operands))
        for result in node.outputs:
            number[result] = len(number)
    position = {i.value.name: k for k, i in enumerate(fusion.inputs)}
    outputs = tuple(
        (
            number[o.value],
            None if o.alias is None else position.get(o.alias),
            o.stride_order,
            o.part and o.part.index,
            o.strides and tuple(map(str, o.strides)),
        )
        for o in fusion.outputs
    )
    divided = {
        number[v]: fusion.shardings[v.name].dims for v in number if v.name in fusion.shardings
    }
    dims = tuple(sorted((d.name, d.default, d.multiple_of) for d in fusion.dims))
    inputs = tuple(map(input_kind, fusion.inputs))
    places = tuple(sorted(divided.items()))
    return (
        inputs,
        tuple(nodes),
        outputs,
        dims,
        fusion.mesh,
        places,
        tuple(sorted(fusion.as_defined)),
    )


def _operand(operand: Value | Const, number: dict[Value, int]) -> Hashable:
    return number[operand] if isinstance(operand, Value) else constant_kind(operand)


def constant_kind(constant: Const) -> Hashable:
    """Return what counts of a literal operand."""
    return repr(constant.value), constant.dtype.name


def input_kind(entry: Input) -> Hashable:
    """Return what counts of an input, its name left out."""
    return (
        str(entry.value.type),
        tuple(str(s) for s in entry.strides),
        repr(entry.default),
        entry.low,
        entry.high,
        entry.on_cpu,
        entry.part and entry.part.index,
        entry.generator,
    )


def node_kind(node: Node) -> Hashable:
    """Return what counts of a node, its operands left out."""
    attributes = tuple((k, _frozen(v)) for k, v in sorted(node.attributes.items()))
    return node.op.name, attributes, tuple(str(v.type) for v in node.outputs)


def _frozen(value: Any) -> Hashable:
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


def canonical_order(fusion: Fusion) -> tuple[Node, ...]:
    """Return the nodes that the outputs need, in an order that follows from structure alone.

    It is a depth-first walk from the outputs through the operands: neither names count nor the
    order in which independent nodes were defined, and operands stay near their use.
    """
    done: set[Value] = {i.value for i in fusion.inputs}
    ordered: list[Node] = []
    stack = [o.value for o in reversed(fusion.outputs)]
    while stack:
        value = stack[-1]
        if value in done:
            stack.pop()
            continue
        node = fusion.producer[value]
        missing = [v for v in node.inputs if v not in done]
        stack.extend(reversed(missing))
        if not missing:
            stack.pop()
            done.update(node.outputs)
            ordered.append(node)
    return tuple(ordered)
