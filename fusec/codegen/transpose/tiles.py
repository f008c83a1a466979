"""The view of the transpose template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.ir.dim import product
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel
from fusec.schedule.transpose.family import TransposePlan
from fusec.schedule.transpose.kernel.tiles import TransposeNodes, nodes_of
from fusec.schedule.transpose.tile import Tile


@dataclass(frozen=True, kw_only=True)
class TransposeView(KernelView, TransposeNodes):
    """Tiles of lines by columns, and the threads that read and write them.

    has_batches: whether there are several such matrices; pack: adjacent columns that a thread
    reads.
    """

    index_type: Type
    threads: int
    tile_lines: int
    tile_columns: int
    read_width: int
    write_width: int
    pack: int
    has_batches: bool


def view(plan: TransposePlan, kernel: Kernel) -> TransposeView:
    """Return the view of a transpose kernel."""
    p, crossing = plan.parameters, plan.problem
    return TransposeView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=(
            f"Schedule: tiles of {p.tile_lines} x {p.tile_columns}, read in vectors of "
            f"{p.read_width} along lines, written in vectors of {p.write_width} along columns."
        ),
        index_type=index_type(wide=p.wide_index),
        threads=kernel.block[0],
        tile_lines=p.tile_lines,
        tile_columns=p.tile_columns,
        read_width=p.read_width,
        write_width=p.write_width,
        pack=Tile(p, crossing.sizes).pack,
        has_batches=product(a.extent for a in crossing.others) != 1,
    )
