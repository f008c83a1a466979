"""How many CTAs of a split-K GEMM fit on an SM, which together have more loads in flight."""

from __future__ import annotations

from fusec.schedule.matmul.hopper import SplitKParameters
from fusec.schedule.pressure import RESERVED

SM_BYTES = 233472
"""Shared memory of an SM with wgmma: 228 KiB."""
_MOST_SUMS = ((3, 16), (2, 32))
"""CTAs per SM, of 384 threads each, and the most accumulators per thread that allow them."""
_TILE_K = 64
"""Elements of K per stage of 16-bit floats; 8-bit types have more, and need more registers."""
_THREADS = 256


def ctas_per_sm(p: SplitKParameters, bytes_: int) -> int:
    """Return how many CTAs fit on one SM, limited by registers and shared memory."""
    held = p.tile_m * p.tile_n // _THREADS * (3 if p.tile_k > _TILE_K else 1)
    fitting = SM_BYTES // (bytes_ + RESERVED)
    return next((n for n, most in _MOST_SUMS if held <= most and n <= fitting), 1)


def room(count: int) -> int:
    """Return the bytes of shared memory available to each of `count` CTAs of an SM."""
    return SM_BYTES // count - RESERVED
