"""Unaligned rows: their vectors are peeled to an aligned address.

The elements of a row before its first vector and after its last are processed one by one.
"""

from __future__ import annotations

from fusec.index.access import Facts, access_class
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.dim import dim, product
from fusec.ir.expression import Index, Var
from fusec.ir.graph import Fusion
from fusec.ir.roles import Combine
from fusec.schedule.pointwise.loads import is_across
from fusec.schedule.rows.domain import Phases


def shifted_start(
    fusion: Fusion,
    lowering: Lowering,
    phases: Phases,
    loops: tuple[Var, Var, Var],
    *,
    stores: bool,
) -> Index | None:
    """Return the address at which the vectors of all large loads begin, or None.

    lowering, loops: with peeled vectors; stores: whether those of stores must begin there, too.
    Data that all rows share may be aligned otherwise: they are processed element by element. None
    if the order matters in which a thread processes elements, if a buffer is overwritten, or if
    loads are gathered.
    """
    if fusion.effects.overwritten or any(_counts_order(n.op.combine) for n in fusion.nodes):
        return None
    row, chunk, lane = loops
    loads = {i for p in phases.loads for i in p if i.address is not None}
    if not loads or any(i.gathered for i in loads):
        return None
    sizes = {i: _size(fusion, i) for i in loads}
    largest = max(sizes.values())
    starts = {
        start
        for i, size in sizes.items()
        if size == largest and (start := _start(i, row, chunk, lane)) is not None
    }
    if len(starts) != 1:
        return None
    (start,) = starts
    facts, width = Facts(fusion.hints, start), lane.extent.value
    by_row = {i for i in loads if row in i.variables} if row in start.variables else loads
    places = [(i.address, i.conditions) for i in by_row if 4 * sizes[i] >= largest]
    for output in fusion.outputs:
        conditions = lowering.stored_where(output.value)
        at = lowering.address(output.value, fusion.effects.strides(output.value))
        if stores:
            places.append((at, conditions))
        elif {chunk, lane} & at.variables:
            return None  # elements outside the vectors would not be stored
    for address, conditions in places:
        if address is None or access_class(address, conditions, lane, width, facts) == "scalar":
            return None
    return None if facts.assumed else start


def is_read_across(fusion: Fusion, lowering: Lowering, row: Var, chunk: Var, lane: Var) -> bool:
    """Return whether reduced columns can be read with vectors at any alignment of their rows.

    Each row but the first and the last one has at least a vector's elements before it and after it,
    so the two vectors around a thread's elements are within the tensor. Nothing is overwritten.
    """
    width = lane.extent.value
    if fusion.effects.overwritten:
        return False
    for output in fusion.outputs:
        conditions = lowering.stored_where(output.value)
        at = lowering.address(output.value, fusion.effects.strides(output.value))
        facts = Facts(fusion.hints)
        whole = access_class(at, conditions, lane, width, facts) == "vector"
        if conditions or not whole or facts.assumed or output.part is not None:
            return False
    roots = [lowering.at_home(n.inputs[0]) for n in fusion.nodes if n.op.family == "reduction"]
    for load in instances_under([*roots, *(lowering.at_home(o.value) for o in fusion.outputs)]):
        if load.kind != "load" or lane not in load.variables:
            continue
        if load.address is None or not is_across(load, lane, width):
            return False
        pitch = load.address.coefficient(row)
        if pitch is None or not pitch.is_const or pitch.value < 2 * width:
            return False
    return True


def _counts_order(combine: Combine | None) -> bool:
    return combine is not None and combine.is_position


def _start(load: Instance, row: Var, chunk: Var, lane: Var) -> Index | None:
    """Return the address of a load's vectors, if all consecutive ones in a row are contiguous."""
    assert load.address is not None
    if load.gathered or load.address.coefficient(lane) != 1:
        return None
    start = load.address - Index(((lane, dim(1)),), dim(0))
    known = dict(start.terms)
    pitch = known.pop(row, dim(0))
    if known != {chunk: dim(1)} or not pitch.is_const or not start.constant.is_const:
        return None
    return start


def _size(fusion: Fusion, load: Instance) -> int:
    assert load.value is not None
    return product(load.value.shape).evaluate(fusion.hints) * load.dtype.size
