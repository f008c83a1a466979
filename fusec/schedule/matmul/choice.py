"""Schedule parameters of a GEMM: the base class of its kernels' records, and common fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts
from fusec.ir.annotations import Setting
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import DType
from fusec.schedule.grid_methods import MATMUL_METHODS, PARTIALS, HalfPartials
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.staged import StagedTensor
from fusec.schedule.plan import Guard
from fusec.schedule.space import COUNTS, Field, Parameters
from fusec.target import Target

KERNELS = ("wgmma", "split_k", "gemv", "mma", "simt")
"""The kernels' names in files; records.py defines the record of each."""
MOST_COORDINATE = 2**31 - 1 - 256
"""Coordinates of a tensor map are ints, including those past the end in the last tile."""
SWAP_AB_ROWS = tuple(r for r in range(16, 241, 16) if r != 128)
"""Tile rows of `split_k` with swapped operands; its columns are the rows of wgmma."""
TRANSPOSED_ROWS = tuple(r for r in range(16, 241, 8) if r % 64)
"""The same for `wgmma`, except those that are also rows of unswapped tiles."""
MOST_SWAP_AB_ROWS = 112
"""Most rows of such a tile with 256 columns whose accumulators fit in a thread's registers."""
SPLIT_METHODS = tuple(MATMUL_METHODS)
"""How the clusters of a tile combine partial sums; `stream_k`: SMs have equal ranges of steps."""
COMPARED_METHODS = tuple(m.name for m in MATMUL_METHODS.values() if m.compared)
"""Those that the cost model compares."""
TURNS = tuple(m.name for m in MATMUL_METHODS.values() if m.is_serial)
"""The methods with which clusters wait for each other."""
UNORDERED = tuple(m.name for m in MATMUL_METHODS.values() if m.on_request)
"""Those that add partial sums in arrival order, so results differ between runs: only on request."""
HALVED = tuple(
    name
    for rounding in (HalfPartials.ONCE, HalfPartials.EACH_ADD)
    for name, method in MATMUL_METHODS.items()
    if method.halves is rounding
)
"""The methods that support 16-bit workspaces; the last ones round at each addition."""
CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4))
"""Compared cluster shapes in tile rows and columns: CTAs of a row share A, of a column B."""
CLUSTER_EXTENTS = (1, 2, 4)
MOST_CTAS = 8
"""Most CTAs of a cluster that every GPU with clusters supports."""
RASTER_GROUP = 8
RASTER_GROUPS = (1, 2, 4, 8, 16, 32, 64)
"""Tile rows per raster group."""
STAGES = range(1, 17)
TILE_COLUMNS = tuple(range(8, 257, 8))
"""Columns of a tile, for all kernels."""
QUADS, OCTETS = (4, 2, 1), (8, 2, 1)
"""Columns per thread: 2 in the accumulator layout, 8 after a lane swap, 4 through shared memory."""


class Factors(Protocol):
    """The properties of a GEMM's operands that determine the depth of a K step, as in `Traits`."""

    @property
    def dtype(self) -> DType | None:
        """Return the type that the tensor cores multiply, or None without tensor cores."""
        ...

    @property
    def is_narrow(self) -> bool:
        """Return whether both operands are 8-bit floats."""
        ...

    @property
    def is_dual(self) -> bool:
        """Return whether there is a second B."""
        ...

    @property
    def has_converted_weights(self) -> bool:
        """Return whether B consists of integers that are converted."""
        ...

    @property
    def is_b_k_major(self) -> bool:
        """Return whether B is K-major."""
        ...


@dataclass(frozen=True)
class Lacking:
    """The only value that a kernel supports for a field, and why."""

    value: Setting
    rule: str
    because: str


_OF_WGMMA = (
    "ping_pong, epilogue_smem and raster_group are parameters of kernel `wgmma`, not of `{}`"
)
_NO_MULTICAST = Lacking(1, "multicast", "kernel `{}` does not support multicast in clusters")
_ONE_CLUSTER = Lacking(1, "splits", "kernel `{}` does not support so many splits of K")
ONLY_SLICES = "kernel `{}` supports only `slices` for split-K"
LACKING: Mapping[str, Lacking] = {
    "cluster_k": _ONE_CLUSTER,
    "split_method": Lacking(SPLIT_METHODS[0], "splits", ONLY_SLICES),
    "ping_pong": Lacking(False, "kernel", _OF_WGMMA),
    "cluster_m": _NO_MULTICAST,
    "cluster_n": _NO_MULTICAST,
    "epilogue_smem": Lacking(False, "kernel", _OF_WGMMA),
    "raster_group": Lacking(RASTER_GROUP, "kernel", _OF_WGMMA),
    "workspace_dtype": Lacking(
        PARTIALS[0],
        "workspace_dtype",
        "kernel `{}` has f32 partial sums; `split_k` supports 16-bit ones",
    ),
}
"""For the free fields that only some kernels have."""
_WRITTEN = (
    "kernel", "tile_m", "tile_n", "tile_k", "stages", "cluster_m", "cluster_n", "cluster_k",
    "splits", "split_method", "vector_width", "ping_pong", "epilogue_smem", "raster_group", "dual",
    "converted", "wide_index",
)  # fmt: skip
"""The fields that dumps list for every kernel, in order."""


@dataclass(frozen=True)
class MatmulParameters(Parameters):
    """The schedule parameters that every GEMM kernel has; the record of each adds its own.

    tile_k: elements of K per step of a CTA; splits: partitions of K of a tile, whose partial sums
    are combined in memory; converted: whether B is 8-bit integers that are converted to 16-bit
    floats in registers; wide_index: 64-bit addresses. kernel: its name in files; tile: fields that
    follow from it; tile_columns: the tile widths that it supports; most_splits: its most partitions
    of K; uses_tma: whether bulk tensor copies feed wgmma; loads_chunks: whether it loads operands
    in 16-byte chunks if their layout allows; on_tensor_cores: whether it runs on tensor cores;
    has_l2_hints: whether copies of operands that are read once carry an L2 cache hint.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    splits: int = 1
    vector_width: int = 1
    converted: bool = False
    wide_index: bool = False
    kernel: ClassVar[str]
    tile: ClassVar[Mapping[str, int]]
    tile_columns: ClassVar[tuple[int, ...]]
    most_splits: ClassVar[int] = 1
    uses_tma: ClassVar[bool] = False
    loads_chunks: ClassVar[bool] = False
    on_tensor_cores: ClassVar[bool] = True
    has_l2_hints: ClassVar[bool] = False
    lacking: ClassVar[Mapping[str, Lacking]] = LACKING
    free: ClassVar = (
        Field("kernel", KERNELS, "the kernel (`docs/products.md`)"),
        Field(
            "tile_m",
            tuple(sorted({8, *SWAP_AB_ROWS, *TRANSPOSED_ROWS, 128, 256})),
            "rows of a tile; below 128 (`split_k`) or no multiple of 64 (`wgmma`) operands "
            "are swapped",
        ),
        Field("tile_n", TILE_COLUMNS, "columns of a tile"),
        Field("stages", tuple(STAGES), "steps along K in flight"),
        Field(
            "cluster_m",
            CLUSTER_EXTENTS,
            "tiles of a cluster along M, which share B by multicast (`wgmma`, `split_k`)",
        ),
        Field(
            "cluster_n",
            CLUSTER_EXTENTS,
            "tiles of a cluster along N, which share A by multicast (`wgmma`, `split_k`)",
        ),
        Field(
            "cluster_k",
            (1, 2, 4, 8),
            "CTAs of a cluster that split K and sum in shared memory (`split_k`)",
        ),
        Field("splits", COUNTS, "clusters that split K"),
        Field("split_method", SPLIT_METHODS, "how clusters combine sums (split-K, stream-K)"),
        Field("vector_width", (1, 2, 4, 8), "columns per access of the epilogue"),
        Field(
            "ping_pong",
            (False, True),
            "whether each of two warpgroups has its own tile, so that epilogues overlap "
            "with GEMMs (`wgmma`)",
        ),
        Field(
            "epilogue_smem",
            (False, True),
            "whether the epilogue's tensors are staged in shared memory (`wgmma`)",
        ),
        Field("raster_group", RASTER_GROUPS, "tile rows per raster group (`wgmma`)"),
        Field(
            "workspace_dtype",
            PARTIALS,
            "type of split-K partial sums in the workspace: `f32`, or `half`, the 16-bit "
            "type of the result",
        ),
    )

    def setting(self, name: str) -> Setting:
        """Return the value of a free field, also of one that only other kernels have."""
        return getattr(self, name) if hasattr(self, name) else self.lacking[name].value

    @property
    def written(self) -> dict[str, Any]:
        """Return all fields as dumps write them, including those of other kernels."""
        own = {**super().written, "kernel": self.kernel}
        others = {name: lacking.value for name, lacking in self.lacking.items()}
        found = {name: own.get(name, others.get(name, False)) for name in _WRITTEN}
        return {**found, **own}

    @classmethod
    def depth(cls, problem: Factors, rows: int) -> int:
        """Return the elements of K per step, for a tile with the given number of rows."""
        del problem, rows
        return cls.tile["tile_k"]

    @classmethod
    def tile_of(cls, problem: Factors, rows: int) -> dict[str, Any]:
        """Return the fields that follow from the operands and the rows of a tile."""
        return {**cls.tile, "tile_k": cls.depth(problem, rows)}

    @property
    def template(self) -> str:
        """Return the name of the template."""
        return f"matmul_{self.kernel}"

    @property
    def threads(self) -> int:
        """Return the threads of a CTA."""
        return 256

    @property
    def swap_ab(self) -> bool:
        """Return whether wgmma swaps the roles of A and B."""
        return False

    @property
    def products(self) -> int:
        """Return how many GEMMs share the columns of a tile."""
        return 1

    @property
    def columns(self) -> int:
        """Return how many columns of the result a tile covers."""
        return self.tile_n // self.products

    @property
    def cluster_m(self) -> int:
        """Return the tiles of a cluster along M, which share B by multicast."""
        return 1

    @property
    def cluster_n(self) -> int:
        """Return the tiles of a cluster along N, which share A by multicast."""
        return 1

    @property
    def cluster_k(self) -> int:
        """Return the CTAs of a cluster that split K."""
        return 1

    @property
    def ctas(self) -> int:
        """Return the CTAs of a cluster, which split K or share an operand."""
        return self.cluster_k * self.cluster_m * self.cluster_n

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the supported numbers of neighbouring columns per thread."""
        return QUADS

    def epilogue_width(self, product: Product) -> int:
        """Return the number of neighbouring columns per thread."""
        del product
        return self.vector_width

    def staged_tensors(self, product: Product, facts: Facts) -> tuple[StagedTensor, ...]:
        """Return the epilogue's tensors whose rows are staged in shared memory."""
        del product, facts
        return ()

    @property
    def accumulators(self) -> int:
        """Return the accumulators per thread."""
        return self.tile_m * self.tile_n // self.threads

    @property
    def words_in_flight(self) -> int | None:
        """Return the operand words in flight per thread; None: those of the template."""
        return None

    @property
    def has_stages(self) -> bool:
        """Return whether the kernel supports this number of stages."""
        return self.stages > 1

    def grid(self, tiles: Dim, target: Target) -> tuple[Dim, Dim, Dim]:
        """Return the CTAs along each axis; tiles: or pairs of tiles, if a cluster has two."""
        del target
        return tiles * self.ctas, dim(1), dim(1)

    # -- how the partial sums of a tile are combined

    @property
    def is_serial(self) -> bool:
        """Return whether the clusters of a tile wait for each other."""
        return False

    @property
    def has_second(self) -> bool:
        """Return whether a separate kernel adds the partial sums of a tile's clusters."""
        return False

    @property
    def leaves_halves(self) -> bool:
        """Return whether the clusters of a tile store 16-bit partial sums in the result's type."""
        return False

    @property
    def in_arrival_order(self) -> bool:
        """Return whether the clusters of a tile add their partial sums in arrival order."""
        return False

    @property
    def keeps_partials_in_l2(self) -> bool:
        """Return whether so few tiles have partial sums that these stay in L2."""
        return False

    def summed_tiles(self, tiles: Dim, target: Target) -> Dim:
        """Return an upper bound on the tiles that have partial sums."""
        del target
        return tiles

    @property
    def summed_splits(self) -> int:
        """Return the partitions of K of most tiles."""
        return self.splits

    @property
    def part_of_k(self) -> tuple[int, int]:
        """Return the elements of K that a summand accumulates, and a cluster's summands."""
        return self.tile_k, self.cluster_k

    @property
    def splitters(self) -> str:
        """Return what splits K of a tile, or an empty string if the kernel takes no such count."""
        return ""


@dataclass(frozen=True)
class Sizes:
    """The extents of a GEMM at hint sizes."""

    batches: int
    m: int
    n: int
    k: int

    @property
    def products(self) -> float:
        """Return the number of multiply-adds."""
        return float(self.batches) * self.m * self.n * self.k

    def tiles(self, parameters: MatmulParameters) -> int:
        """Return the number of output tiles."""
        rows, columns = -(-self.m // parameters.tile_m), -(-self.n // parameters.columns)
        return self.batches * rows * columns

    def clusters(self, p: MatmulParameters) -> int:
        """Return the number of clusters, with tiles that may be out of bounds."""
        rows, columns = -(-self.m // p.tile_m), -(-self.n // p.columns)
        return self.batches * -(-rows // p.cluster_m) * -(-columns // p.cluster_n)


def sizes_of(problem: Product, hints: Mapping[str, int]) -> Sizes:
    """Return the extents at hint sizes."""
    dims = (problem.batches, problem.m, problem.n, problem.k)
    sizes = Sizes(*(d.evaluate(hints) for d in dims))
    if problem.groups is None:
        return sizes
    count = max(1, problem.groups.count.evaluate(hints))
    if problem.cuts == "depth":
        return replace(sizes, k=-(-sizes.k // count))
    return replace(sizes, m=sizes.m + count * 64 if sizes.m else 0)  # half a tile more per group


def coordinate_guards(extents: Iterable[Dim]) -> tuple[Guard, ...]:
    """Return the guards that keep bulk copy coordinates within 32 bits."""
    because = "coordinates of bulk tensor copies have 32 bits"
    return tuple(Guard(e, "<=", MOST_COORDINATE, because) for e in extents if not e.is_const)


def divides(value: Dim, by: int) -> bool:
    """Return whether a number divides a size for all values of its dims."""
    return all(c % by == 0 for _, c in value.terms)
