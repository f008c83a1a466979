"""The statements of kernels that work in phases: accumulate, reduce, and go on with the results."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.accumulators import Accumulator
from fusec.codegen.ctext import identifier
from fusec.codegen.emit import Emitter
from fusec.codegen.views import StorePlan, emit_store
from fusec.index.instances import Instance, Lowering
from fusec.ir.expression import Var
from fusec.ir.graph import Node


@dataclass(frozen=True)
class Phase:
    """One sweep over the columns.

    row: statements before it, once per row; row_stores: stores of row values; loads: vectors that
    stay on chip, once per vector; vector, lane, stores: as in Body; accumulators: reductions that
    it ends with.
    """

    number: int
    row: tuple[str, ...]
    row_stores: tuple[str, ...]
    loads: tuple[str, ...]
    vector: tuple[str, ...]
    lane: tuple[str, ...]
    stores: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]

    @property
    def has_loop(self) -> bool:
        """Return whether the phase sweeps over the columns at all."""
        return bool(self.vector or self.lane or self.stores or self.loads)


def emit_outputs(
    emitter: Emitter, plans: tuple[StorePlan, ...], phase: int, columns: frozenset[Var]
) -> None:
    """Emit the stores of a phase: per element, or per row into scope `row_stores`."""
    for plan in plans:
        if plan.variables & columns:
            emit_store(emitter, plan, phase)
            continue
        value = emitter.to_storage(plan.instance, plan.output.value.dtype, phase)
        address = emitter.index(plan.address, phase)
        line = f"{identifier(plan.buffer)}[{address}] = {value};"
        if plan.conditions:
            line = f"if ({emitter.condition(plan.conditions, phase)}) {line}"
        emitter.add(phase, "row_stores", line, last=plan.overwrites)


def reduction_roots(lowering: Lowering, nodes: tuple[Node, ...]) -> list[Instance]:
    """Return the instances that reductions read."""
    return [lowering.at_home(n.inputs[0]) for n in nodes]


def phase_of(
    emitter: Emitter, number: int, loads: tuple[str, ...], accumulators: tuple[Accumulator, ...]
) -> Phase:
    """Return a phase's lines, once every phase has been emitted."""
    return Phase(
        number,
        _lines_before(emitter, number),
        emitter.take(number, "row_stores"),
        loads,
        emitter.take(number, emitter.scopes[-2].name),
        emitter.take(number, "lane"),
        emitter.take(number, "after"),
        accumulators,
    )


def _lines_before(emitter: Emitter, number: int) -> tuple[str, ...]:
    """Return the statements outside the element loop."""
    outer = [scope.name for scope in emitter.scopes[:-2]]
    return tuple(line for name in outer for line in emitter.take(number, name))
