"""Values of columns: they depend on a lane but on no row; computed once before the row loop."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.index.instances import Instance
from fusec.ir.expression import Var
from fusec.kernel.ctext import compute_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import COLUMNS
from fusec.kernel.nodes import Assign, Declare, Statement, item, vector_of


def column_values(roots: Iterable[Instance], row: Var) -> list[Instance]:
    """Return the computed values that rows read and that depend on no row, outermost first."""
    found: dict[Instance, None] = {}
    seen: set[Instance] = set()

    def visit(instance: Instance, inside: bool) -> None:
        if instance.kind == "reduced":
            return
        on_row = row in instance.variables
        if inside and not on_row and instance.variables and instance.kind in ("op", "select"):
            found[instance] = None
            return
        if instance in seen:
            return
        seen.add(instance)
        for operand in instance.operands:
            visit(operand, on_row)

    for root in roots:
        visit(root, inside=True)
    return list(found)


def emit_column_values(
    emitter: Emitter, values: Iterable[Instance], phase: int, lane: Var
) -> tuple[Statement, ...]:
    """Return the arrays of the column values that are known in `phase`, and their computation.

    If a thread has only one column, no loop is needed: each value is a constant of the thread.
    """
    if emitter.lane is None:
        return ()
    sweep = COLUMNS + phase
    declarations: list[Statement] = []
    for instance in values:
        if instance.depth != phase or lane not in instance.variables:
            continue
        text = emitter.ref(instance, sweep)
        name = emitter.names.fresh(f"{instance.name or 'column'}_columns", "columns")
        element = item(name, lane.name)
        kind = vector_of(compute_type(instance.dtype), emitter.width_name)
        declarations.append(Declare(kind, name))
        emitter.add(sweep, "lane", Assign(element, text))
        emitter.given[instance] = element
    inner = emitter.scopes[-2].name
    lanes = emitter.lanes(emitter.take(sweep, "lane"))
    return (*declarations, *emitter.take(sweep, inner), *lanes)
