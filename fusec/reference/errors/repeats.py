"""Number of equal terms of a sum, which therefore have the same error (decision 162)."""

from __future__ import annotations

from fusec.ir.arrays import np, on_host
from fusec.ir.evaluate import Array
from fusec.reference.errors.order import as_terms

LOOKED_AT = 1024
"""Terms of a sum that are sampled to estimate how many are equal."""
BY_CHANCE = 4
"""Equal terms in a sample that may be chance."""
NOISE = 2.0**-40
"""Fraction of a variance that may be noise of the reference's own doubles."""
SUMS = 4
"""Number of sampled sums."""
REPEATED = 1.5
"""Equal terms above which they are counted for each sum, and sums are rearranged."""
COUNTED = 1 << 22
"""Maximum number of terms whose repetitions are counted for each sum."""


def alike(x: Array, axes: tuple[int, ...], variance: Array | None = None) -> float:
    """Return how many equal terms a term of a sum has on average, itself included.

    Estimated from some terms of some sums: in a sum of n terms where two are equal with probability
    p, each has 1 + (n - 1) p. variance: of the terms, as weights: equal terms add up to
    sum(sigma)**2. Terms are equal only if their variances are: rounding to a 16-bit float makes
    values equal, but not their errors from before (decision 162).
    """
    terms = as_terms(x, axes)
    before, count, after = terms.shape
    if count < 2 or not x.size:
        return 1.0
    looked, most, sums = min(count, LOOKED_AT), 1.0, min(SUMS, before * after)
    step = count // looked
    off = None if variance is None else as_terms(variance, axes)
    for number in range(sums):
        at = number * (before * after // sums)
        place = (at // after, slice(0, looked * step, step), at % after)
        variances = None if off is None else off[place]
        equal = on_host("few terms that repeat", _share_of_equals, terms[place], variances)
        most = max(most, 1 + (count - 1) * equal)
    return most


def repeats(x: Array, axes: tuple[int, ...], variance: Array) -> Array:
    """Return the same for each sum, in the shape of `x` with extent 1 along `axes`.

    Terms are counted in full if some repeat; of very many, and of complex terms, the largest count
    found applies to all sums.
    """
    most = np.asarray(alike(x, axes, variance))
    if most <= REPEATED or x.size > COUNTED or x.dtype.kind == "c":
        return most
    terms, spread = as_terms(x, axes), as_terms(variance, axes)
    before, count, after = terms.shape
    rows, off = (np.moveaxis(a, 1, 2).reshape(-1, count) for a in (terms, spread))
    times = on_host("terms that repeat", _repeats_of_rows, rows, off).reshape(before, after)
    return times.reshape([1 if a in axes else e for a, e in enumerate(x.shape)])


def _repeats_of_rows(rows: Array, variance: Array) -> Array:
    """Return sum(sigma)**2 of equal terms, added up, over sum(sigma**2), for each row."""
    # Complex numbers are sorted by their real parts, then by their imaginary ones.
    pairs = np.sort(rows.astype(np.float32) + 1j * _without_noise(variance), axis=1)
    sigma = np.sqrt(np.where(np.isfinite(pairs.imag), pairs.imag, 0.0))
    first = np.ones(pairs.shape, np.bool_)
    first[:, 1:] = pairs[:, 1:] != pairs[:, :-1]
    starts = np.flatnonzero(first)
    sums = np.square(np.add.reduceat(sigma.reshape(-1), starts))
    row = starts // pairs.shape[1]
    together = np.bincount(row, sums, len(rows))
    own = np.sum(np.square(sigma), axis=1)
    erring = np.count_nonzero(sigma, axis=1)
    again = erring - np.bincount(row, sums > 0, len(rows))
    repeated = (erring > 1) & (again >= np.minimum(BY_CHANCE, erring - 1))
    return np.divide(together, own, out=np.ones(len(rows)), where=repeated & (own > 0))


def _without_noise(variance: Array) -> Array:
    """Return variances rounded to remove the noise of the reference's own doubles."""
    mantissa, exponent = np.frexp(variance)
    return np.ldexp(np.round(mantissa / NOISE) * NOISE, exponent)


def _share_of_equals(row: Array, variance: Array | None) -> float:
    """Return the probability that two of some terms are equal, weighted by their error sizes.

    Terms are compared by value and by variance without the noise of doubles.
    """
    parts = [np.real(row).astype(np.float32), np.imag(row).astype(np.float32)]
    sigma = np.ones(row.size)
    if variance is not None:
        parts.append(_without_noise(variance))
        sigma = np.sqrt(np.where(np.isfinite(variance), variance, 0.0))
        sigma = sigma / (np.max(sigma) or 1.0)
    erring = parts[0][sigma > 0]
    few = erring.size
    if few < 2 or few - np.unique(erring).size < min(BY_CHANCE, few - 1):
        return 0.0  # no two are equal including their other parts
    _, kinds = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)
    if few - np.unique(kinds[sigma > 0]).size < min(BY_CHANCE, few - 1):
        return 0.0
    own = float(np.sum(np.square(sigma)))
    together = float(np.sum(np.square(np.bincount(kinds.reshape(-1), sigma))))
    return (together - own) / (own * (row.size - 1))
