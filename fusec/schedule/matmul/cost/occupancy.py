"""How many CTAs of a split product an SM holds at a time: together they have as much in flight."""

from __future__ import annotations

from fusec.schedule.matmul.hopper import SplitKParameters
from fusec.schedule.pressure import RESERVED

SM_BYTES = 233472
"""Shared memory of an SM that has wgmma: 228 KiB."""
_MOST_SUMS = ((3, 16), (2, 32))
"""CTAs of an SM, of 384 threads each, and a thread's sums that leave registers for the rest."""
_TILE_K = 64
"""Elements of K of a stage of halves; of 8-bit types, which have more, a thread holds more too."""
_THREADS = 256


def ctas_per_sm(p: SplitKParameters, bytes_: int) -> int:
    """Return the CTAs of an SM, by registers and by the bytes of shared memory of one."""
    held = p.tile_m * p.tile_n // _THREADS * (3 if p.tile_k > _TILE_K else 1)
    fitting = SM_BYTES // (bytes_ + RESERVED)
    return next((n for n, most in _MOST_SUMS if held <= most and n <= fitting), 1)


def room(count: int) -> int:
    """Return the bytes of shared memory that each of so many CTAs of an SM may have."""
    return SM_BYTES // count - RESERVED
