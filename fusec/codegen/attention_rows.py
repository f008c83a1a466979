"""The end of a query's row: what its sums are multiplied by, and what else is stored of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusec.codegen.attention_scores import taken
from fusec.codegen.views import StorePlan, emit_store
from fusec.index.instances import Instance, instances_under
from fusec.kernel.emit import Emitter
from fusec.kernel.nodes import Raw, Statement
from fusec.schedule.attention_problem import Softmax

_EMPTY = "if (top == -INFINITY) total = NAN;  // exp(-INFINITY + INFINITY)"


@dataclass(frozen=True)
class RowEnd:
    """The values of a query, their stores, and the factor of its sums.

    reads: whether memory is read for it.
    """

    lines: tuple[Statement, ...]
    stores: tuple[Statement, ...]
    factor: str
    reads: bool


def emit_row_end(emitter: Emitter, softmax: Softmax, plans: Sequence[StorePlan]) -> RowEnd:
    """Emit the end of a row, from its largest score `top` and its sum of exponentials `total`.

    Sums of a row without keys are 0 in the kernel. In a graph that does not replace its maximum
    they are NaN, which follows by itself only where 0 is divided by the sum.
    """
    emitter.reduced[(softmax.top, 0)] = Raw("top")
    emitter.reduced[(softmax.total, 0)] = Raw("total")
    roots = [p.instance for p in plans]
    factor = softmax.factor
    emitter.count([*roots, *([] if factor is None else [factor])])
    text = Raw("1.0f")
    if factor is not None:
        text = emitter.ref(factor, 0)
        if softmax.divides:
            text = Raw(f"1.0f / {text.at_least(14)}", 13)
    empty = not softmax.is_safe and (bool(plans) or not _divides_by(softmax))
    if empty and (factor is None or not _reads(factor, softmax)):
        text = Raw(f"top == -INFINITY ? NAN : {text.at_least(4)}", 3)
    for plan in plans:
        emit_store(emitter, plan, 0)
    lines = taken(emitter, "kernel", "batch", "row")
    below = instances_under([*roots, *([] if factor is None else [factor])])
    return RowEnd(
        (_EMPTY, *lines) if empty else lines,
        taken(emitter, "store"),
        str(text),
        any(i.kind == "load" for i in below),
    )


def _divides_by(softmax: Softmax) -> bool:
    """Return whether sums are divided by the sum of exponentials and by nothing else."""
    return softmax.factor is not None and softmax.divides and _is_total(softmax.factor, softmax)


def _is_total(instance: Instance, softmax: Softmax) -> bool:
    return instance.kind == "reduced" and instance.node is softmax.total


def _reads(factor: Instance, softmax: Softmax) -> bool:
    return any(_is_total(i, softmax) for i in instances_under([factor]))
