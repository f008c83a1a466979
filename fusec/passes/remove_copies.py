"""Remove `set` of values where no copy is required."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Node, Operand, Output, Value
from fusec.passes.rewrite import Rewriter, edit_pins, rewrite


def remove_copies(fusion: Fusion) -> Fusion:
    """Read through every `set`; an output that copies a result becomes that result.

    Copies of inputs and of other outputs stay, and so do those after a `segment_set`: they exist to
    create a buffer of their own.
    """
    return _give_names(rewrite(fusion, _rule))


def _is_copy(node: Node) -> bool:
    return node.op.copies and not node.op.ends_segment


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    pinned = node.output.name in work.pin_of
    if not _is_copy(node) or node.output in work.finals or pinned:
        return None
    return node.operands


def _give_names(fusion: Fusion) -> Fusion:
    """Remove copies that are outputs: the copied result takes the output's name."""
    renamed, copies = _renamings(fusion)
    if not renamed:
        return fusion
    new = {old: Value(output.name, old.type) for old, output in renamed.items()}
    current = new | {output: new[old] for old, output in renamed.items()}
    nodes: list[Node] = []
    for node in fusion.nodes:
        if node in copies:
            continue
        if any(v in current for v in (*node.inputs, *node.outputs)):
            operands = tuple(_now(o, current) for o in node.operands)
            outputs = tuple(current.get(v, v) for v in node.outputs)
            is_renamed = outputs[0] != node.output
            origin = node.origin or (node.output.name if is_renamed else "")
            node = replace(node, operands=operands, outputs=outputs, origin=origin)
        nodes.append(node)
    outputs = tuple(_renewed(o, current.get(o.value)) for o in fusion.outputs)
    owner = {name: pin.name for pin in fusion.pins for name in pin.values}
    joined = {
        output.name: owner[old.name]
        for old, output in renamed.items()
        if old.name in owner and output.name not in owner
    }
    pins = edit_pins(fusion.pins, [old.name for old in renamed], joined)
    return replace(fusion, nodes=tuple(nodes), outputs=outputs, pins=pins)


def _renamings(fusion: Fusion) -> tuple[dict[Value, Value], set[Node]]:
    """Return results with the output that replaces each, and the copies to remove."""
    finals = {o.value for o in fusion.outputs}
    owner = {name: pin.name for pin in fusion.pins for name in pin.values}
    renamed: dict[Value, Value] = {}
    copies: set[Node] = set()
    for node in fusion.nodes:
        if not _is_copy(node) or node.output not in finals:
            continue
        (source,) = node.inputs
        maker = fusion.producer.get(source)
        pin = owner.get(node.output.name)
        if (
            maker is not None
            and not maker.op.ends_segment
            # Slices of a loop are not stacked in an input's memory.
            and not (maker.op.lies and node.output in fusion.effects.into)
            and source not in finals
            and source not in renamed
            and (pin is None or pin == owner.get(source.name))
        ):
            renamed[source] = node.output
            copies.add(node)
    return renamed, copies


def _now(operand: Operand, current: Mapping[Value, Value]) -> Operand:
    return current.get(operand, operand) if isinstance(operand, Value) else operand


def _renewed(output: Output, value: Value | None) -> Output:
    return output if value is None else replace(output, value=value)
