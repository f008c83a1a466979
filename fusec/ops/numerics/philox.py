"""Philox 4x32-10: random bits as a function of (seed, offset, element), here and on the GPU.

Layout, the same in templates/device/philox.cuh:

- key: the seed, low word first. Counter: (block low, block high, offset low, offset high).
- A block yields 4 words. Element i of a tensor, counted in row-major order, takes
  - uniform in f32: word i % 4 of block i / 4; the upper 24 bits over 2**24.
  - uniform in f64: words 2 (i % 2) and the next of block i / 2, low one first; the upper 53 bits.
  - normal: elements 2p and 2p + 1 share two uniforms a, b: the words 2 (p % 2) and the next of
    block p / 2 in f32, all words of block p in f64. With r = sqrt(-2 log(a + 1 step)) the even one
    is r cos(2 pi b), the odd one r sin(2 pi b); a + 1 step lies in (0, 1].

16-bit floats are computed in f32 and rounded; a uniform number that would round to its upper limit
is replaced by the largest number below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusec.ir.arrays import on_gpu
from fusec.ops.lazy import np
from fusec.processors import usable_processors

Array = Any

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MASK = 0xFFFFFFFF
BLOCKS = 1 << 16
"""Blocks processed at a time: their words stay in the cache."""


def words(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> list[Array]:
    """Return the four words of counters given as arrays of 32-bit words in u64."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = key
    mask, shift = np.uint64(MASK), np.uint64(32)
    first, second = (np.uint64(m) for m in MULTIPLIERS)
    for _ in range(ROUNDS):
        a, b = c0 * first, c2 * second
        c0, c1 = (b >> shift) ^ c1 ^ np.uint64(k0), b & mask
        c2, c3 = (a >> shift) ^ c3 ^ np.uint64(k1), a & mask
        k0, k1 = (k0 + STEPS[0]) & MASK, (k1 + STEPS[1]) & MASK
    return [c0, c1, c2, c3]


def blocks(seed: int, offset: int, first: int, count: int) -> Array:
    """Return the words of `count` blocks from `first` on, as u32[count, 4]."""
    at = np.arange(first, first + count, dtype=np.uint64)
    high = (np.uint64(offset & MASK), np.uint64(offset >> 32 & MASK))
    counter = (at & np.uint64(MASK), at >> np.uint64(32), *high)
    found = words(counter, (seed & MASK, seed >> 32 & MASK))
    return np.stack(np.broadcast_arrays(*found), axis=-1).astype(np.uint32)


def uniforms(seed: int, offset: int, count: int, *, first: int = 0, double: bool) -> Array:
    """Return the uniform numbers in [0, 1) of `count` elements from `first` on."""
    convert = _doubles if double else _singles
    return _random_words(
        seed, offset, first, count, 2 if double else 4, lambda raw: convert(raw, 0)
    )


def normals(seed: int, offset: int, count: int, *, first: int = 0, double: bool) -> Array:
    """Return the normal numbers of `count` elements from `first` on."""

    def convert(raw: Array) -> Array:
        if double:
            a, b = _doubles(raw, 1)[:, 0], _doubles(raw, 0)[:, 1]
        else:
            a, b = _singles(raw, 1)[:, 0::2].ravel(), _singles(raw, 0)[:, 1::2].ravel()
        with np.errstate(all="ignore"):
            radius = np.sqrt(-2 * np.log(a))
        cosine, sine = _turn(b)
        return np.stack([radius * cosine, radius * sine], axis=-1)

    return _random_words(seed, offset, first, count, 2 if double else 4, convert)


def _random_words(
    seed: int, offset: int, first: int, count: int, per: int, convert: Callable[[Array], Array]
) -> Array:
    """Return `count` numbers, `per` from each block, computed in parallel chunks."""
    start, skipped = divmod(first, per)
    result = np.empty(-(-(skipped + count) // per) * per)

    # A GPU computes all of them at once.
    step = len(result) // per if on_gpu() else BLOCKS

    def fill(low: int) -> None:
        part = result[low * per : (low + step) * per]
        part[:] = convert(blocks(seed, offset, start + low, len(part) // per)).ravel()

    pieces = range(0, len(result) // per, max(step, 1))
    if len(pieces) < 2:
        for low in pieces:
            fill(low)
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(len(pieces), usable_processors())) as pool:
            list(pool.map(fill, pieces))
    return result[skipped : skipped + count]


def _singles(raw: Array, steps: int) -> Array:
    return ((raw >> np.uint32(8)).astype(np.float64) + steps) * 2.0**-24


def _doubles(raw: Array, steps: int) -> Array:
    wide = raw.astype(np.uint64)
    joined = wide[:, 0::2] | wide[:, 1::2] << np.uint64(32)
    return ((joined >> np.uint64(11)).astype(np.float64) + steps) * 2.0**-53


def _turn(part: Array) -> tuple[Array, Array]:
    """Return cosine and sine of a fraction of a turn, exact where they are 0."""
    quarter = np.rint(part * 4)
    angle = (part - quarter / 4) * (2 * np.pi)
    cosine, sine = np.cos(angle), np.sin(angle)
    which = quarter.astype(np.int64) % 4
    odd, back = which % 2 == 1, which >= 2
    along, across = np.where(odd, -sine, cosine), np.where(odd, cosine, sine)
    return np.where(back, -along, along), np.where(back, -across, across)
