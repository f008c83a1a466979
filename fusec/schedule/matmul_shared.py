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

PAD = 16
"""Bytes behind a row of a tile, so that the rows of an ldmatrix are in all banks."""
SUMS_PAD = 8
"""Floats behind a row of sums: a quarter of the banks on, where the next row of a warp begins; with
swapped operands it begins two rows on."""
STAGED_PAD = 8
"""Elements behind a staged row, or twice as many: an odd multiple of 8 from row to row, so that
pairs of eight rows are in all banks (staged_rows.cuh)."""
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
    """The launch of a matrix product and the layout of its shared memory.

    once: whether A, and B, are read once and leave L2 first.
    """

    layout: SharedLayout = field(kw_only=True)
    once: tuple[bool, bool] = (False, False)


def shared_layout(p: MatmulParameters, problem: Product) -> SharedLayout:
    """Return the layout."""
    if p.kernel in ("simt", "vector"):
        return SharedLayout()
    if p.kernel == "mma":
        return _padded(p, problem)
    return swizzled_layout(p, problem)


def _padded(p: MatmulParameters, problem: Product) -> SharedLayout:
    """Return stages whose tiles have the contiguous axis as padded rows."""
    pitches, size = list[int](), _ELEMENT if problem.dtype is None else problem.dtype.size
    sizes: list[int] = []
    for operand, extent in ((problem.a, p.tile_m), (problem.b, p.tile_n)):
        rows, columns = (extent, p.tile_k) if operand.k_major else (p.tile_k, extent)
        pitches.append(columns + PAD // size)
        sizes.append(rows * pitches[-1] * size)
    constants = (
        ("kAPitch", pitches[0], "elements from row to row of A's tile"),
        ("kBPitch", pitches[1], "and of B's"),
        ("kATileBytes", sizes[0], "A's tile of a stage; B's follows"),
        ("kStageBytes", sum(sizes), "of one stage"),
    )
    return SharedLayout(constants, p.stages * sum(sizes))


def stage_bytes(p: MatmulParameters, problem: Product) -> int:
    """Return the bytes of A and B of a stage as TMA writes it."""
    return sum(_stage(p, _kinds(problem)))


def swizzled_layout(p: MatmulParameters, problem: Product) -> SharedLayout:
    """Return stages as TMA writes them, with a split product's sums over them, and barriers."""
    return _layout(p, _kinds(problem), problem.slots if p.staged else StagedSlots())


def _kinds(problem: Product) -> tuple[tuple[bool, int, int], ...]:
    """Return of A and of B whether it lies along K, the bytes of an element, elements in one."""
    return tuple(
        (o.k_major, o.buffer.dtype.size, 2 if o.packed else 1) for o in (problem.a, problem.b)
    )


def _stage(p: MatmulParameters, kinds: tuple[tuple[bool, int, int], ...]) -> tuple[int, ...]:
    """Return the bytes of A and of B of a stage; across K they lie in blocks of 64 rows."""
    return tuple(
        (rows if along else -(-rows // 64) * 64) * p.tile_k * size // packed
        for rows, (along, size, packed) in zip((p.tile_m, p.tile_n), kinds, strict=True)
    )


@cache
def _layout(
    p: MatmulParameters, kinds: tuple[tuple[bool, int, int], ...], slots: StagedSlots
) -> SharedLayout:
    a_bytes, b_bytes = _stage(p, kinds)
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
        columns = staged_columns(p.columns, whole=slots.whole, joined=p.joined)
        rows = 16 * p.row_blocks if slots.fetched else 16
        staged_pitch = columns + STAGED_PAD * (1 + columns // STAGED_PAD % 2)
        constants += [
            ("kStagedRows", rows, "rows of a warp that are staged at a time"),
            ("kStagedColumns", columns, "and columns"),
            ("kStagedPitch", staged_pitch, "elements from one such row to the next"),
        ]
        for number, size in enumerate(slots.sizes):
            constants.append((f"kStaged{number}", at, f"rows of {8 * size} bits"))
            at += 4 * p.consumers * rows * staged_pitch * size
    for name, meaning in (
        ("kFull", "barriers, one per stage: its loads have landed"),
        ("kEmpty", "barriers, one per stage: all have read it"),
    ):
        constants.append((name, at, meaning))
        at += p.stages * _BARRIER
    if p.splits > 1 and not p.has_second:
        name, meaning = ("kArrived", "slices before this CTA's")
        if p.takes_turns:
            name, meaning = ("kTicket", "of the cluster, in its first CTA")
        constants.append((name, at, meaning))
        at += _SLOT
    return SharedLayout(tuple(constants), at)
