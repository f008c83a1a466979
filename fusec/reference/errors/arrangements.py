"""The terms of a sum permuted and slightly perturbed.

Roundings of repeated terms are not independent. They repeat as the terms do, and change if a
kernel's terms are slightly off: the part of 0.13 below a unit of 100 is effectively random.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy

from fusec.ir.arrays import np
from fusec.ir.evaluate import Array

ARRANGED = 128
"""Sums that are actually computed if terms repeat; if there are fewer, in several arrangements."""
ARRANGED_TERMS = 1 << 21
"""Maximum number of terms that are rearranged."""
BATCH_TERMS = 1 << 20
"""Terms that are rearranged per call: few calls for many arrangements, in little memory."""
NUDGE = 2.0**-10
"""Largest relative nudge of such terms."""


def arrangements(terms: Array) -> Iterator[tuple[Array, Array]]:
    """Yield arrangements of terms [before, count, after], several at once, and what nudges add.

    They are [before, arrangements, count, after], and the sums of the nudges [before, arrangements,
    after]. Their number is chosen for enough sums; they are the same for all terms of one count.
    """
    before, count, after = terms.shape
    times = min(ARRANGED // max(before * after, 1), ARRANGED_TERMS // max(terms.size, 1))
    if times < 1:
        return
    wide: Any = np.complex128 if terms.dtype.kind == "c" else np.float64
    whole = np.sum(terms, axis=1, dtype=wide)[:, None]
    places, factors = _places(count, times)
    at_once = max(1, BATCH_TERMS // max(terms.size, 1))
    for low in range(0, times, at_once):
        part = slice(low, low + at_once)
        moved = terms[:, np.asarray(places[part])]
        moved *= np.asarray(factors[part].astype(terms.dtype))[:, None, None]
        yield moved, np.sum(moved, axis=2, dtype=wide) - whole


@lru_cache(maxsize=4)
def _places(count: int, times: int) -> tuple[Any, Any]:
    """Return the source index of each arrangement's terms, and the factors of its nudges.

    Blocks of one sum use the same ones; computing them takes five times as long as the addition.
    """
    rng = numpy.random.default_rng(0)
    places = numpy.empty((times, count), numpy.intp)
    factors = numpy.empty(times)
    for number in range(times):
        factors[number] = 1 + rng.uniform(-NUDGE, NUDGE)
        places[number] = rng.permutation(count)
    return places, factors
