"""Reductions of a tile's results in an epilogue: their accumulators and terms."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.index.instances import Instance
from fusec.ir.dtype import F32
from fusec.kernel.lowering.accumulators import combiner
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.products import INDEX, TILE_BATCH
from fusec.kernel.nodes import (
    Assign,
    Binary,
    Cast,
    Element,
    Expression,
    Grouped,
    Name,
    Type,
    call,
    item,
)
from fusec.schedule.matmul.kernel.records import TotalNodes
from fusec.schedule.matmul.totals import COLUMNS, ROWS, Total

GATHERED = frozenset(["half", "reduced", "total"])
"""Further names that the templates use if results are reduced."""


def emit_totals(
    emitter: Emitter, totals: Iterable[tuple[Total, Instance]], *, has_batches: bool
) -> tuple[TotalNodes, ...]:
    """Emit the terms of each reduction of results, and return its accumulators."""
    views: list[TotalNodes] = []
    for total, instance in totals:
        result = total.result.name
        name = emitter.names.fresh(f"{result}_gathered", "gathered")
        terms = emitter.names.fresh(f"{result}_terms", "terms")
        term = item(terms, emitter.element_of_vector)
        emitter.add(0, "lane", Assign(term, emitter.convert(instance, F32, 0)))
        gathers = "fusec::RowTotals" if total.along_row else "fusec::ColumnTotals"
        kind = Type(gathers, (combiner(total.node.op, F32),))
        target = Element(Name(result), _place(total, has_batches=has_batches))
        views.append(TotalNodes(name, kind, terms, _inside(total), target))
    return tuple(views)


def _inside(total: Total) -> Expression:
    """Return the bounds test of a result: a tile may extend past the end of the reduced axis."""
    if total.along_row:
        return Binary("<", Name("tile_n") + "column", Name("N"))
    return Binary("<", Name("tile_m") + "warp_m" + "row", Name("M"))


def _place(total: Total, *, has_batches: bool) -> Expression:
    """Return the index of a stored reduction, one per block of columns of a row or vice versa."""
    batch, rows, columns, m, n = Cast(INDEX, TILE_BATCH), *map(Name, ("M", "N", "m", "n"))
    if total.along_row:
        row = batch * rows + m if has_batches else m
        return row * _tiles(columns, COLUMNS) + n / COLUMNS
    row = batch * _tiles(rows, ROWS) + m / ROWS if has_batches else m / ROWS
    return Grouped(row) * columns + n


def _tiles(count: Expression, size: int) -> Expression:
    return call("fusec::tile_count", count, size)
