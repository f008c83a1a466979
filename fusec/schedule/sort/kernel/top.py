"""The statements of top-k with rows that blocks read into registers."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Lowering
from fusec.ir.dim import dim
from fusec.ir.expression import Var
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import Expression, Statement
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.sort.kernel.writing import READ, Writing
from fusec.schedule.sort.parts import Parts
from fusec.schedule.sort.top import TopParameters, bind


@dataclass(frozen=True, kw_only=True)
class TopNodes:
    """A block's part of a row, read once into registers.

    row: statements once per row; vector, lane: those that compute `value`, the element at `column +
    v`; write: the consumers at `position` of the element at `found`.
    """

    row: tuple[Statement, ...]
    vector: tuple[Statement, ...]
    lane: tuple[Statement, ...]
    value: Expression
    write: tuple[Statement, ...]


def nodes_of(plan: Plan[Parts, TopParameters], kernel: Kernel) -> TopNodes:
    """Return the statements of a top-k kernel."""
    parts, p = plan.problem, plan.parameters
    names = parameter_names(kernel.argument_names)
    tensor = parts.node.inputs[0]
    row = Scope("row", frozenset({parts.row}), per_phase=False)
    outer = (Scope("kernel", frozenset(), per_phase=False), row)
    binding, (chunk, lane) = bind(parts, p.vector_width)
    symbols = named(kColumns=dim(parts.length), kKeep=dim(parts.keep))
    reading = Emitter(
        (*outer, Scope("vector", frozenset({chunk})), Scope("lane", frozenset({lane}))),
        names,
        Facts(parts.fusion.hints),
        lane=lane if p.vector_width > 1 else None,
        width=p.vector_width,
        aliases={chunk: Alias("column", p.vector_width)},
        wide=p.wide_index,
        symbols=symbols,
    )
    operand = Lowering(parts.before, parts.operand, binding).at_home(tensor)
    reading.count([operand])
    value = reading.ref(operand, READ)
    found = Var("found", tensor.shape[parts.axis])
    position = Var("position", parts.node.output.shape[parts.axis])
    place = Scope("element", frozenset({found, position}))
    storing = Emitter(
        (*outer, place),
        names,
        Facts(parts.fusion.hints),
        wide=p.wide_index,
        symbols=symbols,
    )
    writing = Writing(parts, storing, found, position)
    storing.count(writing.roots)
    write = writing.emit()
    outside = ("kernel", "row")
    return TopNodes(
        row=tuple(line for e in (reading, storing) for s in outside for line in e.take(0, s)),
        vector=reading.take(READ, "vector"),
        lane=reading.take(READ, "lane"),
        value=value,
        write=write,
    )
