"""What may be chosen of a matrix product: its kernel, and that one's tile, stages and splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from fusec.dataclasses import dataclass, field, replace
from fusec.ir.dim import Dim
from fusec.schedule.grid_methods import BULK, MATMUL_METHODS, PARTIALS, HalfPartials
from fusec.schedule.matmul.limits import COLUMNS, PART, RANGES, WARPS
from fusec.schedule.matmul.problem import Product
from fusec.schedule.plan import Guard
from fusec.schedule.space import COUNTS, Field, Parameters

HOPPER = ("wgmma", "split_k")
"""The kernels of copies in bulk into wgmma."""
MOST_COORDINATE = 2**31 - 1 - 256
"""Coordinates in a tensor map are ints, also those of what a last tile has too much."""
TILES = {
    "wgmma": {"tile_k": 64},
    "split_k": {"tile_k": 64},
    "vector": {"tile_k": WARPS * PART},
    "mma": {"tile_m": 128, "tile_k": 32},
    "simt": {"tile_m": 64, "tile_k": 16},
}
"""Fields that follow from the kernel."""
TILE_COLUMNS = {
    "wgmma": tuple(range(8, 257, 8)),
    "split_k": (64, 128, 256),
    "vector": COLUMNS,
    "mma": (128,),
    "simt": (64,),
}
SWAPPED_ROWS = tuple(r for r in range(16, 241, 16) if r != 128)
"""Rows of a tile whose operands are swapped; its columns are the rows of wgmma."""
TURNED_ROWS = tuple(r for r in range(16, 241, 8) if r % 64)
"""The same of `wgmma`, any that are no rows of other tiles."""
MOST_SWAPPED_ROWS = 112
"""Rows of such a tile with 256 columns, whose sums a thread can hold."""
SPLIT_METHODS = tuple(MATMUL_METHODS)
"""How the clusters of a tile combine their sums; with `ranges` the steps of all tiles are divided
evenly among the SMs, so that two share a tile where one's range ends."""
COMPARED_METHODS = tuple(m.name for m in MATMUL_METHODS.values() if m.compared)
"""Those that are compared by price."""
TURNS = tuple(m.name for m in MATMUL_METHODS.values() if m.takes_turns)
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
CLUSTERS = {
    "none": (1, 1), "b": (2, 1), "a": (1, 2), "both": (2, 2),
    "4x1": (4, 1), "1x4": (1, 4), "4x2": (4, 2), "2x4": (2, 4),
}  # fmt: skip
"""Tile rows and columns of a cluster, by what its CTAs load together: those of a row A, those of a
column B."""
MULTICASTS = tuple(CLUSTERS)
BAND = 8
BANDS = (1, 2, 4, 8, 16, 32, 64)
"""Tile rows that are walked together."""
STAGES = range(1, 17)
WIDTHS = {
    "wgmma": (8, 2, 1), "split_k": (4, 2, 1), "vector": (4, 2, 1), "mma": (8, 2, 1),
    "simt": (4, 2, 1),
}  # fmt: skip
"""Neighbouring columns that a thread has: 2 as the tensor cores leave them, 8 after an exchange, 4
where sums go through shared memory."""
MULTIPLIERS = 256
"""Threads of a Hopper kernel that multiply: two warpgroups, 64 rows of a tile each."""
MOST_PARTS = 16
"""Parts along K of a tile of `wgmma` in the last wave."""
THREE_TIMES = 192
"""Rows of a tile of `wgmma` that three warpgroups multiply, 64 each."""


@dataclass(frozen=True)
class MatmulParameters(Parameters):
    """The choices of a matrix product.

    tile_k: K of one step of a CTA; wide_index: 64-bit addresses; joined: whether half of a tile's
    columns are those of a second product; converted: whether B is 8-bit integers, which are made
    halves in registers, so that operands are swapped whatever the rows.
    """

    kernel: str
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    cluster: int = 1
    splits: int = 1
    split_method: str = SPLIT_METHODS[0]
    vector_width: int = 1
    ping_pong: bool = False
    multicast: str = MULTICASTS[0]
    staged: bool = False
    band: int = BAND
    joined: bool = False
    converted: bool = False
    wide_index: bool = False
    partials: str = field(default=PARTIALS[0], metadata={"omitted": True})
    free: ClassVar = (
        Field("kernel", tuple(TILES), "the kernel (`docs/products.md`)"),
        Field(
            "tile_m",
            tuple(sorted({8, *SWAPPED_ROWS, *TURNED_ROWS, 128, 256})),
            "rows of a tile; below 128 (`split_k`) or no multiple of 64 (`wgmma`) operands "
            "are swapped",
        ),
        Field("tile_n", TILE_COLUMNS["wgmma"], "columns of a tile"),
        Field("stages", tuple(STAGES), "steps along K in flight"),
        Field("cluster", (1, 2, 4, 8), "CTAs of a cluster that split K and add in shared memory"),
        Field("splits", COUNTS, "clusters that split K"),
        Field("split_method", SPLIT_METHODS, "how these clusters add (split-K, stream-K)"),
        Field("vector_width", (1, 2, 4, 8), "columns per access of the epilogue"),
        Field(
            "ping_pong",
            (False, True),
            "whether each of two warpgroups has its own tile, so that epilogues overlap "
            "with GEMMs (`wgmma`)",
        ),
        Field(
            "multicast",
            MULTICASTS,
            "operand that the CTAs of a cluster load together, or the cluster's tiles along "
            "M and N (`wgmma`)",
        ),
        Field(
            "staged",
            (False, True),
            "whether the epilogue's tensors are staged in shared memory (`wgmma`)",
        ),
        Field("band", BANDS, "tile rows per group in the order of tiles (rasterization, `wgmma`)"),
        Field(
            "partials",
            PARTIALS,
            "type of split-K partial sums in the workspace: `f32`, or `half`, the 16-bit "
            "type of the result",
        ),
    )

    @property
    def swapped(self) -> bool:
        """Return whether wgmma takes columns of B where it takes rows of A otherwise."""
        if self.kernel == "wgmma":
            return self.tile_m in TURNED_ROWS
        return self.kernel == "split_k" and (self.converted or self.tile_m in SWAPPED_ROWS)

    @property
    def across(self) -> int:
        """Return the columns of one wgmma: those of a tile, or with swapped operands its rows."""
        return self.tile_m if self.swapped else self.tile_n

    @property
    def products(self) -> int:
        """Return the products whose columns share a tile."""
        return 2 if self.joined else 1

    @property
    def columns(self) -> int:
        """Return the columns of the result that a tile has."""
        return self.tile_n // self.products

    @property
    def pair_rows(self) -> int:
        """Return the tile rows of a cluster whose CTAs share an operand, else 1."""
        return CLUSTERS[self.multicast][0]

    @property
    def pair_columns(self) -> int:
        """Return the tile columns of such a cluster, else 1."""
        return CLUSTERS[self.multicast][1]

    @property
    def ctas(self) -> int:
        """Return the CTAs of a cluster, which sum together or share an operand."""
        return self.cluster * self.pair_rows * self.pair_columns

    @property
    def readers(self) -> int:
        """Return the CTAs of a cluster that read what one of them loads, of either operand."""
        return self.pair_rows + self.pair_columns - 1

    @property
    def consumers(self) -> int:
        """Return the warpgroups of a Hopper kernel that multiply."""
        return 3 if self.kernel == "wgmma" and self.tile_m == THREE_TIMES else 2

    @property
    def row_blocks(self) -> int:
        """Return how many times 64 rows, or swapped columns, a warpgroup of `wgmma` multiplies."""
        along = self.tile_n if self.swapped else self.tile_m
        return along // (64 if self.ping_pong else 64 * self.consumers)

    @property
    def sums(self) -> int:
        """Return the sums of a tile that a thread of `wgmma` holds."""
        return self.row_blocks * self.across // 2

    @property
    def widths(self) -> tuple[int, ...]:
        """Return how many neighbouring columns a thread may have."""
        return WIDTHS["split_k" if self.swapped else self.kernel]

    @property
    def moves_registers(self) -> bool:
        """Return whether who multiplies in `split_k` takes registers of who loads."""
        return self.kernel == "split_k" and self.converted and (self.tile_m > 128 or self.in_ranges)

    @property
    def takes_turns(self) -> bool:
        """Return whether the clusters of a tile wait for each other."""
        return self.splits > 1 and self.split_method in TURNS

    @property
    def in_bulk(self) -> bool:
        """Return whether they add their sums by reducing bulk copies."""
        return self.splits > 1 and MATMUL_METHODS[self.split_method].instruction == BULK

    @property
    def has_second(self) -> bool:
        """Return whether a kernel of its own adds up what the clusters of a tile have left."""
        return self.splits > 1 and self.split_method == "two_kernel"

    @property
    def leaves_halves(self) -> bool:
        """Return whether the clusters of a tile round their sums to the result's 16-bit type."""
        return self.partials == "half"

    @property
    def leaves_fragments(self) -> bool:
        """Return whether it takes sums from registers as wgmma leaves them."""
        return self.has_second and self.cluster == 1 and not self.swapped

    @property
    def in_arrival_order(self) -> bool:
        """Return whether the clusters of a tile add to its sums whenever they are done."""
        return self.splits > 1 and self.split_method in UNORDERED

    @property
    def requested(self) -> frozenset[str]:
        """Return the fields whose values only a schedule of the user's selects."""
        method = self.in_arrival_order or (self.leaves_halves and self.takes_turns)
        fields = [("split_method", method), ("partials", self.leaves_halves)]
        return frozenset(name for name, asked in fields if asked)

    @property
    def in_ranges(self) -> bool:
        """Return whether each SM has an equal range of the steps of all tiles."""
        return self.splits > 1 and self.split_method == RANGES

    @property
    def threads(self) -> int:
        """Return the threads of a CTA."""
        return 128 * (self.consumers + 1) if self.kernel in HOPPER else 256


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
        return self.batches * -(-rows // p.pair_rows) * -(-columns // p.pair_columns)


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
