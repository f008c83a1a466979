"""The frozen views that the four matrix product templates read."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.views import KernelView


@dataclass(frozen=True)
class OperandView:
    """One operand of the product.

    name: its pointer in the kernel; map: its tensor map.
    k_major: whether it is contiguous along K; else along its own rows or columns.
    vector: whether 16 bytes along the contiguous axis can be copied at once.
    batch: the coordinate along the batch axis of its tensor map, from `tile.batch`.
    """

    name: str
    k_major: bool
    vector: bool = False
    map: str = ""
    batch: str = "0"

    @property
    def k_major_text(self) -> str:
        """Return the C literal of `k_major`."""
        return "true" if self.k_major else "false"

    @property
    def vector_text(self) -> str:
        """Return the C literal of `vector`."""
        return "true" if self.vector else "false"


@dataclass(frozen=True)
class GroupsView:
    """What cuts the product into groups.

    cuts: `rows` or `depth`; ends: the pointer to the end of the first group; stride: from one end
    to the next, in elements.
    """

    cuts: str
    ends: str
    stride: str


@dataclass(frozen=True)
class EpilogueView:
    """What happens to `width` neighbouring sums of one row, held in `acc`.

    The lines may use `batch`, the row `m`, the first column `n` and the sums `acc[i]`. Loads and
    stores run once; statements run for each i < width, where the column is `n + i`. A width above 1
    divides N.
    """

    width: int
    loads: tuple[str, ...]
    statements: tuple[str, ...]
    stores: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MatmulView(KernelView):
    """What every matrix product kernel has.

    constants: declarations of M, N, K and of what else of the sizes and strides is no parameter.
    offsets: lines that define `a_offset` and `b_offset`, in elements, from `tile.batch` or the
    group. groups: what cuts the product into groups; with them the constants are `all_rows` or
    `all_depth` in place of M or K, and `groups` with groups of rows.
    """

    constants: tuple[str, ...]
    offsets: tuple[str, ...]
    index_type: str
    a: OperandView
    b: OperandView
    epilogue: EpilogueView
    tile_n: int
    groups: GroupsView | None = None


@dataclass(frozen=True, kw_only=True)
class SimtView(MatmulView):
    """The kernel of plain multiply-adds: sums and shared tiles in `acc_type`."""

    acc_type: str
    tile_m: int
    tile_k: int


@dataclass(frozen=True, kw_only=True)
class MmaView(MatmulView):
    """The portable tensor-core kernel (mma.sync m16n8k16)."""

    operand_type: str
    tile_m: int
    tile_k: int
    stages: int
    warp_m: int
    warp_n: int


@dataclass(frozen=True, kw_only=True)
class WgmmaView(MatmulView):
    """The Hopper kernel (TMA, wgmma, a producer and two consumer warpgroups)."""

    operand_type: str
    stages: int


@dataclass(frozen=True, kw_only=True)
class SplitKView(WgmmaView):
    """The Hopper kernel with K split over CTAs, summed by bulk reductions in turn.

    tickets, turns, partials: the names of the ticket counter, the semaphores and the work buffer.
    """

    cluster: int
    tickets: str
    turns: str
    partials: str
