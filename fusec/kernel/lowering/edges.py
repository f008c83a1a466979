"""Rows of unaligned vectors: threads handle the elements before and after the vectors singly.

Each thread has at most one of them, instead of the first element of a vector.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusec.dataclasses import replace
from fusec.index.instances import Instance, Lowering
from fusec.ir.expression import Index, Var, index
from fusec.ir.graph import Node
from fusec.kernel.ctext import storage_type
from fusec.kernel.lowering.accumulators import Accumulator, accumulate_edge
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import EDGE_LOADS, EDGES
from fusec.kernel.lowering.stores import StorePlan, emit_store
from fusec.kernel.nodes import INT, Assign, Braced, Cast, Declare, Expression, Name, Statement


def first_column(emitter: Emitter, start: Index, chunk: Var) -> Expression:
    """Return the column of the first whole vector of a row.

    start: the address at which the vector of a chunk begins.
    """
    place, width = emitter.index(start.substitute({chunk: index(0)}), 0), Name("kVec")
    return (width - Cast(INT, place % width)) % width


def load_edges(
    emitter: Emitter, loads: Iterable[tuple[int, Instance]], roots: Iterable[Instance]
) -> tuple[Statement, ...]:
    """Emit the loads of a thread's single element, and return the declarations.

    loads: with the phase that reads it first; roots: the instances that are computed from elements.
    """
    emitter.count(emitter.first_lane(root) for root in roots)
    held: list[Statement] = []
    for number, instance in loads:
        first, phase = emitter.first_lane(instance), EDGE_LOADS + number
        name = emitter.names.fresh(f"{instance.name}_end", "end")
        held.append(Declare(storage_type(instance.dtype), name, (), Braced(None)))
        emitter.add(phase, "vector", Assign(Name(name), emitter.element(first, phase)))
        emitter.cached[first] = Name(name)
    return tuple(held)


def emit_edges(
    emitter: Emitter,
    lowering: Lowering,
    accumulated: Iterable[tuple[Node, Accumulator]],
    stores: Iterable[StorePlan],
    number: int,
) -> None:
    """Emit a phase's work on a thread's single element: accumulate it, and store its results."""
    phase = EDGES + number
    for node, each in accumulated:
        accumulate_edge(emitter, lowering, node, each, phase)
    assert emitter.lane is not None
    for plan in stores:
        single = replace(
            plan,
            instance=emitter.first_lane(plan.instance),
            address=plan.address.substitute({emitter.lane: index(0)}),
            conditions=emitter.at_lane_zero(plan.conditions),
        )
        emit_store(emitter, single, phase)


def ends_of(emitter: Emitter, phase: int) -> tuple[Statement, ...]:
    """Return the statements for a thread's single element."""
    return tuple(line for scope in ("vector", "lane") for line in emitter.take(phase, scope))
