"""What may be chosen of a matrix product: its kernel, and that one's tile, stages and splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from fusec.index.access import Facts
from fusec.ir.dim import Dim
from fusec.schedule.matmul_access import has_tensor_map, is_chunked
from fusec.schedule.matmul_persistent import no_persistent
from fusec.schedule.matmul_problem import Product
from fusec.schedule.matmul_shared import shared_layout, swizzled_layout
from fusec.schedule.matmul_staged import PAIR
from fusec.schedule.matmul_vector import (
    COLUMNS,
    MOST_ROWS,
    PART,
    WARPS,
    no_vector,
    vector_shapes,
    vector_trouble,
)
from fusec.schedule.pressure import RESERVED
from fusec.schedule.space import COUNTS, Field, Parameters
from fusec.segment.protocol import Refusal
from fusec.target import Target

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
MOST_BESIDE = 64
"""Of these rows as many as leave registers for two CTAs of an SM."""
PERSISTENT = (
    (128, 256, False), (256, 128, False), (128, 192, False), (128, 128, True), (128, 160, True),
    (128, 192, True), (128, 128, False), (128, 64, False),
)  # fmt: skip
"""Rows and columns of the tiles of products that are not split, and whether by ping-pong."""
SPLIT_TILES = ((128, 256), (128, 128), (128, 64), (64, 128), (32, 128), (16, 128))
"""Rows and columns of the tiles of split products; those of other rows than 128 swap operands."""
SPLIT_METHODS = ("slices", "serial_tma", "serial", "two_kernel")
"""How the clusters of a tile sum: the last to arrive adds all up, or all take turns, by bulk
reductions or by loads and stores, or another kernel adds all up."""
MULTICASTS = ("none", "b", "a")
"""The operand that both CTAs of a cluster multiply: neighbouring tiles along N share A."""
BAND = 8
BANDS = (1, 2, 4, 8, 16, 32, 64)
"""Tile rows that are walked together."""
STAGES = range(1, 17)
LEAST_STEPS = 16
"""Steps along K that are worth two CTAs."""
WIDTHS = {
    "wgmma": (8, 2, 1), "split_k": (4, 2, 1), "vector": (4, 2, 1), "mma": (8, 2, 1),
    "simt": (4, 2, 1),
}  # fmt: skip
"""Neighbouring columns that a thread has: 2 as the tensor cores leave them, 8 after an exchange, 4
where sums go through shared memory."""
MULTIPLIERS = 256
"""Threads of a Hopper kernel that multiply: two warpgroups, 64 rows of a tile each."""


@dataclass(frozen=True)
class MatmulParameters(Parameters):
    """The choices of a matrix product.

    kernel: `wgmma` (Hopper, one CTA per SM over all tiles), `split_k` (Hopper, K split), `vector`
    (mma.sync on a stream over B), `mma` (mma.sync) or `simt`; tile_m, tile_n, tile_k: one step of a
    CTA, of `split_k` with swapped operands unless it has 128 rows; stages: steps in flight;
    cluster: CTAs that sum along K in shared memory; splits: clusters of a tile; split_method: how
    these sum;
    vector_width: columns per access of the epilogue; wide_index: 64-bit addresses.
    Of `wgmma`: ping_pong: whether each of both warpgroups has a tile of its own, whose epilogue
    runs under the other's products; multicast: the operand that two neighbouring tiles, and CTAs of
    a cluster, load together; staged: whether rows of the epilogue's tensors pass through shared
    memory; band: tile rows that are walked together.
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
    wide_index: bool = False
    free: ClassVar = (
        Field("kernel", tuple(TILES)),
        Field("tile_m", tuple(sorted({8, *SWAPPED_ROWS, 128, 256}))),
        Field("tile_n", TILE_COLUMNS["wgmma"]),
        Field("stages", tuple(STAGES)),
        Field("cluster", (1, 2, 4, 8)),
        Field("splits", COUNTS),
        Field("split_method", SPLIT_METHODS),
        Field("vector_width", (1, 2, 4, 8)),
        Field("ping_pong", (False, True)),
        Field("multicast", MULTICASTS),
        Field("staged", (False, True)),
        Field("band", BANDS),
    )

    @property
    def swapped(self) -> bool:
        """Return whether wgmma takes columns of B where it takes rows of A otherwise."""
        return self.kernel == "split_k" and self.tile_m in SWAPPED_ROWS

    @property
    def pair_rows(self) -> int:
        """Return the tile rows of a cluster whose CTAs share an operand, else 1."""
        return 2 if self.multicast == "b" else 1

    @property
    def pair_columns(self) -> int:
        """Return the tile columns of such a cluster, else 1."""
        return 2 if self.multicast == "a" else 1

    @property
    def ctas(self) -> int:
        """Return the CTAs of a cluster, which sum together or share an operand."""
        return self.cluster * self.pair_rows * self.pair_columns

    @property
    def row_blocks(self) -> int:
        """Return how many times 64 rows a warpgroup of `wgmma` multiplies."""
        return self.tile_m // (64 if self.ping_pong else 128)

    @property
    def takes_turns(self) -> bool:
        """Return whether the clusters of a tile wait for each other."""
        return self.splits > 1 and self.split_method in ("serial_tma", "serial")

    @property
    def threads(self) -> int:
        """Return the threads of a CTA."""
        return 384 if self.kernel in HOPPER else 256


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
        rows, columns = -(-self.m // parameters.tile_m), -(-self.n // parameters.tile_n)
        return self.batches * rows * columns


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


def kernels(problem: Product, target: Target, sizes: Sizes, facts: Facts) -> dict[str, str]:
    """Return each kernel with the reason why it cannot run the product, empty where it can."""
    found = " and ".join(dict.fromkeys(str(o.buffer.dtype) for o in (problem.a, problem.b)))
    halves = f"{found} operands have no tensor-core kernel" if problem.dtype is None else ""
    hopper = halves or ("" if target.has_wgmma else f"{target.arch} has no wgmma")
    if not hopper and problem.is_converted:
        hopper = f"copies in bulk do not convert {found} operands"
    if not hopper and not all(has_tensor_map(o, facts) for o in (problem.a, problem.b)):
        hopper = "an operand's rows do not begin at multiples of 16 bytes"
    if max(sizes.m, sizes.n, sizes.k) > MOST_COORDINATE:
        hopper = hopper or "coordinates of copies in bulk have 32 bits"
    empty = min(sizes.batches, sizes.m, sizes.n, sizes.k) == 0
    if empty:
        hopper = halves = "nothing is multiplied"
    if problem.cuts == "depth":
        hopper = hopper or "copies in bulk do not end where a group of summed elements does"
    split = hopper or ("groups are not split" if problem.cuts else "")
    vector = halves
    if not vector:
        chunked = all([is_chunked(problem, o, facts) for o in (problem.a, problem.b)])
        vector = no_vector(problem, chunked=chunked)
    return {"wgmma": hopper, "split_k": split, "vector": vector, "mma": halves, "simt": ""}


def compared(
    problem: Product,
    hints: Mapping[str, int],
    reasons: Mapping[str, str],
    target: Target,
    kernel: str = "",
) -> Iterator[MatmulParameters]:
    """Yield the parameters to price, of one kernel or of those that can run the product.

    Where tensor cores can, nothing else is worth a price, nor mma where there is wgmma.
    """
    sizes = sizes_of(problem, hints)
    steps = -(-sizes.k // 64)
    if kernel:
        steps = max(steps, LEAST_STEPS)
    able = [k for k, reason in reasons.items() if not reason]
    if not kernel and len(able) > 1:
        able.remove("simt")
    if not kernel and "wgmma" in able:
        able.remove("mma")
    if not kernel and "vector" in able and sizes.m > MOST_ROWS:
        able.remove("vector")
    for name in able if not kernel else {kernel} & {*able}:
        width = _width(problem, name)
        for shape in _shapes(name, sizes, steps, target.sms):
            deep = shape.stages
            if name in HOPPER:
                unsplit = replace(shape, cluster=1, splits=1, split_method=SPLIT_METHODS[0])
                deep = most_stages(unsplit, problem, target.shared)
            made = replace(shape, stages=deep, vector_width=PAIR if shape.staged else width)
            yield made
            if made.swapped and made.tile_m <= MOST_BESIDE:
                # Two CTAs beside each other: together they have as much in flight.
                half = most_stages(made, problem, target.shared // 2 - RESERVED // 2)
                yield replace(made, stages=half)


def _shapes(kernel: str, sizes: Sizes, steps: int, sms: int) -> Iterator[MatmulParameters]:
    if kernel == "wgmma":
        yield from _persistent()
    elif kernel == "split_k":
        for rows, columns in dict.fromkeys((*SPLIT_TILES, *_fitting(sizes.m))):
            tile = MatmulParameters("split_k", rows, columns, 64, 2)
            yield from _splits(tile, sizes.tiles(tile), steps, sms)
    elif kernel == "vector":
        for rows, columns, stages in vector_shapes(sizes.m):
            tile = MatmulParameters("vector", rows, columns, TILES["vector"]["tile_k"], stages)
            most = min(-(-sizes.k // tile.tile_k), max(1, 8 * sms // sizes.tiles(tile)))
            yield from (replace(tile, splits=n) for n in range(1, most + 1))
    elif kernel == "mma":
        yield MatmulParameters("mma", 128, 128, 32, 3)
    else:
        yield MatmulParameters("simt", 64, 64, 16, 1)


def _fitting(m: int) -> Iterator[tuple[int, int]]:
    """Yield the swapped tiles of which one or two hold the rows, where others have more padding."""
    padded = next((r for r in (16, 32, 64) if r >= m), -(-m // 128) * 128)
    for tiles in (1, 2):
        rows = -(-m // (16 * tiles)) * 16
        if rows in SWAPPED_ROWS and rows * tiles < padded:
            yield rows, MULTIPLIERS // 2


def _persistent() -> Iterator[MatmulParameters]:
    """Yield the tiles of a kernel with one CTA per SM, and what it does with them."""
    for rows, columns, ping_pong in PERSISTENT:
        tile = MatmulParameters("wgmma", rows, columns, 64, 2, ping_pong=ping_pong)
        for multicast in MULTICASTS:
            for staged in (True, False):
                yield replace(tile, multicast=multicast, staged=staged)


def _splits(tile: MatmulParameters, tiles: int, steps: int, sms: int) -> Iterator[MatmulParameters]:
    """Yield every split of K whose CTAs have work and come in two waves at most."""
    for cluster in (1, 2, 4, 8):
        most = min(2 * steps // LEAST_STEPS, max(1, 2 * sms // tiles)) // cluster
        for splits in range(1, most + 1):
            if splits * cluster > 1 or tile.swapped:
                for method in SPLIT_METHODS[:1] if splits == 1 else SPLIT_METHODS[:2]:
                    yield replace(tile, cluster=cluster, splits=splits, split_method=method)


def most_stages(p: MatmulParameters, problem: Product, shared: int) -> int:
    """Return the most stages of a Hopper kernel that fit in an SM: more always are faster."""
    fits = (s for s in STAGES if swizzled_layout(replace(p, stages=s), problem).bytes <= shared)
    return max(fits, default=2)


def relied_on(
    problem: Product, parameters: MatmulParameters, target: Target, hints: Mapping[str, int]
) -> Facts:
    """Return the divisibility that a kernel's copies rely on."""
    facts = Facts(hints)
    if parameters.kernel in HOPPER:
        kernels(problem, target, sizes_of(problem, hints), facts)
    elif parameters.kernel in ("mma", "vector"):
        for operand in (problem.a, problem.b):
            is_chunked(problem, operand, facts)
    return facts


def _width(problem: Product, kernel: str) -> int:
    """Return the widest access of the epilogue whose columns divide N."""
    columns = problem.n
    if columns.is_const and columns.value == 0:
        return 1
    return next(w for w in WIDTHS[kernel] if _divides(columns, w))


def _divides(value: Dim, by: int) -> bool:
    return all(c % by == 0 for _, c in value.terms)


def trouble(
    p: MatmulParameters,
    problem: Product,
    target: Target,
    hints: Mapping[str, int],
    reasons: Mapping[str, str],
) -> Refusal | None:
    """Return the rule by which no kernel has some parameters, or None.

    reasons: for each kernel why it cannot run the product, if it cannot.
    """
    if reasons[p.kernel]:
        return Refusal("kernel", reasons[p.kernel])
    columns = TILE_COLUMNS[p.kernel]
    if p.tile_n not in columns:
        options = ", ".join(map(str, columns))
        return Refusal("tile", f"kernel `{p.kernel}` has no tile_n {p.tile_n}, but {options}")
    if p.splits == 1 and p.split_method != SPLIT_METHODS[0]:
        return Refusal("splits", "one cluster has nobody to hand its sums to")
    swapped = _no_swap(p, problem)
    if swapped or (p.tile_m == 8) > (p.kernel == "vector"):
        return Refusal("tile", swapped or f"kernel `{p.kernel}` has no tile_m 8")
    own = no_persistent(p, problem)
    if own is not None:
        return own
    streamed = vector_trouble(p) if p.kernel == "vector" else None
    if streamed is not None:
        return streamed
    if p.kernel not in ("split_k", "vector") and (p.cluster, p.splits) != (1, 1):
        return Refusal("splits", f"kernel `{p.kernel}` does not split K")
    steps = -(-sizes_of(problem, hints).k // p.tile_k)
    if p.cluster * p.splits > max(1, steps):
        because = f"{p.cluster * p.splits} CTAs share {steps} steps along K"
        return Refusal("splits", because)
    if p.vector_width not in WIDTHS[p.kernel]:
        because = f"kernel `{p.kernel}` has no vector_width {p.vector_width}"
        return Refusal("access", because)
    if not _divides(problem.n, p.vector_width):
        return Refusal("access", f"{p.vector_width} does not divide {problem.n} columns")
    if p.kernel != "vector" and (p.stages == 1) != (p.kernel == "simt"):
        return Refusal("stages", f"kernel `{p.kernel}` has no {p.stages} stages")
    if shared_bytes(p, problem) > target.shared:
        because = f"{shared_bytes(p, problem)} bytes of shared memory; an SM has {target.shared}"
        return Refusal("shared memory", because)
    return None


def _no_swap(p: MatmulParameters, problem: Product) -> str:
    """Return why a tile cannot have so few rows, empty where it can."""
    if not p.swapped:
        return ""
    if p.tile_n != MULTIPLIERS // 2:
        return f"with {p.tile_m} rows, two warpgroups multiply 128 columns, not {p.tile_n}"
    if p.tile_m % 64 and not problem.a.k_major:
        return f"`{problem.a.buffer.name}` lies in blocks of 64 rows, not {p.tile_m}"
    if p.tile_m * p.tile_n % (4 * MULTIPLIERS * p.cluster):
        return f"{p.cluster} CTAs of a cluster have not as many quads of sums of {p.tile_m} rows"
    return ""


def shared_bytes(p: MatmulParameters, problem: Product) -> int:
    """Return the dynamic shared memory of a CTA."""
    return shared_layout(p, problem).bytes
