"""Reductions of a tile's results in its product's epilogue: their views and what they reduce."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.codegen.accumulators import combiner
from fusec.codegen.emit import Emitter
from fusec.codegen.matmul_view import TotalView
from fusec.index.instances import Instance
from fusec.ir.dtype import F32
from fusec.schedule.matmul_totals import Total

GATHERED = frozenset(
    ["half", "inside", "leave_columns", "leave_rows", "row_blocks", "total", "totals"]
)
"""Names that the templates use where results are reduced, besides those of all."""


def emit_totals(
    emitter: Emitter, totals: Iterable[tuple[Total, Instance]]
) -> tuple[TotalView, ...]:
    """Emit what is reduced of each result, and return the views of the reductions."""
    views: list[TotalView] = []
    for total, instance in totals:
        buffer = total.result.name
        name = emitter.names.fresh(f"{buffer}_gathered", "gathered")
        terms = emitter.names.fresh(f"{buffer}_terms", "terms")
        lane = "0" if emitter.lane is None else emitter.lane.name
        emitter.add(0, "lane", f"{terms}[{lane}] = {emitter.convert(instance, F32, 0)};")
        kind = "RowTotals" if total.along_row else "ColumnTotals"
        kind = f"fusec::{kind}<{combiner(total.node.op, F32)}>"
        views.append(TotalView(name, kind, terms, buffer, total.along_row))
    return tuple(views)
