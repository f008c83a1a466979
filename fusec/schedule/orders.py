"""The summation orders of each scheduler's kernels: the orders of a plan's sums, as data.

They match the kernels' templates and device/reduce.cuh term by term: on a host that rounds like a
GPU, `fusec.reference.errors.order.performed` returns the same bits
(tests/reference/test_planned_orders.py).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, ceildiv, dim, maximum
from fusec.ir.graph import Fusion, Node

if TYPE_CHECKING:
    from fusec.reference.errors.order import Order

WARP = 32
FP8_BITS = 13
"""Mantissa bits of 8-bit float sums that tensor cores keep (arXiv 2412.19437)."""
GROUP = 16
"""Terms along K that one tensor core instruction adds (PTX mma.m16n8k16, wgmma k16)."""
TF32_GROUP = 8
"""The same for TF32 (PTX mma.m16n8k8)."""
KEPT = ("f16", "bf16")
"""16-bit types of partial sums that the clusters of a split-K GEMM may store."""
TILES_PER_WARP = 32
"""Tile totals that a warp combines, as in device/scan_tiles.cuh."""
_MOST, _DEEPEST, _WIDEST, _LONGEST_RUN = 1 << 62, 64, 1 << 24, 64


@dataclass(frozen=True)
class PlannedStage:
    """A stage of an order, like `fusec.reference.errors.order.Stage`; chains may depend on sizes.

    arrives: whether the terms of a chain are added in arrival order, so that bits differ between
    runs; the number of roundings is that of the terms' order.
    """

    chain: Dim
    depth: int = 0
    width: int = 0
    run: int = 1
    cut: int = 0
    kept: str = field(default="", metadata={"omitted": True})
    rounded: str = field(default="", metadata={"omitted": True})
    arrives: bool = field(default=False, metadata={"omitted": True})

    def __str__(self) -> str:
        text = f"{self.width} chains" if self.width > 1 else "chains"
        text += f" of {self.chain}"
        if self.run > 1:
            text += f" in runs of {self.run}"
        if self.cut:
            text += f" within every {self.cut}"
        if self.arrives:
            text += " in arrival order"
        trees = [f"trees of depth {self.depth}"] if self.depth else []
        kept = [f"kept in {self.kept}"] if self.kept else []
        kept += [f"each turn rounds to {self.rounded}"] if self.rounded else []
        return ", ".join([*([text, *trees] if self.chain != 1 else trees or [text]), *kept])


@dataclass(frozen=True)
class PlannedOrder:
    """The order of a sum for all sizes of its plan; see `fusec.reference.errors.order`."""

    stages: tuple[PlannedStage, ...]
    group: int = 1
    bits: int = 0

    def at(self, sizes: Mapping[str, int]) -> Order:
        """Return the order at the given sizes."""
        from fusec.reference.errors.order import Order, Stage

        stages = (
            Stage(
                max(s.chain.evaluate(sizes), 1),
                *(s.depth, s.width, s.run, s.cut, s.kept, s.rounded),
            )
            for s in self.stages
        )
        return Order(tuple(stages), self.group, self.bits)

    @property
    def rounded_to(self) -> str:
        """Return the 16-bit type that partial sums are rounded to, or an empty string."""
        return next((t for s in self.stages for t in (s.kept, s.rounded) if t), "")

    @property
    def arrives(self) -> bool:
        """Return whether terms are added in arrival order, so that bits differ between runs."""
        return any(s.arrives for s in self.stages)

    def longest(self, sizes: Mapping[str, int]) -> int:
        """Return the length of the longest chain."""
        return max((s.chain.evaluate(sizes) for s in self.stages), default=1)

    def check(self, name: str) -> None:
        """Raise FusecError if no kernel adds the sum called `name` in such an order."""
        numbers: list[tuple[str, int | str, Container[int | str]]] = [
            ("group", self.group, (1, TF32_GROUP, GROUP, WARP))
        ]
        for stage in self.stages:
            numbers += [
                ("chain", stage.chain.value if stage.chain.is_const else 1, range(1, _MOST)),
                ("depth", stage.depth, range(_DEEPEST + 1)),
                ("width", stage.width, range(_WIDEST + 1)),
                ("run", stage.run, range(1, _LONGEST_RUN + 1)),
                ("cut", stage.cut, range(_MOST)),
                ("kept", stage.kept, ("", *KEPT)),
                ("rounded", stage.rounded, ("", *KEPT)),
                ("arrives", stage.arrives, (False, True)),
            ]
        for key, value, allowed in numbers:
            if value not in allowed:
                raise FusecError(f"`{key}` of the order of `{name}` cannot be {value}")

    def then(self, other: PlannedOrder) -> PlannedOrder:
        """Return the order of sums whose terms are sums in this order."""
        return PlannedOrder((*self.stages, *other.stages), self.group, self.bits)

    def __str__(self) -> str:
        kept = f" with {self.bits} bits" if self.bits else ""
        groups = [f"groups of {self.group}{kept}"] if self.group > 1 else []
        return ", then ".join([*groups, *(str(s) for s in self.stages)])


def is_sum(node: Node) -> bool:
    """Return whether a plan gives the order of a node; a scatter adds in its source's order."""
    combine = node.op.combine
    return node.op.family != "scatter" and combine is not None and combine.rounds


def of_all(segment: Fusion, order: PlannedOrder) -> dict[str, PlannedOrder]:
    """Return one order for all sums of a segment, by the names of their first results.

    Integer sums do not depend on arrival order.
    """
    exact = PlannedOrder(
        tuple(replace(s, arrives=False) for s in order.stages), order.group, order.bits
    )
    sums = (n for n in segment.nodes if is_sum(n))
    return {n.output.name: order if n.output.dtype.is_rounded else exact for n in sums}


def serial(count: Dim | int) -> PlannedStage:
    """Return the stage that adds neighbours sequentially."""
    return PlannedStage(_positive(dim(count)), width=1)


def _positive(value: Dim) -> Dim:
    return value if value.at_least(1) else maximum(value, 1)


def _depth(width: int) -> int:
    return max(width - 1, 0).bit_length()


def _dealt(count: Dim | int, width: int, *, depth: int, run: int = 1) -> PlannedStage:
    """Return terms distributed over `width` chains, and trees over neighbouring chains."""
    chain = ceildiv(ceildiv(count, run), width) * run
    return PlannedStage(_positive(chain), depth, width, run)


def _through_rows(first: PlannedStage, threads: int) -> tuple[PlannedStage, ...]:
    """Return what block_reduce_rows does to the chains of `threads` neighbours: warps in order."""
    return (first,) if threads <= WARP else (first, serial(threads // WARP))


def along_rows(
    columns: Dim,
    width: int,
    threads: int,
    splits: int = 1,
    fan: int = 0,
    *,
    shifted: bool = False,
    in_memory: PlannedStage | None = None,
) -> PlannedOrder:
    """Return the order of sums along rows in vectors of `width`, by `threads` in `splits` blocks.

    A thread adds all elements of its vectors sequentially; the last of `fan` blocks, a power of two
    or 0 for all, does so with their partial sums. shifted: vectors begin where they are aligned,
    and an unaligned element before or after them is added to a thread's sum, at any position.
    in_memory: how the blocks add their partial sums to one sum in memory, if they do.
    """
    depth = min(_depth(threads), _depth(WARP))
    first = _dealt(columns, threads * splits, depth=depth, run=width)
    if shifted:
        first = PlannedStage(first.chain + 1, depth, threads * splits)
    stages = _through_rows(first, threads)
    if in_memory is not None:
        return PlannedOrder((*stages, in_memory))
    for stage in _of_blocks(splits, fan, threads, depth):
        stages += _through_rows(stage, min(threads, stage.cut or threads))
    return PlannedOrder(stages)


def down_columns(
    rows: Dim,
    threads: int,
    splits: int = 1,
    fan: int = 0,
    *,
    in_memory: PlannedStage | None = None,
) -> PlannedOrder:
    """Return the order of sums down columns, by `threads` rows at a time in `splits` blocks.

    fan: the blocks whose partial sums one of them adds, a power of two, or 0 for all; in_memory:
    how the blocks add their partial sums to one sum in memory, if they do.
    """
    depth = _depth(threads)
    first = _dealt(rows, threads * splits, depth=depth)
    if in_memory is not None:
        return PlannedOrder((first, in_memory))
    return PlannedOrder((first, *_of_blocks(splits, fan, threads, depth)))


def _of_blocks(splits: int, fan: int, threads: int, depth: int) -> tuple[PlannedStage, ...]:
    """Return the stages of the last of `fan` blocks, which adds the parts of `splits` blocks."""
    if splits == 1:
        return ()
    if fan in (0, splits):
        return (_dealt(splits, threads, depth=depth),)
    within = replace(_dealt(fan, min(threads, fan), depth=min(depth, _depth(fan))), cut=fan)
    return (within, _dealt(-(-splits // fan), threads, depth=depth))


def along_rows_in_turns(columns: Dim, width: int, threads: int) -> PlannedOrder:
    """Return the order of sums along rows whose warps block_reduce_rows_in_turns combines."""
    first = _dealt(columns, threads, depth=min(_depth(threads), _depth(WARP)), run=width)
    warps = threads // WARP
    if warps <= 4:
        return PlannedOrder(_through_rows(first, threads))
    return PlannedOrder((first, PlannedStage(dim(1), max(3, _depth(warps)), 1)))


def in_ranges(
    rows: int, threads: int, ranges: int, finish_threads: int, cut: int = 0
) -> PlannedOrder:
    """Return the order of sums down columns in ranges of `rows` rows that a second kernel adds.

    threads: rows at a time; ranges: of the whole sum, which `finish_threads` threads add in
    parallel; cut: rows of a group, which begins its own range, in sums of several groups.
    """
    first = PlannedStage(dim(rows // threads), _depth(threads), threads, cut=cut)
    return PlannedOrder((first, _dealt(ranges, finish_threads, depth=_depth(finish_threads))))


def of_products(depth: Dim) -> PlannedOrder:
    """Return the summation order of GEMMs with one thread per result."""
    return PlannedOrder((PlannedStage(_positive(depth)),))


def of_tensor_cores(
    depth: Dim,
    tile: int,
    cluster: int = 1,
    splits: int = 1,
    *,
    groups: int = 1,
    promoted: bool = False,
    group: int = GROUP,
    kept: str = "",
    rounded: str = "",
    arrives: bool = False,
) -> PlannedOrder:
    """Return the summation order of GEMMs on tensor cores.

    tile: elements of K per step, which are distributed over `splits` clusters of `cluster` blocks;
    the sums of a cluster are added in the order of its blocks, those of clusters serially in ticket
    order, or in `groups` of neighbours whose sums are added then. promoted: for 8-bit floats, whose
    sums of a tile are added in f32; group: terms added by one instruction; kept: the type that the
    sums of clusters are rounded to before they are combined, empty for f32; rounded: the type that
    each addition but the last rounds to, empty for f32; arrives: whether clusters add in arrival
    order.
    """
    tiles = ceildiv(ceildiv(depth, tile), cluster * splits)
    stages = [PlannedStage(_positive(tiles * (tile // group)))]
    if promoted:
        stages = [PlannedStage(dim(tile // WARP)), serial(tiles)]
    stages += [serial(cluster)] if cluster > 1 else []
    stages[-1] = replace(stages[-1], kept=kept)
    stages += [serial(n) for n in (-(-splits // groups), groups) if n > 1]
    if rounded or arrives:
        stages[-1] = replace(stages[-1], rounded=rounded, arrives=arrives)
    return PlannedOrder(tuple(stages), *((WARP, FP8_BITS) if promoted else (group,)))


def of_scanned_rows(length: Dim, width: int, threads: int, chunks: int, tiles: int) -> PlannedOrder:
    """Return the order of running sums along rows.

    The elements of a vector are added sequentially, then the lanes of a warp in a tree, its
    `chunks` vectors, the warps, and the carries between tiles; `tiles` are those of other blocks.
    """
    lanes = min(threads, WARP)
    stages = [PlannedStage(dim(width), _depth(lanes), 1), serial(chunks)]
    if tiles == 1:
        return PlannedOrder((*stages, serial(ceildiv(length, lanes * chunks * width))))
    tree = PlannedStage(dim(1), _depth(TILES_PER_WARP), 1)
    above = -(-tiles // TILES_PER_WARP**3)
    return PlannedOrder((*stages, serial(threads // WARP), tree, tree, tree, serial(above)))


def of_scanned_columns(length: Dim, span: int) -> PlannedOrder:
    """Return the order of running sums down columns, sequential in spans of a thread."""
    return PlannedOrder((serial(span), serial(ceildiv(length, span))))
