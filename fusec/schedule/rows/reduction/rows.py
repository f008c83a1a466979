"""How many threads sum a row that runs along memory, and how many vectors each of them has."""

from __future__ import annotations

from fusec.schedule.rows.domain import Rows
from fusec.schedule.space import power_above

UNROLLED = 4
"""Vectors of a thread that are on their way together."""
UNROLLED_VECTORS = 8
"""Vectors of a thread that are loaded together where it has no more than these."""
MOST_THREADS = 512
SIDE_BY_SIDE = 8
"""Threads that rather have two vectors than four: their widest ones are a line of the caches."""

WORD = 4
UNROLLED_WORDS = 48
"""Registers of what a thread that takes columns loads together."""


def threads_of_row(vectors: int) -> int:
    """Return the threads of a row, of which none is without a vector: one alone takes up to two."""
    wide = min(SIDE_BY_SIDE, power_above(-(-vectors // 2)))
    return min(MOST_THREADS, max(wide, power_above(-(-vectors // UNROLLED))))


def is_unrolled(rows: Rows, step: int) -> bool:
    """Return whether a thread's vectors are so few that all of them are loaded together.

    A loop over as few would load them one after the other: some threads have one less than others,
    so that no turn of an unrolled loop is taken. step: elements that threads take side by side.
    """
    return rows.columns.is_const and -(-rows.columns.value // step) <= UNROLLED_VECTORS


def unrolled_rows(rows: Rows, threads: int, size: int) -> int:
    """Return how many rows a thread that takes columns loads together, 0 where it is a loop's.

    A loop would load what is left beside its whole turns one after the other, and first. threads:
    that share a column's rows; size: bytes of a row's loads.
    """
    taken = -(-rows.columns.value // threads) if rows.columns.is_const else 0
    return taken if taken * -(-size // WORD) <= UNROLLED_WORDS else 0
