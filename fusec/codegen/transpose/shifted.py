"""The view of the transpose template for lines and columns that begin anywhere."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.ir.dim import product
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel
from fusec.schedule.transpose.family import TransposePlan
from fusec.schedule.transpose.kernel.shifted import ShiftedNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class ShiftedView(KernelView, ShiftedNodes):
    """Tiles of lines by columns, of one output; has_batches: whether there are several matrices."""

    index_type: Type
    threads: int
    tile_lines: int
    tile_columns: int
    read_width: int
    write_width: int
    has_batches: bool


def view(plan: TransposePlan, kernel: Kernel) -> ShiftedView:
    """Return the view of a transpose kernel whose vectors are shifted."""
    p, crossing = plan.parameters, plan.problem
    return ShiftedView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=(
            f"Schedule: tiles of {p.tile_lines} x {p.tile_columns}, read in vectors of "
            f"{p.read_width} along lines, written in vectors of {p.write_width} along columns, "
            "each from an aligned address."
        ),
        index_type=index_type(wide=p.wide_index),
        threads=kernel.block[0],
        tile_lines=p.tile_lines,
        tile_columns=p.tile_columns,
        read_width=p.read_width,
        write_width=p.write_width,
        has_batches=product(a.extent for a in crossing.others) != 1,
    )
