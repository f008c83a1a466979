"""Reductions of a tile's results in its product's epilogue: their views and what they reduce."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.codegen.matmul_view import TotalView
from fusec.index.instances import Instance
from fusec.ir.dtype import F32
from fusec.kernel.accumulators import combiner
from fusec.kernel.emit import Emitter
from fusec.schedule.matmul_totals import COLUMNS, ROWS, Total

GATHERED = frozenset(["half", "reduced", "total"])
"""Names that the templates use where results are reduced, besides those of all."""


def emit_totals(
    emitter: Emitter, totals: Iterable[tuple[Total, Instance]], *, has_batches: bool
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
        inside = "tile_n + column < N" if total.along_row else "tile_m + warp_m + row < M"
        views.append(
            TotalView(name, kind, terms, inside, buffer, _place(total, has_batches=has_batches))
        )
    return tuple(views)


def _place(total: Total, *, has_batches: bool) -> str:
    """Return the place of a number in what is stored: of row m and column n on, or above."""
    if total.along_row:
        row = "(static_cast<Index>(tile.batch) * M + m)" if has_batches else "m"
        return f"{row} * fusec::tile_count(N, {COLUMNS}) + n / {COLUMNS}"
    row = f"m / {ROWS}"
    if has_batches:
        row = f"static_cast<Index>(tile.batch) * fusec::tile_count(M, {ROWS}) + {row}"
    return f"({row}) * N + n"
