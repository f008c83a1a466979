"""Outputs written into inputs that are still to be read: computed aside and copied at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.ops import find
from fusec.passes.protect_inputs import reads_in_place
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
    """Return the fusion with `set` nodes that alone write into the inputs of the given outputs."""
    chosen = list(outputs)
    if not chosen:
        return fusion, ()
    names = {v.name for v in fusion.values}
    nodes, renewed, decisions = list(fusion.nodes), dict[Value, Output](), list[Decision]()
    for output in chosen:
        name = f"{output.value.name}_in_place"
        while name in names:
            name += "_"
        names.add(name)
        result = Value(name, output.value.type)
        nodes.append(Node(find("set"), (output.value,), {}, (result,), output.span))
        renewed[output.value] = replace(output, value=result)
        because = f"`{output.alias}` is read after, or elsewhere than, the writer would write"
        decisions.append(Decision("copy", (output.value.name, name), because))
    outs = (renewed.get(o.value, o) for o in fusion.outputs)
    return fusion.with_nodes(nodes, outs), tuple(decisions)


def is_copy(fusion: Fusion, value: Value) -> bool:
    """Return whether a value is a copy that nothing reads: its writing can come last."""
    copy = fusion.producer[value].op.name in ("set", "segment_set")
    return copy and value not in fusion.users
