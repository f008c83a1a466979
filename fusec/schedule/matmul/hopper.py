"""The records of the Hopper kernel, bulk tensor copies into wgmma: one for each tile scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fusec.dataclasses import dataclass, field
from fusec.index.access import Facts
from fusec.ir.dim import Dim, dim, minimum
from fusec.ir.dtype import F32
from fusec.schedule.grid_methods import BULK, MATMUL_METHODS, PARTIALS
from fusec.schedule.matmul.choice import (
    OCTETS,
    QUADS,
    RASTER_GROUP,
    SPLIT_METHODS,
    SWAP_AB_ROWS,
    TILE_COLUMNS,
    TRANSPOSED_ROWS,
    TURNS,
    UNORDERED,
    Factors,
    MatmulParameters,
    divides,
)
from fusec.schedule.matmul.limits import STREAM_K
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.staged import StagedSlots, StagedTensor
from fusec.schedule.space import COUNTS
from fusec.target import Target

TILE_K = 64
"""Elements of K per 16-bit stage."""
TILE_K_BYTES = 128
"""Elements of K per stage of 8-bit or narrower types; 8-bit float sums are then promoted. A stage
of f32 has as many bytes."""
MOST_DEEP_ROWS = 128
"""Most rows of A with which a stage of weights is as deep: with more, two stages fill an SM."""
MULTIPLIERS = 256
"""Consumer threads: two warpgroups with 64 rows of a tile each."""
MOST_PARTS = 16
"""Most partitions of K of a `wgmma` tile in the last wave."""
THREE_TIMES = 192
"""Rows of a `wgmma` tile with three consumer warpgroups of 64 rows each."""


@dataclass(frozen=True)
class HopperParameters(MatmulParameters):
    """Fields that the tile schedulers of the Hopper kernel share.

    cluster_m, cluster_n: tiles of a cluster along M and N, which share B and A by multicast; dual:
    whether half of a tile's columns belong to a second GEMM.
    """

    cluster_m: int = 1  # pyright: ignore[reportIncompatibleMethodOverride]
    cluster_n: int = 1  # pyright: ignore[reportIncompatibleMethodOverride]
    dual: bool = False
    tile: ClassVar[Mapping[str, int]] = {"tile_k": TILE_K}
    uses_tma: ClassVar[bool] = True

    @classmethod
    def depth(cls, problem: Factors, rows: int) -> int:
        """Return the elements of K per stage."""
        if problem.has_converted_weights and rows > MOST_DEEP_ROWS:
            return TILE_K
        if problem.is_narrow or problem.has_converted_weights:
            return TILE_K_BYTES
        return TILE_K_BYTES // F32.size if problem.dtype == F32 else TILE_K

    @classmethod
    def tile_of(cls, problem: Factors, rows: int) -> dict[str, Any]:
        """Return the fields that follow from the operands and the rows of a tile."""
        return {**super().tile_of(problem, rows), "dual": problem.is_dual}

    @property
    def threads(self) -> int:
        """Return the threads of a CTA: consumers and one producer warpgroup."""
        return 128 * (self.consumers + 1)

    @property
    def across(self) -> int:
        """Return the columns of one wgmma: those of a tile, or its rows with swapped operands."""
        return self.tile_m if self.swap_ab else self.tile_n

    @property
    def products(self) -> int:
        """Return how many GEMMs share the columns of a tile."""
        return 2 if self.dual else 1

    @property
    def is_multicast(self) -> bool:
        """Return whether the CTAs of a cluster share operands."""
        return self.cluster_m * self.cluster_n > 1

    @property
    def readers(self) -> int:
        """Return how many CTAs of a cluster read the loads of one CTA, of either operand."""
        return self.cluster_m + self.cluster_n - 1

    @property
    def consumers(self) -> int:
        """Return the number of consumer warpgroups."""
        return 2

    @property
    def tile_warpgroups(self) -> int:
        """Return how many of them multiply the same tile."""
        return self.consumers

    @property
    def row_blocks(self) -> int:
        """Return how many blocks of 64 rows (or swapped columns) a warpgroup multiplies."""
        return (self.tile_n if self.swap_ab else self.tile_m) // (64 * self.tile_warpgroups)

    @property
    def sums(self) -> int:
        """Return the accumulators per thread."""
        return self.row_blocks * self.across // 2

    def slots(self, own: StagedSlots) -> StagedSlots:
        """Return which of a GEMM's staged tensors have slots in shared memory."""
        del own
        return StagedSlots()


@dataclass(frozen=True)
class PersistentParameters(HopperParameters):
    """The persistent tile scheduler: one CTA per SM over all tiles, `wgmma` in files.

    With splits, the last wave is stream-K: its tiles are split along K. ping_pong: whether each of
    two warpgroups has its own tiles; epilogue_smem: whether the epilogue's tensors are staged in
    shared memory; raster_group: tile rows per raster group.
    """

    ping_pong: bool = False
    epilogue_smem: bool = False
    raster_group: int = RASTER_GROUP
    kernel: ClassVar[str] = "wgmma"
    tile_columns: ClassVar[tuple[int, ...]] = TILE_COLUMNS
    most_splits: ClassVar[int] = MOST_PARTS

    @property
    def swap_ab(self) -> bool:
        """Return whether wgmma swaps the roles of A and B."""
        return self.tile_m in TRANSPOSED_ROWS

    @property
    def consumers(self) -> int:
        """Return the number of consumer warpgroups."""
        return 3 if self.tile_m == THREE_TIMES else 2

    @property
    def tile_warpgroups(self) -> int:
        """Return how many of them multiply the same tile."""
        return 1 if self.ping_pong else self.consumers

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the supported numbers of neighbouring columns per thread."""
        return QUADS if self.swap_ab else OCTETS

    def epilogue_width(self, product: Product) -> int:
        """Return the number of neighbouring columns per thread: pairs if rows are staged."""
        if self.swap_ab:
            return next(w for w in self.widths if divides(product.n, w))
        return product.staged_width if self.epilogue_smem else self.vector_width

    def staged_tensors(self, product: Product, facts: Facts) -> tuple[StagedTensor, ...]:
        """Return the epilogue's tensors whose rows are staged in shared memory."""
        return product.staged(facts) if self.epilogue_smem else ()

    def slots(self, own: StagedSlots) -> StagedSlots:
        """Return which of a GEMM's staged tensors have slots in shared memory."""
        return own if self.epilogue_smem else StagedSlots()

    def resident_clusters(self, target: Target) -> int:
        """Return the number of resident clusters."""
        return max(1, min(target.resident_clusters(self.ctas), target.sms // self.ctas))

    def grid(self, tiles: Dim, target: Target) -> tuple[Dim, Dim, Dim]:
        """Return the CTAs along each axis, at most the resident ones."""
        clusters = minimum(tiles * self.splits, self.resident_clusters(target))
        return clusters * self.ctas, dim(1), dim(1)

    @property
    def keeps_partials_in_l2(self) -> bool:
        """Return whether so few tiles have partial sums that these stay in L2."""
        return True

    def summed_tiles(self, tiles: Dim, target: Target) -> Dim:
        """Return an upper bound on the tiles with partial sums: those of one wave."""
        return dim(target.sms // self.splits)


@dataclass(frozen=True)
class SplitKParameters(HopperParameters):
    """The split-K tile scheduler: one cluster per partition of K of a tile, `split_k` in files.

    cluster_k: CTAs of a cluster that split its K and sum in shared memory; split_method: how the
    clusters of a tile combine their partial sums; workspace_dtype: the type of partial sums in
    memory.
    """

    cluster_k: int = 1  # pyright: ignore[reportIncompatibleMethodOverride]
    split_method: str = SPLIT_METHODS[0]
    workspace_dtype: str = field(default=PARTIALS[0], metadata={"omitted": True})
    kernel: ClassVar[str] = "split_k"
    tile_columns: ClassVar[tuple[int, ...]] = (64, 128, 256)
    most_splits: ClassVar[int] = COUNTS[-1]
    has_l2_hints: ClassVar[bool] = True

    @classmethod
    def tile_of(cls, problem: Factors, rows: int) -> dict[str, Any]:
        """Return the fields that follow from the operands and the rows of a tile."""
        return {**super().tile_of(problem, rows), "converted": problem.has_converted_weights}

    @property
    def swap_ab(self) -> bool:
        """Return whether wgmma swaps the roles of A and B."""
        return self.converted or self.tile_m in SWAP_AB_ROWS

    def grid(self, tiles: Dim, target: Target) -> tuple[Dim, Dim, Dim]:
        """Return the CTAs along each axis: those of all partitions of a tile are adjacent."""
        return tiles * (self.ctas * self.splits), dim(1), dim(1)

    @property
    def uses_setmaxnreg(self) -> bool:
        """Return whether consumers take registers from the producer (setmaxnreg)."""
        return self.converted and self.tile_m > 128

    @property
    def is_serial(self) -> bool:
        """Return whether the clusters of a tile wait for each other."""
        return self.splits > 1 and self.split_method in TURNS

    @property
    def in_bulk(self) -> bool:
        """Return whether they add their partial sums with cp.reduce.async.bulk."""
        return self.splits > 1 and MATMUL_METHODS[self.split_method].instruction == BULK

    @property
    def has_second(self) -> bool:
        """Return whether a separate kernel adds the partial sums of a tile's clusters."""
        return self.splits > 1 and self.split_method == "two_pass"

    @property
    def leaves_halves(self) -> bool:
        """Return whether the clusters of a tile store 16-bit partial sums in the result's type."""
        return self.workspace_dtype == "half"

    @property
    def leaves_fragments(self) -> bool:
        """Return whether partial sums are stored in the accumulator layout of wgmma."""
        return self.has_second and self.cluster_k == 1 and not self.swap_ab

    @property
    def in_arrival_order(self) -> bool:
        """Return whether the clusters of a tile add their partial sums in arrival order."""
        return self.splits > 1 and self.split_method in UNORDERED

    @property
    def requested(self) -> frozenset[str]:
        """Return the fields whose values are selected only by a user's schedule."""
        method = self.in_arrival_order or (self.leaves_halves and self.is_serial)
        fields = [("split_method", method), ("workspace_dtype", self.leaves_halves)]
        return frozenset(name for name, asked in fields if asked)

    @property
    def splitters(self) -> str:
        """Return what splits K of a tile."""
        return "clusters"


@dataclass(frozen=True)
class StreamKParameters(SplitKParameters):
    """The stream-K tile scheduler: an equal range of the steps of all tiles for each SM.

    `split_k` with `stream_k` in files. Two SMs share a tile if a range ends inside it.
    """

    splits: int = 2
    split_method: str = STREAM_K

    @property
    def template(self) -> str:
        """Return the name of the template."""
        return "matmul_stream_k"

    def grid(self, tiles: Dim, target: Target) -> tuple[Dim, Dim, Dim]:
        """Return the CTAs along each axis: one per range."""
        return minimum(tiles, target.sms), dim(1), dim(1)

    @property
    def uses_setmaxnreg(self) -> bool:
        """Return whether consumers take registers from the producer (setmaxnreg)."""
        return self.converted

    @property
    def keeps_partials_in_l2(self) -> bool:
        """Return whether so few tiles have partial sums that these stay in L2."""
        return True

    def summed_tiles(self, tiles: Dim, target: Target) -> Dim:
        """Return an upper bound on the tiles shared by two ranges: the number of ranges."""
        return dim(target.sms)

    @property
    def summed_splits(self) -> int:
        """Return the partitions of K of most tiles, which are not split."""
        return 1

    @property
    def splitters(self) -> str:
        """Return an empty string: the kernel computes the ranges itself."""
        return ""
