"""The instruction classes in which kernels are counted, and sums of counts."""

from __future__ import annotations

from collections.abc import Mapping

Counts = Mapping[str, float]
"""Instructions of a thread by class."""

FLOAT, DOUBLE, SPECIAL, INTEGER, CONVERT, SHUFFLE, TENSOR, BARRIER, ATOMIC, COPY, BRANCH = (
    "float", "double", "special", "integer", "convert", "shuffle", "tensor", "barrier", "atomic",
    "copy", "branch",
)  # fmt: skip
"""f32 and f64 arithmetic; special functions (MUFU); integers and addresses; conversions; shuffles;
mma and wgmma; barriers, of mbarriers too; atomic operations; asynchronous copies, each of one
instruction; branches."""

GLOBAL, SHARED = "global", "shared"
WIDEST = 16
"""Bytes of the widest access of a thread."""


def access(space: str, *, store: bool, size: int) -> str:
    """Return the class of an access of `size` bytes: `load_global_128`, in bits."""
    return f"{'store' if store else 'load'}_{space}_{8 * size}"


def accesses(space: str, size: int, *, store: bool = False) -> dict[str, float]:
    """Return the accesses that move `size` bytes from or to an address aligned to that size."""
    wide = min(size & -size, WIDEST)
    return {access(space, store=store, size=wide): size // wide} if size else {}


def added(*parts: Counts) -> dict[str, float]:
    """Return the sum of counts, class by class."""
    found: dict[str, float] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return found


def times(factor: float, counts: Counts) -> dict[str, float]:
    """Return counts multiplied by a factor."""
    return {name: factor * count for name, count in counts.items()}
