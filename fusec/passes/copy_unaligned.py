"""Insert copies of tensors that lack the memory layout required by collectives and placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fusec.dataclasses import replace
from fusec.ir.dim import Dim
from fusec.ir.effects import own_strides
from fusec.ir.expression import contiguous_strides
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ops.communication import PEER_VIEWS, communicates, stands_alone
from fusec.ops.find import find_op
from fusec.ops.names import fresh_name
from fusec.passes.rewrite import NO_ATTRIBUTES


class Unaligned(NamedTuple):
    """The name of a copy, the name of its source, and the reason for it."""

    copy: str
    value: str
    because: str


def copy_unaligned(fusion: Fusion) -> tuple[Fusion, list[Unaligned]]:
    """Return the fusion with copies before nodes whose operands have another layout or buffer.

    A collective requires dense tensors, and tensors that ranks read from each other need a buffer
    of their own. A kernel computes a stacked tensor in place, for the stack only. A slice of a
    tensor that an output overwrites would see the overwrite. Copies after a node write to outputs
    whose layout differs from the node's result.
    """
    if not any(stands_alone(n) for n in fusion.nodes):
        return fusion, []
    taken = fusion.names
    nodes: list[Node] = []
    copies: list[Unaligned] = []
    dense: dict[Operand, Value] = {}
    for node in fusion.nodes:
        because = _unaligned(fusion, node) if stands_alone(node) else None
        if because is not None:
            (source,) = node.inputs
            copy = dense.get(source) if communicates(node) else None
            if copy is None:
                copy = Value(fresh_name(taken, f"{source.name}_copy"), source.type)
                nodes.append(Node(find_op("set"), (source,), NO_ATTRIBUTES, (copy,), node.span))
                copies.append(Unaligned(copy.name, source.name, because))
            if communicates(node):
                dense[source] = copy
            node = replace(node, operands=(copy,))
        because = _lies_otherwise(fusion, node) if stands_alone(node) else None
        if because is not None:
            value = node.output
            made = Value(fresh_name(taken, f"{value.name}_dense"), value.type)
            nodes.append(replace(node, outputs=(made,)))
            copies.append(Unaligned(value.name, made.name, because))
            node = Node(find_op("set"), (made,), NO_ATTRIBUTES, (value,), node.span)
        nodes.append(node)
    return (fusion.with_nodes(nodes) if copies else fusion), copies


def _unaligned(fusion: Fusion, node: Node) -> str | None:
    """Return why a node cannot use its operand in place, or None."""
    (value,) = node.inputs
    entry, producer = fusion.input_of.get(value), fusion.producer.get(value)
    if node.op.lies == "inside":
        late = value.name in fusion.effects.overwritten
        return f"an output is written to `{value.name}`" if late else None
    if node.op.lies == "around":
        if producer is None or stands_alone(producer) or _is_view(producer):
            return f"no kernel computes `{value.name}`"
        others = value in fusion.output_of or len(fusion.users[value]) > 1
        return f"`{value.name}` has other readers" if others else None
    if node.op is PEER_VIEWS and _lies_inside(fusion, value):
        return f"`{value.name}` may alias an input or a part of another tensor"
    strides = fusion.effects.strides(value) if entry is None else entry.strides
    if not _is_dense(value, strides):
        return f"`{value.name}` is not dense"
    return f"`{value.name}` is in CPU memory" if entry is not None and entry.on_cpu else None


def _lies_otherwise(fusion: Fusion, node: Node) -> str | None:
    """Return why an output cannot be a node's result directly, or None."""
    output = fusion.output_of.get(node.output)
    if output is None:
        return None
    name, strides = output.value.name, fusion.effects.strides(output.value)
    if communicates(node):
        return None if _is_dense(output.value, strides) else f"`{name}` is not dense"
    if node.op.lies != "inside":
        return None
    if output.part is not None:
        return f"`{name}` is a part of complex numbers"
    if output.value in fusion.effects.into:
        return f"`{name}` is written to `{fusion.effects.buffer(output.value)}`"
    if output.stride_order is not None and strides != own_strides(output):
        return f"`{name}` needs a different memory layout"
    return None


def _is_dense(value: Value, strides: Sequence[Dim]) -> bool:
    pairs = zip(value.shape, strides, contiguous_strides(value.shape), strict=True)
    return all(extent == 1 or stride == own for extent, stride, own in pairs)


def _lies_inside(fusion: Fusion, value: Value) -> bool:
    """Return whether a value may share an input's memory, or start anywhere in another tensor's.

    Other ranks cannot access the caller's memory, and kernels assume that their inputs are aligned.
    """
    producer = fusion.producer.get(value)
    while producer is not None and _is_view(producer):
        if producer.op.access is not None and producer.op.access.window is not None:
            return True
        value = producer.inputs[0]
        producer = fusion.producer.get(value)
    return value in fusion.input_of


def _is_view(node: Node) -> bool:
    """Return whether a node's result may be its operand's memory."""
    return node.op.access is not None and node.op.access.view
