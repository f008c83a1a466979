"""The dynamic shared memory of a matrix product's CTA: what lies where, as its kernel prints it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from fusec.schedule.matmul_problem import Product
from fusec.schedule.matmul_staged import StagedSlots, staged_columns
from fusec.schedule.plan import Kernel

if TYPE_CHECKING:
    from fusec.schedule.matmul_choice import MatmulParameters

PAD = 8
"""Elements behind a row of a tile: 16 bytes, so that the rows of an ldmatrix are in all banks."""
SUMS_PAD = 8
"""Floats behind a row of sums: a quarter of the banks on, where the next row of a warp begins; with
swapped operands it begins two rows on."""
STAGED_PAD = 8
"""Elements behind a staged row, so that pairs of eight rows are in all banks (staged_rows.cuh)."""
MULTIPLYING_WARPS = 8
"""Warps of a Hopper kernel that multiply, each with staged rows of its own."""
_ELEMENT = 2
STAGE_BYTES = 128
"""Bytes of a row of what is copied in bulk at once, which the swizzle spans."""
_SUM = 4
_BARRIER = 8
_SLOT = 16


@dataclass(frozen=True)
class SharedLayout:
    """Constants of the kernel: name, value, meaning; all but pitches are in bytes.

    bytes: of shared memory in all.
    """

    constants: tuple[tuple[str, int, str], ...] = ()
    bytes: int = 0


@dataclass(frozen=True)
class MatmulKernel(Kernel):
    """The launch of a matrix product and the layout of its shared memory."""

    layout: SharedLayout = field(kw_only=True)


def shared_layout(p: MatmulParameters, problem: Product) -> SharedLayout:
    """Return the layout."""
    if p.kernel in ("simt", "vector"):
        return SharedLayout()
    if p.kernel == "mma":
        return _padded(p, problem)
    return swizzled_layout(p, problem)


def _padded(p: MatmulParameters, problem: Product) -> SharedLayout:
    """Return stages whose tiles have the contiguous axis as padded rows."""
    pitches: list[int] = []
    sizes: list[int] = []
    for operand, extent in ((problem.a, p.tile_m), (problem.b, p.tile_n)):
        rows, columns = (extent, p.tile_k) if operand.k_major else (p.tile_k, extent)
        pitches.append(columns + PAD)
        sizes.append(rows * pitches[-1] * _ELEMENT)
    constants = (
        ("kAPitch", pitches[0], "elements from row to row of A's tile"),
        ("kBPitch", pitches[1], "and of B's"),
        ("kATileBytes", sizes[0], "A's tile of a stage; B's follows"),
        ("kStageBytes", sum(sizes), "of one stage"),
    )
    return SharedLayout(constants, p.stages * sum(sizes))


def swizzled_layout(p: MatmulParameters, problem: Product) -> SharedLayout:
    """Return stages as TMA writes them, with a split product's sums over them, and barriers."""
    sides = ((problem.a, p.tile_m), (problem.b, p.tile_n))
    kinds = tuple((o.k_major, o.buffer.dtype.size) for o, _ in sides)
    return _layout(p, kinds, problem.slots if p.staged else StagedSlots())


@cache
def _layout(
    p: MatmulParameters, kinds: tuple[tuple[bool, int], ...], slots: StagedSlots
) -> SharedLayout:
    # What is not contiguous along K lies in blocks of 64 rows.
    a_bytes, b_bytes = (
        (rows if along else -(-rows // 64) * 64) * p.tile_k * size
        for rows, (along, size) in zip((p.tile_m, p.tile_n), kinds, strict=True)
    )
    pitch = p.tile_n + (SUMS_PAD // 2 if p.swapped else SUMS_PAD)
    constants = [
        ("kATileBytes", a_bytes, "A's tile of a stage; B's follows"),
        ("kStageBytes", a_bytes + b_bytes, "of one stage"),
    ]
    at = p.stages * (a_bytes + b_bytes)
    if p.kernel == "split_k":
        constants.append(("kSumsPitch", pitch, "floats from row to row of the tile of sums"))
        at = max(at, p.tile_m * pitch * _SUM)
    if p.staged:
        columns = staged_columns(p.columns, whole=slots.whole)
        rows = 16 * p.row_blocks if slots.fetched else 16
        constants += [
            ("kStagedRows", rows, "rows of a warp that are staged at a time"),
            ("kStagedColumns", columns, "and columns"),
            ("kStagedPitch", columns + STAGED_PAD, "elements from one such row to the next"),
        ]
        for number, size in enumerate(slots.sizes):
            constants.append((f"kStaged{number}", at, f"rows of {8 * size} bits"))
            at += MULTIPLYING_WARPS * rows * (columns + STAGED_PAD) * size
    for name, meaning in (
        ("kFull", "barriers, one per stage: its loads have landed"),
        ("kEmpty", "barriers, one per stage: all have read it"),
    ):
        constants.append((name, at, meaning))
        at += p.stages * _BARRIER
    if p.splits > 1 and p.split_method != "two_kernel":
        name, meaning = ("kArrived", "slices before this CTA's")
        if p.takes_turns:
            name, meaning = ("kTicket", "of the cluster, in its first CTA")
        constants.append((name, at, meaning))
        at += _SLOT
    return SharedLayout(tuple(constants), at)
