"""The statements of kernels that work in phases: accumulate, reduce, then use the results."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance, Lowering
from fusec.ir.expression import Var
from fusec.ir.graph import Node
from fusec.kernel.ctext import identifier
from fusec.kernel.facts import mentions
from fusec.kernel.lowering.accumulators import Accumulator
from fusec.kernel.lowering.edges import ends_of
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import EDGE_LOADS, EDGES, block
from fusec.kernel.lowering.stores import StorePlan, emit_store, guarded
from fusec.kernel.nodes import (
    THREAD_X,
    ZERO,
    Assign,
    Binary,
    Element,
    Expression,
    Name,
    Statement,
    both,
)


def uses_column(lines: Iterable[Statement]) -> bool:
    """Return whether statements use the index of their column."""
    return mentions(lines, "column")


C, COLUMN = Name("c"), Name("column")
"""The index of a vector among those of a thread, and its first column."""


@dataclass(frozen=True)
class Phase:
    """One sweep over the columns.

    row: statements before it, once per row; row_stores: stores of row values; loads: vectors that
    stay on chip; statements: the work on a vector; accumulators: reductions at its end. With
    unaligned vectors, end_loads: the loads of a thread's single element, ends: the work on it.
    """

    row: tuple[Statement, ...]
    row_stores: tuple[Statement, ...]
    loads: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    accumulators: tuple[Accumulator, ...]
    end_loads: tuple[Statement, ...] = ()
    ends: tuple[Statement, ...] = ()

    @property
    def lines(self) -> tuple[Statement, ...]:
        """Return all lines but those of accumulators."""
        swept = (*self.loads, *self.statements, *self.end_loads, *self.ends)
        return (*self.row, *self.row_stores, *swept)

    @property
    def loads_use_column(self) -> bool:
        """Return whether loads of on-chip vectors use the index of their column."""
        return uses_column(self.loads)

    @property
    def uses_column(self) -> bool:
        """Return whether the sweep uses the index of its column."""
        return uses_column(self.statements)

    @property
    def ends_use_column(self) -> bool:
        """Return whether the work on a thread's single element uses the index of its column."""
        return uses_column(self.ends)

    @property
    def starts(self) -> tuple[Statement, ...]:
        """Return the declarations of the sweep's accumulators."""
        return tuple(each.start for each in self.accumulators)

    @property
    def results(self) -> tuple[Statement, ...]:
        """Return the declarations of the block's reduced values."""
        return tuple(line for each in self.accumulators for line in each.named(each.of_block))


def vector_of_thread() -> Expression:
    """Return the first column of a vector in a row that is distributed over threads by vectors."""
    return (C * "kThreadsX" + THREAD_X) * "kVec"


def emit_outputs(
    emitter: Emitter, plans: tuple[StorePlan, ...], phase: int, columns: frozenset[Var]
) -> None:
    """Emit the stores of a phase: per element, or per row into scope `row_stores`."""
    for plan in plans:
        if plan.variables & columns:
            emit_store(emitter, plan, phase)
            continue
        emitter.check_store(plan.output.value.name, plan.kind)
        value = emitter.to_storage(plan.instance, plan.output.value.dtype, phase)
        place = Element(Name(identifier(plan.buffer)), emitter.index(plan.address, phase))
        line = guarded(emitter, plan.conditions, Assign(place, value), phase)
        emitter.add(phase, "row_stores", line, last=plan.overwrites)


def once_per_row(emitter: Emitter, thread: Expression, *tests: Expression) -> Expression | None:
    """Return the condition for the thread that stores the values of a row: the first along it.

    thread: its index; tests: additional conditions, as is the emitter's guard, if it has one.
    """
    guard = [Name(emitter.guard)] if emitter.guard else []
    return both([Binary("==", thread, ZERO), *tests, *guard])


def reduction_roots(lowering: Lowering, nodes: tuple[Node, ...]) -> list[Instance]:
    """Return the instances that reductions read."""
    return [lowering.at_home(n.inputs[0]) for n in nodes]


def phase_of(
    emitter: Emitter,
    number: int,
    loads: tuple[Statement, ...] = (),
    accumulators: tuple[Accumulator, ...] = (),
    *,
    once: Expression | None = None,
    guarded: bool = True,
) -> Phase:
    """Return a phase's lines, after every phase was emitted.

    once: the condition for the thread that stores the values of a row; guarded: whether stores of
    vectors need the emitter's guard.
    """
    stores = emitter.take(number, "row_stores")
    return Phase(
        emitter.before(number),
        stores if once is None else block(once, stores),
        loads,
        emitter.statements(number, guarded=guarded),
        accumulators,
        ends_of(emitter, EDGE_LOADS + number),
        ends_of(emitter, EDGES + number),
    )
