"""The dynamic shared memory layout of a GEMM's CTA, as its kernel declares it."""

from __future__ import annotations

from functools import cache

from fusec.dataclasses import dataclass, field
from fusec.kernel.sizes import Constants, Listing, Quantity
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.hopper import HopperParameters, PersistentParameters, SplitKParameters
from fusec.schedule.matmul.portable import MmaParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.staged import StagedSlots, staged_columns
from fusec.schedule.plan import Kernel

PAD = 16
"""Padding bytes per row of a tile, so that the rows of an ldmatrix cover all banks."""
SUMS_PAD = 8
"""Padding floats per row of accumulators, a quarter of the banks: the next row of a warp begins
there; with swapped operands it begins two rows further."""
STAGED_PAD = 8
"""Padding elements per staged row, or twice as many: the pitch is an odd multiple of 8, so that
pairs of eight rows cover all banks (staged_rows.cuh)."""
Kinds = tuple[tuple[bool, int, int], ...]
"""For A and B: whether it is K-major, the bytes per element, and the values per element."""
_ELEMENT = 2
STAGE_BYTES = 128
"""Bytes per row of a bulk copy: the span of the swizzle."""
_SUM = 4
_BARRIER = 8
_SLOT = 16


@dataclass(frozen=True)
class SharedLayout:
    """Constants of the kernel: name, value, meaning; all but pitches are in bytes.

    bytes: total shared memory.
    """

    constants: tuple[tuple[str, int, str], ...] = ()
    bytes: int = 0


@dataclass(frozen=True)
class MatmulKernel(Kernel):
    """The launch of a GEMM and the layout of its shared memory.

    once: whether A and B are each read once and have evict-first hints.
    """

    layout: SharedLayout = field(kw_only=True)
    once: tuple[bool, bool] = (False, False)


def shared_layout(p: MatmulParameters, problem: Product) -> SharedLayout:
    """Return the layout."""
    if isinstance(p, HopperParameters):
        return layout_of(p, kinds_of(problem), p.slots(problem.slots))
    listing = Listing(spelled=False)
    return SharedLayout(bytes=_listed(p, problem, listing), constants=listing.values)


def spelled_layout(p: MatmulParameters, problem: Product) -> Constants:
    """Return the layout's constants as sums of earlier constants and tile sizes."""
    listing = Listing(spelled=True)
    _listed(p, problem, listing)
    return listing.constants


def _listed(p: MatmulParameters, problem: Product, listing: Listing) -> int:
    """List the contents of dynamic shared memory, and return their bytes."""
    match p:
        case HopperParameters():
            return _swizzled(p, kinds_of(problem), p.slots(problem.slots), listing)
        case MmaParameters():
            return _padded(p, problem, listing)
        case _:
            return 0


def _padded(p: MmaParameters, problem: Product, listing: Listing) -> int:
    """List stages whose tiles have padded rows along the contiguous axis; return their bytes."""
    size = _ELEMENT if problem.dtype is None else problem.dtype.size
    depth, tiles = listing.named("kTileK", p.tile_k), list[Quantity]()
    for operand, side, extent, meaning in (
        (
            problem.a,
            "A",
            listing.named("kTileM", p.tile_m),
            "row pitch of A's tile, in elements",
        ),
        (problem.b, "B", listing.named("kTileN", p.tile_n), "row pitch of B's tile"),
    ):
        rows, columns = (extent, depth) if operand.k_major else (depth, extent)
        pitch = listing.add(f"k{side}Pitch", columns + PAD // size, meaning)
        tiles.append(rows * pitch * size)
    first = listing.add("kATileBytes", tiles[0], "tile of A in a stage; the tile of B follows")
    return p.stages * int(listing.add("kStageBytes", first + tiles[1], "one stage"))


def bytes_of_stage(p: HopperParameters, kinds: Kinds) -> int:
    """Return the bytes of A and B in a stage as TMA writes it."""
    return sum(map(int, _stage(p, kinds, Listing(spelled=False))))


def kinds_of(problem: Product) -> Kinds:
    """Return for A and B whether it is K-major, the bytes per element, and values per element."""
    return tuple(
        (o.k_major, o.buffer.dtype.size, 2 if o.packed else 1) for o in (problem.a, problem.b)
    )


def _stage(p: HopperParameters, kinds: Kinds, listing: Listing) -> tuple[Quantity, ...]:
    """Return the bytes of A and of B in a stage; MN-major tiles consist of blocks of 64 rows."""
    depth, found = listing.named("kTileK", p.tile_k), list[Quantity]()
    tiles = (("kTileM", p.tile_m), ("kTileN", p.tile_n))
    for (name, extent), (along, size, packed) in zip(tiles, kinds, strict=True):
        whole = extent if along else -(-extent // 64) * 64
        rows = listing.named(name, extent) if whole == extent else whole
        found.append(rows * depth * size // packed)
    return tuple(found)


@cache
def layout_of(p: HopperParameters, kinds: Kinds, slots: StagedSlots) -> SharedLayout:
    """Return the layout of stages as TMA writes them, for some kinds of operands."""
    listing = Listing(spelled=False)
    return SharedLayout(bytes=_swizzled(p, kinds, slots, listing), constants=listing.values)


def _swizzled(p: HopperParameters, kinds: Kinds, slots: StagedSlots, listing: Listing) -> int:
    """List the stages that TMA writes, the buffers that alias or follow them, and the barriers.

    Return their bytes.
    """
    a_bytes, b_bytes = _stage(p, kinds, listing)
    a_bytes = listing.add("kATileBytes", a_bytes, "tile of A in a stage; the tile of B follows")
    stage = listing.add("kStageBytes", a_bytes + b_bytes, "one stage")
    stages = listing.named("kStages", p.stages)
    at = stages * stage
    if isinstance(p, SplitKParameters):
        at = max(at, _sums(p, listing), key=int)
    if isinstance(p, PersistentParameters) and p.epilogue_smem:
        at = _staged(p, slots, listing, at)
    at = listing.add("kFull", at, "barriers, one per stage: loads are complete")
    at = listing.add(
        "kEmpty", at + stages * _BARRIER, "barriers, one per stage: reads are complete"
    )
    at = at + stages * _BARRIER
    if p.splits > 1 and not p.has_second:
        slot = ("kArrived", "number of slices stored before")
        if p.is_serial:
            slot = ("kTicket", "ticket of the cluster, in its first CTA")
        at = listing.add(slot[0], at, slot[1]) + _SLOT
    return int(at)


def _sums(p: SplitKParameters, listing: Listing) -> Quantity:
    """List the tile of accumulators that aliases the stages, and return its bytes."""
    pad = SUMS_PAD // 2 if p.swap_ab else SUMS_PAD
    meaning = "floats from row to row of the tile of sums"
    pitch = listing.add("kSumsPitch", listing.named("kTileN", p.tile_n) + pad, meaning)
    return listing.named("kTileM", p.tile_m) * pitch * _SUM


def _staged(
    p: PersistentParameters, slots: StagedSlots, listing: Listing, at: Quantity
) -> Quantity:
    """List the staged rows of the epilogue after the stages, and return their end."""
    width = staged_columns(p.columns, whole=slots.whole, dual=p.dual)
    held = 16 * p.row_blocks if slots.fetched else 16
    rows = listing.add("kStagedRows", held, "rows per warp that are staged at a time")
    columns = listing.add("kStagedColumns", width, "columns that are staged at a time")
    pad = STAGED_PAD * (1 + width // STAGED_PAD % 2)
    pitch = listing.add("kStagedPitch", columns + pad, "row pitch of staged rows, in elements")
    warps = 4 * listing.named("kConsumers", p.consumers)
    for number, size in enumerate(slots.sizes):
        at = listing.add(f"kStaged{number}", at, f"rows of {8 * size} bits")
        at = at + warps * rows * pitch * size
    return at
