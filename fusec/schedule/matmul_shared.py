"""The dynamic shared memory of a matrix product's CTA: what lies where, as its kernel prints it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from fusec.schedule.matmul_problem import Product
from fusec.schedule.plan import Kernel

if TYPE_CHECKING:
    from fusec.schedule.matmul_choice import MatmulParameters

PAD = 8
"""Elements behind a row of a tile: 16 bytes, so that the rows of an ldmatrix are in all banks."""
_ELEMENT = 2
_BARRIER = 8
_TICKET = 16


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
    if p.kernel == "simt":
        return SharedLayout()
    if p.kernel == "mma":
        return _padded(p, problem)
    return _swizzled(p)


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


def _swizzled(p: MatmulParameters) -> SharedLayout:
    """Return stages as TMA writes them, the sums of a split product, barriers and a ticket."""
    a_bytes, b_bytes = (rows * p.tile_k * _ELEMENT for rows in (p.tile_m, p.tile_n))
    parts = [p.stages * (a_bytes + b_bytes)]
    if p.kernel == "split_k":
        parts.append(p.tile_m * p.tile_n * 4)
    parts += [p.stages * _BARRIER, p.stages * _BARRIER]
    if p.kernel == "split_k":
        parts.append(_TICKET)
    _, *offsets, end = accumulate(parts, initial=0)
    names = [
        ("kFull", "barriers, one per stage: its loads have landed"),
        ("kEmpty", "barriers, one per stage: all have read it"),
    ]
    if p.kernel == "split_k":
        names = [
            ("kSums", "sums of the tile, by thread"),
            *names,
            ("kTicket", "of the cluster, in its first CTA"),
        ]
    constants = (
        ("kATileBytes", a_bytes, "A's tile of a stage; B's follows"),
        ("kStageBytes", a_bytes + b_bytes, "of one stage"),
        *((name, at, meaning) for (name, meaning), at in zip(names, offsets, strict=True)),
    )
    return SharedLayout(constants, end)
