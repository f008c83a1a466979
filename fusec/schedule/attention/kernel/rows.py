"""The end of a query's row: its normalization factor, and its stored outputs."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.index.instances import Instance, instances_under
from fusec.kernel.ctext import INFINITY, NAN
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.stores import StorePlan, emit_store
from fusec.kernel.nodes import (
    SELECT,
    Assign,
    Binary,
    Expression,
    If,
    Name,
    Noted,
    Real,
    Select,
    Unary,
    grouped,
    operand,
)
from fusec.schedule.attention.forward.problem import Softmax
from fusec.schedule.attention.kernel.records import RowNodes
from fusec.schedule.attention.kernel.scores import taken

_IS_EMPTY = Binary("==", Name("top"), Unary("-", INFINITY))
_EMPTY = Noted(
    If(_IS_EMPTY, (Assign(Name("total"), NAN),), braces=False),
    "exp(-INFINITY + INFINITY)",
)


def emit_row_end(emitter: Emitter, softmax: Softmax, plans: Sequence[StorePlan]) -> RowNodes:
    """Emit the end of a row, from its largest score `top` and its sum of exponentials `total`.

    The kernel's sums of a row without keys are 0. In a graph that does not replace its maximum they
    are NaN, which 0 / 0 yields without a test, but no other factor does.
    """
    emitter.reduced[(softmax.top, 0)] = Name("top")
    emitter.reduced[(softmax.total, 0)] = Name("total")
    factor = softmax.factor
    roots = [p.instance for p in plans] + ([] if factor is None else [factor])
    emitter.count(roots)
    value: Expression = Real("1.0", "f")
    if factor is not None:
        value = emitter.ref(factor, 0)
        if softmax.divides:
            value = Binary("/", Real("1.0", "f"), value)
    empty = not softmax.is_safe and (bool(plans) or not _divides_by(softmax))
    if empty and (factor is None or not _reads(factor, softmax)):
        value = Select(_IS_EMPTY, NAN, grouped(value, SELECT + 1))
    for plan in plans:
        emit_store(emitter, plan, 0)
    lines = taken(emitter, "kernel", "batch", "row")
    return RowNodes(
        (_EMPTY, *lines) if empty else lines,
        taken(emitter, "store"),
        operand(emitter.stored_under),
        value,
        any(i.kind == "load" for i in instances_under(roots)),
    )


def _divides_by(softmax: Softmax) -> bool:
    """Return whether sums are divided by the sum of exponentials and by nothing else."""
    return softmax.factor is not None and softmax.divides and _is_total(softmax.factor, softmax)


def _is_total(instance: Instance, softmax: Softmax) -> bool:
    return instance.kind == "reduced" and instance.node is softmax.total


def _reads(factor: Instance, softmax: Softmax) -> bool:
    return any(_is_total(i, softmax) for i in instances_under([factor]))
