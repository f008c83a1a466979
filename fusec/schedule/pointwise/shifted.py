"""Pointwise kernels with unaligned rows: vectors are peeled to an aligned address."""

from __future__ import annotations

from fusec.index.access import Facts, vector_base
from fusec.index.domain import Domain, stored_once
from fusec.index.instances import Lowering, instances_under
from fusec.ir.dim import dim
from fusec.ir.expression import Index, Var, linearize
from fusec.ir.graph import Fusion
from fusec.ops.checks import CHECK_INDEX
from fusec.schedule.pointwise.loads import is_across


def shifted_start(
    fusion: Fusion, domain: Domain, lowering: Lowering, loops: tuple[Var, Var, Var]
) -> Index | None:
    """Return the address at which every vector of the outputs begins, or None.

    lowering: with peeled vectors. None also if no load has vectors that begin there, or if an
    element outside the rows must not be computed.
    """
    if fusion.effects.in_place or any(
        any(p.values()) for p in stored_once(fusion, domain).values()
    ):
        return None
    row, chunk, lane = loops
    starts: dict[Index, None] = {}
    for output in fusion.outputs:
        coordinates, conditions = lowering.home(output.value)
        address = linearize(coordinates, fusion.effects.strides(output.value))
        if conditions or output.part is not None:
            return None
        starts[address - Index(((lane, dim(1)),), dim(0))] = None
    if len(starts) != 1:
        return None
    (start,) = starts
    known = dict(start.terms)
    if start.constant != 0 or known.keys() != {row, chunk} or known[chunk] != 1:
        return None
    return start if _is_used(lowering, start, lane) else None


def _is_used(lowering: Lowering, start: Index, lane: Var) -> bool:
    """Return whether some load has vectors that begin there, or combines two that overlap them."""
    facts = Facts(lowering.fusion.hints, start)
    roots = [lowering.at_home(o.value) for o in lowering.fusion.outputs]
    found = False
    for instance in instances_under(roots):
        if instance.node is not None and instance.node.op is CHECK_INDEX:
            return False
        if instance.kind != "load" or instance.address is None or instance.value is None:
            continue
        if instance.gathered or lowering.fusion.input_of[instance.value].part is not None:
            return False
        width = lane.extent.value
        base = vector_base(instance.address, instance.conditions, lane, width, facts)
        if base is not None and instance.conditions:
            return False
        found |= base is not None or is_across(instance, lane, width)
    return found
