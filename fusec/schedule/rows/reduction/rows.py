"""How many threads reduce a contiguous row, and how many vectors each of them has."""

from __future__ import annotations

from fusec.schedule.rows.domain import Rows
from fusec.schedule.space import power_above

UNROLLED = 4
"""Vectors per thread that are in flight together."""
UNROLLED_VECTORS = 8
"""Most vectors per thread that are all loaded together, without a loop."""
MOST_THREADS = 512
SIDE_BY_SIDE = 8
"""Threads up to which two vectors each are preferred to four: 8 widest vectors are a cache line."""

WORD = 4
UNROLLED_WORDS = 48
"""Registers of the rows that a thread which reduces columns loads together."""


def threads_of_row(vectors: int) -> int:
    """Return the threads of a row, each with at least one vector; a single one has up to two."""
    wide = min(SIDE_BY_SIDE, power_above(-(-vectors // 2)))
    return min(MOST_THREADS, max(wide, power_above(-(-vectors // UNROLLED))))


def is_unrolled(rows: Rows, step: int) -> bool:
    """Return whether a thread has so few vectors that all of them are loaded together.

    A loop over that few would load them one after the other: some threads have one less than
    others, so that an unrolled loop has no full iteration. step: elements per step of all threads.
    """
    return rows.columns.is_const and -(-rows.columns.value // step) <= UNROLLED_VECTORS


def unrolled_rows(rows: Rows, threads: int, size: int) -> int:
    """Return how many rows a thread that reduces columns loads together, 0 if it needs a loop.

    A loop would first load the remainder of its unrolled iterations one by one. threads: those that
    share a column's rows; size: bytes of a row's loads.
    """
    taken = -(-rows.columns.value // threads) if rows.columns.is_const else 0
    return taken if taken * -(-size // WORD) <= UNROLLED_WORDS else 0
