"""Structural equality of fusions: values are numbered by first use, spans and names are ignored."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from fusec.ir.graph import Const, Fusion, Input, Node, Value
from fusec.ir.identity_cache import IdentityCache


def structure_of(fusion: Fusion, *, offsets: bool = True) -> tuple[Any, ...]:
    """Return a hashable form of the graph without the names of values.

    Nodes are in canonical order, so independent nodes may come in any order; unused nodes are
    ignored. offsets: whether literals count that only select random numbers; without them, layers
    that differ only in their dropout offsets have one structure.
    """
    free = frozenset[Node]() if offsets else selecting(fusion)
    return _STRUCTURES.of(fusion, bool(free), lambda: _numbered(fusion, free))


_STRUCTURES = IdentityCache[tuple[Any, ...]]()


def _numbered(fusion: Fusion, free: Collection[Node]) -> tuple[Any, ...]:
    """Return the structure of a fusion; free: the nodes that only select random numbers."""
    number: dict[Value, int] = {i.value: k for k, i in enumerate(fusion.inputs)}
    nodes: list[Hashable] = []
    for node in fusion.canonical_order:
        if node in free:
            kinds = literal_kinds(node, free)
            operands = [
                number[o] if isinstance(o, Value) else kind
                for o, kind in zip(node.operands, kinds, strict=True)
            ]
        else:
            operands = [
                number[o] if isinstance(o, Value) else constant_kind(o) for o in node.operands
            ]
        nodes.append((node.kind, tuple(operands)))
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


def literal_kinds(node: Node, free: Collection[Node]) -> tuple[Hashable, ...]:
    """Return the key of each literal operand, None for a value.

    For those that only select random numbers it is the type; free: `selecting` of a fusion.
    """
    return tuple(
        None
        if isinstance(o, Value)
        else ("selects", o.dtype.name)
        if node in free and (not node.op.generator or _is_generator(node, k))
        else constant_kind(o)
        for k, o in enumerate(node.operands)
    )


def selecting(fusion: Fusion) -> frozenset[Node]:
    """Return the random nodes, and nodes with results used only as their seeds and offsets.

    The latter are elementwise and not outputs. Which numbers a kernel generates changes neither its
    cost nor whether a scheduler supports it (`OpDef.generator`).
    """
    found = {n for n in fusion.nodes if n.op.generator}
    left = [v for n in found for k, v in enumerate(n.operands) if _is_generator(n, k)]
    while left:
        value = left.pop()
        node = fusion.producer.get(value) if isinstance(value, Value) else None
        if node is not None and node not in found and _only_selects(fusion, node, found):
            found.add(node)
            left += node.inputs
    return frozenset(found)


def _only_selects(fusion: Fusion, node: Node, found: Collection[Node]) -> bool:
    """Return whether all readers of a node compute only seeds and offsets from it."""
    if node.op.family != "pointwise" or node.output.shape or node.output in fusion.output_of:
        return False
    return all(
        user in found and (not user.op.generator or _is_generator(user, k))
        for user in fusion.users.get(node.output, ())
        for k, operand in enumerate(user.operands)
        if operand is node.output
    )


def _is_generator(node: Node, k: int) -> bool:
    return node.op.operands[k].name in node.op.generator


def constant_kind(constant: Const) -> Hashable:
    """Return the structural key of a literal operand."""
    return repr(constant.value), constant.dtype.name


def input_kind(entry: Input) -> Hashable:
    """Return the structural key of an input, without its name."""
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
    """Return the structural key of a node, without its operands."""
    attributes = tuple((k, _frozen(v)) for k, v in sorted(node.attributes.items()))
    return node.op.name, attributes, tuple(str(v.type) for v in node.outputs)


def _frozen(value: Any) -> Hashable:
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


def canonical_order(fusion: Fusion) -> tuple[Node, ...]:
    """Return the nodes that the outputs need, in an order that depends only on structure.

    It is a depth-first walk from the outputs through the operands: names and the order in which
    independent nodes were defined do not matter, and operands stay near their use.
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
