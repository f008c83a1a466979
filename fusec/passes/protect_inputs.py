"""The rewriting for in-place outputs: computed separately, and copied after all reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.ops.find import find_op
from fusec.ops.names import fresh_name
from fusec.passes.rewrite import NO_ATTRIBUTES, edit_pins


class Copied(NamedTuple):
    """The name of an output that is copied last, of its source, and of the input it overwrites."""

    output: str
    temporary: str
    target: str


def protect_inputs(fusion: Fusion) -> Fusion:
    """Compute an aliased output separately if needed, and copy it after a kernel boundary.

    It is needed if an element of the input is read for another element than the one that overwrites
    it, or by an operation that comes after the write.
    """
    effects, before = fusion.effects, dict[Node, list[Node]]()
    for output in effects.in_place:
        if _is_copied(fusion, output.value):
            continue
        if effects.late(output.value, before) or not effects.can_be_last(output.value):
            return protect_inputs(_copied(fusion, output, boundary=True)[0])
        writer = fusion.producer[output.value]
        before.setdefault(writer, []).extend(effects.readers(output.value))
    return fusion


def copy_unsafe(fusion: Fusion) -> tuple[Fusion, list[Copied]]:
    """Return the fusion with copies of the outputs that overwrite elements read elsewhere.

    Like the pass, for fusions that it has not processed; a kernel boundary arises automatically.
    """
    effects = fusion.effects
    return copy_last(fusion, [o for o in effects.in_place if not effects.can_be_last(o.value)])


def copy_last(
    fusion: Fusion, outputs: Iterable[Output] | None = None
) -> tuple[Fusion, list[Copied]]:
    """Return the fusion with `set` nodes as the only writers of the inputs of some outputs.

    Of all by default; those that are such copies stay. The copies have the outputs' names; their
    sources are renamed.
    """
    effects, copies = fusion.effects, list[Copied]()
    for output in tuple(effects.in_place if outputs is None else outputs):
        if not effects.is_copied_last(output.value):
            fusion, temporary = _copied(fusion, output, boundary=False)
            name = output.value.name
            copies.append(Copied(name, temporary.name, effects.buffer(output.value)))
    return fusion, copies


def _is_copied(fusion: Fusion, value: Value) -> bool:
    """Return whether the value is a copy after a boundary that nothing reads."""
    node = fusion.producer[value]
    if not node.op.copies or node.op.ends_segment or value in fusion.users:
        return False
    origin = fusion.producer.get(node.inputs[0])
    return origin is not None and origin.op.ends_segment


def _copied(fusion: Fusion, output: Output, *, boundary: bool) -> tuple[Fusion, Value]:
    """Return the fusion with an output computed as another value and copied last, and that value.

    boundary: whether a kernel boundary comes before: two copies, so that for any position of it,
    the last one runs in a later kernel.
    """
    old, span = output.value, fusion.producer[output.value].span
    taken = fusion.names
    temporary = Value(fresh_name(taken, f"{old.name}_new"), old.type)
    written = Value(old.name, old.type)
    nodes: list[Node] = []
    for node in fusion.nodes:
        if old in node.inputs or old in node.outputs:
            operands = tuple(temporary if o is old else o for o in node.operands)
            results = tuple(temporary if v is old else v for v in node.outputs)
            origin = node.origin or (old.name if node.output is old else "")
            node = replace(node, operands=operands, outputs=results, origin=origin)
        nodes.append(node)
    source = temporary
    if boundary:
        source = Value(fresh_name(taken, f"{old.name}_kept"), old.type)
        nodes.append(Node(find_op("segment_set"), (temporary,), NO_ATTRIBUTES, (source,), span))
    nodes.append(Node(find_op("set"), (source,), NO_ATTRIBUTES, (written,), span))
    outputs = tuple(replace(o, value=written) if o is output else o for o in fusion.outputs)
    pin = next((p.name for p in fusion.pins if old.name in p.values), None)
    pins = fusion.pins if pin is None else edit_pins(fusion.pins, [old.name], {temporary.name: pin})
    return replace(fusion, nodes=tuple(nodes), outputs=outputs, pins=pins), temporary
