"""Outputs written into inputs that are still to be read: computed aside and copied at the end."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.ir.graph import Fusion, Output, Value
from fusec.passes.protect_inputs import copied_last, reads_in_place
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
        fusion, temporary = copied_last(fusion, output, boundary=False)
        because = f"`{output.alias}` is read after, or elsewhere than, the writer would write"
        decisions.append(Decision("copy", (temporary.name, output.value.name), because))
    return fusion, tuple(decisions)


def is_copy(fusion: Fusion, value: Value) -> bool:
    """Return whether a value is a copy that nothing reads: its writing can come last."""
    copy = fusion.producer[value].op.copies
    return copy and value not in fusion.users
