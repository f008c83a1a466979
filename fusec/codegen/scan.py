"""The view of the scan templates."""

from __future__ import annotations

from fusec.codegen.views import NestView, view_of
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import compute_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel
from fusec.schedule.scan.family import ScanParameters, ScanPlan
from fusec.schedule.scan.kernel import ScanNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class ScanView(NestView, ScanNodes):
    """Tiles of rows (or of columns): read, scanned, and processed further at the same positions.

    tiles: of a row, with totals, flags, counters: workspaces, if blocks share rows; exact: whether
    tiles are exactly the scanned axis; row_bound: whether there may be no more rows.
    """

    type: Type
    chunks: int
    tiles: int
    totals: str
    flags: str
    counters: str
    exact: bool
    row_bound: bool


def view(plan: ScanPlan, kernel: Kernel) -> ScanView:
    """Return the view of a scan kernel."""
    p, scan = plan.parameters, plan.problem
    tile = p.chunks * (p.threads_x * p.vector_width if p.inner else p.threads_y)
    spaces = [w.name for w in plan.workspaces] or ["", "", ""]
    return view_of(
        ScanView,
        plan,
        kernel,
        nodes_of(plan, kernel),
        _sentence(p),
        type=compute_type(scan.node.output.dtype.compute),
        totals=spaces[0],
        flags=spaces[1],
        counters=spaces[2],
        exact=scan.rows.columns.value % tile == 0,
        row_bound=p.threads_y > 1,
    )


def _sentence(p: ScanParameters) -> str:
    if p.tiles > 1:
        return (
            f"{p.tiles} tiles of a row, one for each block of {p.threads_x} threads with "
            f"{p.chunks} x {p.vector_width} elements each; tiles hand on their totals"
        )
    if p.inner:
        return (
            f"{p.threads_x} threads along each row, {p.threads_y} rows per block, "
            f"{p.chunks} x {p.vector_width} elements per thread at a time; the carry goes from "
            "tile to tile"
        )
    return (
        f"{p.threads_x} vectors of {p.vector_width} columns, {p.threads_y} spans of "
        f"{p.chunks} rows at a time; the carry goes from tile to tile"
    )
