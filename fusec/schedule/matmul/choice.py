"""What may be chosen of a matrix product: the base of its kernels' records, and what all have."""

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
"""The kernels' names in files; records.py has the record of each."""
MOST_COORDINATE = 2**31 - 1 - 256
"""Coordinates in a tensor map are ints, also those of what a last tile has too much."""
SWAP_AB_ROWS = tuple(r for r in range(16, 241, 16) if r != 128)
"""Rows of a tile of `split_k` whose operands are swapped; its columns are the rows of wgmma."""
TRANSPOSED_ROWS = tuple(r for r in range(16, 241, 8) if r % 64)
"""The same of `wgmma`, any that are no rows of other tiles."""
MOST_SWAP_AB_ROWS = 112
"""Rows of such a tile with 256 columns, whose sums a thread can hold."""
SPLIT_METHODS = tuple(MATMUL_METHODS)
"""How the clusters of a tile combine their sums; with `stream_k` the steps of all tiles are divided
evenly among the SMs, so that two share a tile where one's range ends."""
COMPARED_METHODS = tuple(m.name for m in MATMUL_METHODS.values() if m.compared)
"""Those that are compared by price."""
TURNS = tuple(m.name for m in MATMUL_METHODS.values() if m.is_serial)
"""The methods by which clusters wait for each other."""
UNORDERED = tuple(m.name for m in MATMUL_METHODS.values() if m.on_request)
"""Those by which sums are added in arrival order, so that results differ between runs: only
where that is asked for."""
HALVED = tuple(
    name
    for rounding in (HalfPartials.ONCE, HalfPartials.EACH_ADD)
    for name, method in MATMUL_METHODS.items()
    if method.halves is rounding
)
"""The methods that have work buffers of a 16-bit type; by the last each turn rounds to it again."""
CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4))
"""Tile rows and columns of a cluster that are compared: CTAs of a row share A, of a column B."""
CLUSTER_EXTENTS = (1, 2, 4)
MOST_CTAS = 8
"""CTAs of a cluster that every GPU with clusters supports."""
RASTER_GROUP = 8
RASTER_GROUPS = (1, 2, 4, 8, 16, 32, 64)
"""Tile rows per raster group."""
STAGES = range(1, 17)
TILE_COLUMNS = tuple(range(8, 257, 8))
"""Columns of a tile, of any kernel."""
QUADS, OCTETS = (4, 2, 1), (8, 2, 1)
"""Neighbouring columns that a thread has: 2 as the tensor cores leave them, 8 after an exchange, 4
where sums go through shared memory."""


class Factors(Protocol):
    """What of a product's factors the depth of a step follows from: `Traits` has it."""

    @property
    def dtype(self) -> DType | None:
        """Return the type that tensor cores multiply, if they do."""
        ...

    @property
    def is_narrow(self) -> bool:
        """Return whether both are 8-bit floats."""
        ...

    @property
    def is_dual(self) -> bool:
        """Return whether there is a second B."""
        ...

    @property
    def has_converted_weights(self) -> bool:
        """Return whether B is integers."""
        ...

    @property
    def is_b_k_major(self) -> bool:
        """Return whether neighbours along K are neighbours in B's memory."""
        ...


@dataclass(frozen=True)
class Lacking:
    """The value of a field that a kernel does not have, and why it cannot have another."""

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
"""Of the free fields that only some kernels have."""
_WRITTEN = (
    "kernel", "tile_m", "tile_n", "tile_k", "stages", "cluster_m", "cluster_n", "cluster_k",
    "splits", "split_method", "vector_width", "ping_pong", "epilogue_smem", "raster_group", "dual",
    "converted", "wide_index",
)  # fmt: skip
"""The fields that dumps have of any kernel, in their order."""


@dataclass(frozen=True)
class MatmulParameters(Parameters):
    """The choices of a matrix product that every kernel has; the record of each adds its own.

    tile_k: K of one step of a CTA; splits: parts of K of a tile, whose sums meet in memory;
    converted: whether B is 8-bit integers, which are made halves in registers; wide_index: 64-bit
    addresses. kernel: its name in files; tile: fields that follow from it; tile_columns: the tile's
    columns that it has; most_splits: its parts of K; uses_tma: whether bulk tensor copies feed
    wgmma; loads_chunks: whether it loads operands in chunks of 16 bytes, where they lie so;
    on_tensor_cores: whether these multiply; has_l2_hints: whether copies of what is read once say
    so.
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
        """Return all fields as dumps write them, those of other kernels among them."""
        own = {**super().written, "kernel": self.kernel}
        others = {name: lacking.value for name, lacking in self.lacking.items()}
        found = {name: own.get(name, others.get(name, False)) for name in _WRITTEN}
        return {**found, **own}

    @classmethod
    def depth(cls, problem: Factors, rows: int) -> int:
        """Return the elements of K of a step, of a tile of so many rows."""
        del problem, rows
        return cls.tile["tile_k"]

    @classmethod
    def tile_of(cls, problem: Factors, rows: int) -> dict[str, Any]:
        """Return the fields that follow from what is multiplied and from a tile's rows."""
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
        """Return whether wgmma takes columns of B where it takes rows of A otherwise."""
        return False

    @property
    def products(self) -> int:
        """Return the products whose columns share a tile."""
        return 1

    @property
    def columns(self) -> int:
        """Return the columns of the result that a tile has."""
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
        """Return the CTAs of a cluster, which sum together or share an operand."""
        return self.cluster_k * self.cluster_m * self.cluster_n

    @property
    def widths(self) -> tuple[int, ...]:
        """Return how many neighbouring columns a thread may have."""
        return QUADS

    def epilogue_width(self, product: Product) -> int:
        """Return how many neighbouring columns a thread has."""
        del product
        return self.vector_width

    def staged_tensors(self, product: Product, facts: Facts) -> tuple[StagedTensor, ...]:
        """Return the epilogue's tensors that go through shared memory by rows."""
        del product, facts
        return ()

    @property
    def accumulators(self) -> int:
        """Return the sums of a tile that a thread holds."""
        return self.tile_m * self.tile_n // self.threads

    @property
    def words_in_flight(self) -> int | None:
        """Return the words of operands that a thread has in flight; None: those of the template."""
        return None

    @property
    def has_stages(self) -> bool:
        """Return whether the kernel has so many stages."""
        return self.stages > 1

    def grid(self, tiles: Dim, target: Target) -> tuple[Dim, Dim, Dim]:
        """Return the CTAs along each axis; tiles: or the pairs of those that a cluster takes."""
        del target
        return tiles * self.ctas, dim(1), dim(1)

    # -- how the sums of the parts of a tile meet

    @property
    def is_serial(self) -> bool:
        """Return whether the clusters of a tile wait for each other."""
        return False

    @property
    def has_second(self) -> bool:
        """Return whether a kernel of its own adds up what the clusters of a tile have left."""
        return False

    @property
    def leaves_halves(self) -> bool:
        """Return whether the clusters of a tile round their sums to the result's 16-bit type."""
        return False

    @property
    def in_arrival_order(self) -> bool:
        """Return whether the clusters of a tile add to its sums whenever they are done."""
        return False

    @property
    def keeps_partials_in_l2(self) -> bool:
        """Return whether so few tiles are summed of parts that these never leave L2."""
        return False

    def summed_tiles(self, tiles: Dim, target: Target) -> Dim:
        """Return how many of all tiles are summed of parts at most."""
        del target
        return tiles

    @property
    def summed_splits(self) -> int:
        """Return the parts of K of most tiles."""
        return self.splits

    @property
    def part_of_k(self) -> tuple[int, int]:
        """Return the elements of K that one summand takes at a time, and the summands of a CTA's or
        a cluster's sum.
        """
        return self.tile_k, self.cluster_k

    @property
    def splitters(self) -> str:
        """Return what shares K of a tile, if the kernel is told how many do."""
        return ""


@dataclass(frozen=True)
class Sizes:
    """The extents of a product at hint sizes."""

    batches: int
    m: int
    n: int
    k: int

    @property
    def products(self) -> float:
        """Return the multiply-adds."""
        return float(self.batches) * self.m * self.n * self.k

    def tiles(self, parameters: MatmulParameters) -> int:
        """Return the output tiles."""
        rows, columns = -(-self.m // parameters.tile_m), -(-self.n // parameters.columns)
        return self.batches * rows * columns

    def clusters(self, p: MatmulParameters) -> int:
        """Return the clusters that have a tile of every CTA, or beyond the result."""
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
    """Return the guards that keep the coordinates of copies in bulk within 32 bits."""
    because = "coordinates of bulk tensor copies have 32 bits"
    return tuple(Guard(e, "<=", MOST_COORDINATE, because) for e in extents if not e.is_const)


def divides(value: Dim, by: int) -> bool:
    """Return whether a number divides a size, whatever the sizes of dims."""
    return all(c % by == 0 for _, c in value.terms)
