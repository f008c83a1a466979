"""The statements of radix sort passes."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.ir.dim import dim
from fusec.ir.expression import Var
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Scope, named
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import Expression, Statement
from fusec.schedule.plan import Kernel, StepKernel
from fusec.schedule.sort.family import PassParameters, SortParameters, SortPlan
from fusec.schedule.sort.kernel.writing import READ, Writing
from fusec.schedule.sort.parts import Parts


@dataclass(frozen=True, kw_only=True)
class SortNodes:
    """The statements for an unsorted element and for a sorted one.

    row: statements once per row; read: those that compute `value`, the element at `column`; write:
    the consumers at `position` of the element at `found`.
    """

    row: tuple[Statement, ...]
    read: tuple[Statement, ...]
    value: Expression | None
    write: tuple[Statement, ...]


def nodes_of(plan: SortPlan, kernel: StepKernel[PassParameters]) -> SortNodes:
    """Return the statements of a kernel of a sort."""
    step = kernel.step
    reads = step.source is None and kernel.template != "sort_offsets"
    writes = step.target is None and kernel.template in ("sort_rows", "sort_scatter")
    bodies = _bodies(plan.problem, kernel, plan.parameters, reads=reads, writes=writes)
    row, read, value, write = bodies
    return SortNodes(row=row, read=read, value=value, write=write)


def _bodies(
    parts: Parts, kernel: Kernel, sort: SortParameters, *, reads: bool, writes: bool
) -> tuple[tuple[Statement, ...], tuple[Statement, ...], Expression | None, tuple[Statement, ...]]:
    """Return the statements of a row, those that compute a key and its value, and the stores."""
    tensor = parts.node.inputs[0]
    column, found = (Var(n, tensor.shape[parts.axis]) for n in ("column", "found"))
    position = Var("position", parts.node.output.shape[parts.axis])
    element = Scope("element", frozenset({column, found, position}))
    emitter = Emitter(
        (
            Scope("kernel", frozenset(), per_phase=False),
            Scope("row", frozenset({parts.row}), per_phase=False),
            element,
        ),
        parameter_names(kernel.argument_names),
        Facts(parts.fusion.hints),
        wide=sort.wide_index,
        symbols=named(kColumns=dim(parts.length), **({"kKeep": dim(parts.keep)} if writes else {})),
    )
    operand = parts.at(column).at_home(tensor)
    writing = Writing(parts, emitter, found, position) if writes else None
    emitter.count([*([operand] if reads else []), *(writing.roots if writing else [])])
    value = emitter.ref(operand, READ) if reads else None
    write = writing.emit() if writing else ()
    row = (*emitter.take(0, "kernel"), *emitter.take(0, "row"))
    return row, emitter.take(READ, element.name), value, write
