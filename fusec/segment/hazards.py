"""Outputs written into inputs that are still to be read: computed aside and copied at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.ops import find
from fusec.passes.protect_inputs import reads_in_place
from fusec.passes.rewrite import edit_pins
from fusec.segment.segmented import Decision


def copy_where_moved(fusion: Fusion) -> tuple[Fusion, tuple[Decision, ...]]:
    """Return the fusion with a copy for each aliased output whose input is read elsewhere."""
    late: list[Output] = []
    for output in fusion.outputs:
        if output.alias is None or is_copy(fusion, output.value):
            continue
        target = next(i.value for i in fusion.inputs if i.value.name == output.alias)
        if not reads_in_place(fusion, target, output.value):
            late.append(output)
    return copy_last(fusion, late)


def copy_last(fusion: Fusion, outputs: Iterable[Output]) -> tuple[Fusion, tuple[Decision, ...]]:
    """Return the fusion with `set` nodes that alone write into the inputs of the given outputs.

    The copies have the outputs' names; what they copy gets another.
    """
    decisions: list[Decision] = []
    for output in outputs:
        fusion, apart = _copied(fusion, output)
        because = f"`{output.alias}` is read after, or elsewhere than, the writer would write"
        decisions.append(Decision("copy", (apart, output.value.name), because))
    return fusion, tuple(decisions)


def _copied(fusion: Fusion, output: Output) -> tuple[Fusion, str]:
    """Return the fusion with one output copied last, and the name of what is copied."""
    old, names = output.value, {v.name for v in fusion.values} | {d.name for d in fusion.dims}
    name = f"{old.name}_new"
    while name in names:
        name += "_"
    apart, written = Value(name, old.type), Value(old.name, old.type)
    nodes: list[Node] = []
    for node in fusion.nodes:
        if old in node.inputs or old in node.outputs:
            operands = tuple(apart if o is old else o for o in node.operands)
            results = tuple(apart if v is old else v for v in node.outputs)
            node = replace(node, operands=operands, outputs=results)
        nodes.append(node)
    nodes.append(Node(find("set"), (apart,), {}, (written,), output.span))
    outputs = tuple(replace(o, value=written) if o is output else o for o in fusion.outputs)
    pin = next((p.name for p in fusion.pins if old.name in p.values), None)
    pins = fusion.pins if pin is None else edit_pins(fusion.pins, [old.name], {name: pin})
    return replace(fusion, nodes=tuple(nodes), outputs=outputs, pins=pins), name


def is_copy(fusion: Fusion, value: Value) -> bool:
    """Return whether a value is a copy that nothing reads: its writing can come last."""
    copy = fusion.producer[value].op.copies
    return copy and value not in fusion.users
