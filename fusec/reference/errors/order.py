"""The order of a sum, the variance of its roundings, and the sum computed in that order."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from fusec.dataclasses import dataclass, replace
from fusec.ir import arrays
from fusec.ir.arrays import np
from fusec.ir.dtype import DType
from fusec.ir.dtype import find as as_dtype
from fusec.ir.evaluate import Array, round_to

LEAST = {"f16": 2.0**-24, "bf16": 2.0**-133}
"""The smallest positive values of the types that sums may be stored in."""
UNEVEN = 0.55
"""Mean square of the roundings of normal numbers over that of numbers just above powers of two
(measured on numbers of every spread: 0.54 to 0.55)."""
MOST_PLACES = 64
"""Maximum slots of a block per term; above it, the assignment of terms is unspecified."""


@dataclass(frozen=True)
class Stage:
    """Terms added sequentially, `chain` at a time, whose results are added in trees of `depth`.

    width: parallel chains to which terms are dealt round-robin in runs of `run` neighbours, as to
    the threads of a block: a block takes chain * width terms. 0: as many chains as necessary, whose
    terms have the largest possible stride. cut: number of terms that blocks do not cross, for
    example where groups of rows begin; 0 if unlimited. A tree adds 2**depth neighbours. kept: the
    16-bit type that the results are rounded to, empty if they are not rounded. rounded: the 16-bit
    type that all terms of a chain except the last, and all its sums except the last, are rounded
    to, as in serial split-K, where each CTA except the last adds in that type.
    """

    chain: int
    depth: int = 0
    width: int = 0
    run: int = 1
    cut: int = 0
    kept: str = ""
    rounded: str = ""

    def fitted(self, count: int) -> Stage:
        """Return the stage as it applies to `count` terms.

        If they are too few for a block of chains of this length, they are part of a longer sum:
        there are fewer chains, of the same length.
        """
        cut = self.cut if 0 < self.cut < count else 0
        most, chain = cut or count, min(max(self.chain, 1), count)
        run = self.run if self.run > 0 and chain % self.run == 0 else 1
        width = self.width if cut else min(self.width, ceil(count / run))
        block = chain * width
        if block > MOST_PLACES * most or (block > most and _longest(most, width, run) != chain):
            width = 0
        return Stage(chain, self.depth, width, run, cut) if width else Stage(chain, self.depth)

    def chains(self, count: int) -> int:
        """Return the number of chains of `count` terms, empty ones before the last included."""
        if not self.width:
            return ceil(count / self.chain)
        cut, block = self.cut or count, self.chain * self.width
        parts = ceil(count / cut)
        rest = count - (parts - 1) * cut
        full = (parts - 1) * ceil(cut / block) + ceil(rest / block) - 1
        left = rest - (ceil(rest / block) - 1) * block
        return full * self.width + min(self.width, ceil(left / self.run))


def _longest(count: int, width: int, run: int) -> int:
    """Return the length of the longest chain when terms are dealt to `width` chains."""
    return ceil(ceil(count / run) / width) * run


@dataclass(frozen=True)
class Order:
    """The order of a sum: each stage adds the results of the previous one; a tree adds the rest.

    group: products that a matrix unit adds at once, truncating bits below the largest of them
    instead of rounding; 1 if every product is added separately. Chains count groups. bits: mantissa
    bits of the largest that it keeps in the first chains; 0: as many as the type has.
    """

    stages: tuple[Stage, ...]
    group: int = 1
    bits: int = 0

    @property
    def rounds_whole_numbers(self) -> bool:
        """Return whether even partial sums are rounded that f32 represents exactly."""
        return self.bits > 0 or any(s.kept or s.rounded for s in self.stages)

    def within(self, count: int) -> tuple[Stage, ...]:
        """Return the stages that apply to `count` terms, including the rest of the tree."""
        left, found = ceil(count / self.group), list[Stage]()
        for stage in self.stages:
            if left <= 1 and not stage.kept:
                continue
            fitted = stage.fitted(left)
            left = fitted.chains(left)
            depth = min(fitted.depth, _depth(left))
            left = ceil(left / 2**depth)
            found.append(replace(fitted, depth=depth, kept=stage.kept, rounded=stage.rounded))
        if left > 1:
            found.append(Stage(1, _depth(left)))
        return tuple(found)

    def then(self, other: Order) -> Order:
        """Return the order of sums whose terms are sums in this order."""
        return Order((*self.stages, *other.stages), self.group, self.bits)


def _depth(count: int) -> int:
    """Return the depth of a tree over so many terms."""
    return max(count - 1, 0).bit_length()


UNKNOWN = (1024, 32, 1)
"""Lengths of chains that are assumed if no plan defines the order of a sum."""
TILE = 16
"""Products along K that one instruction of a matrix unit adds (PTX wgmma of 16-bit types)."""


def unknown(count: int, factors: Sequence[DType] = ()) -> tuple[Order, ...]:
    """Return the orders assumed if no plan defines one; `factors`: types, of a contraction."""
    if not factors and count <= 2:
        return (Order(()),)  # one addition, in any order
    if not factors:
        return tuple(Order((Stage(chain),)) for chain in UNKNOWN)
    if all(d.is_half for d in factors):
        return (Order((Stage(max(ceil(count / TILE), 1)),), TILE),)
    return Order((Stage(max(count, 1)),)), Order(())


def roundings(total: Array, squares: Array, count: Array | int, order: Order, unit: float) -> Array:
    """Return the variance of the roundings of sums of `count` terms, one rounding within `unit`.

    Partial sums of k terms, of mean m and variance s, are k m and a walk of variance k s; each is
    rounded by unit**2 / 3 of its square. Chains of c sums of w terms add m**2 w c**2 / 3 + s c / 2
    for each term, trees of depth d 2 m**2 w (2**d - 1) + s d. What a matrix unit truncates has one
    sign: it drifts. Of several counts the order is that of the largest.
    """
    stages = order.within(int(np.max(count, initial=0)))
    terms = np.maximum(count, 1)
    square = np.square(np.abs(total))
    mean, spread = square / terms, np.maximum(squares - square / terms, 0)
    halves = np.zeros(())
    steady, walking, width = np.zeros(()), np.zeros(()), np.minimum(order.group, terms)
    for stage in stages:
        # A sum of fewer terms ends within a stage.
        chain = np.clip(terms / width, 1, stage.chain)
        steady = steady + width * np.square(chain) / 3 * (stage.chain > 1)
        walking = walking + chain / 2 * (stage.chain > 1)
        width = width * chain
        chains = np.maximum(terms / width, 1)
        if stage.rounded:
            halves = halves + _turns_variance(square, spread, chain, chains, stage.rounded)
        wide = np.minimum(width * 2.0**stage.depth, np.maximum(terms, width))
        steady = steady + 2 * (wide - width)
        walking = walking + np.log2(wide / width)
        width = wide
        if stage.kept:
            parts = np.maximum(terms / width, 1)
            halves = halves + _kept_variance(square, spread, parts, stage.kept)
    variance = (mean * steady + spread * walking) * (unit**2 / 3) + halves
    if order.bits:
        chained = order.group * (stages[0].chain if stages else 1)
        variance = variance + 4.0**-order.bits * _cut(square, squares, spread, terms, chained)
    elif order.group > 1:
        steps = unit * stages[0].chain if stages else unit
        variance = variance + steps**2 * (square / 4 + spread / 3)
    return np.where(terms > 1, variance, 0.0)


def _kept_variance(square: Array, spread: Array, parts: Array, kept: str) -> Array:
    """Return the variance of rounding each of the parts of a sum to a 16-bit type.

    Their squares are those of their fraction of the mean, and of a walk, whose ends are anywhere
    between powers of two. Below the least normal number, all are rounded by up to half of the
    smallest positive one.
    """
    unit = as_dtype(kept).epsilon
    return (unit**2 * (square / parts + UNEVEN * spread) + (LEAST[kept] / 2) ** 2 * parts) / 3


def _turns_variance(
    square: Array, spread: Array, turns: Array, chains: Array, rounded: str
) -> Array:
    """Return the variance of chains of `turns` partial sums, each rounded except the last.

    Turn k of n rounds its term to a 16-bit type, then the sum of k terms. Given the total, such a
    sum has k / n of it and k (n - k) / n**2 of the spread; a term has those of k = 1. The first
    term is the first sum.
    """
    unit = as_dtype(rounded).epsilon
    others = np.maximum(turns - 2, 0)
    means = others + (turns - 1) * turns * (2 * turns - 1) / 6
    spreads = others * (turns - 1) + turns * (np.square(turns) - 1) / 6
    moments = (square / chains * means + UNEVEN * spread * spreads) / np.square(turns)
    least = (LEAST[rounded] / 2) ** 2 * chains * (others + turns - 1)
    return (unit**2 * moments + least) / 3


def _cut(square: Array, squares: Array, spread: Array, terms: Array, chained: int) -> Array:
    """Return the variance lost by truncating products, over the square of the truncated fraction.

    A product loses up to that fraction of the sum of `chained` terms that it is added to, of mean m
    and root mean square r. The losses are towards 0; on an H200 they are a third of this for terms
    of one sign, and a fifth for terms of both.
    """
    alike = np.sqrt(square / np.maximum(terms * squares, np.finfo(np.float64).tiny))
    drift = alike * (chained / 8) + np.sqrt(chained) / 8
    return square * np.square(drift) + spread * (chained / 6)


def performed(terms: Array, order: Order) -> Array:
    """Return sums over axis 1 of terms [before, count, after], in the terms' own precision.

    If a stage does not define which terms meet, those of a chain are strided, as a thread's are.
    """
    before, count, after = terms.shape
    if not terms.size:
        return np.zeros((before, after), terms.dtype)
    # NumPy adds sequentially along any axis except the contiguous one.
    terms = np.ascontiguousarray(terms)
    for stage in order.within(count):
        if stage.rounded:
            terms = _in_turns(terms, stage)
        elif stage.width:
            terms = _trees(_dealt(terms, stage), stage.depth)
        else:
            terms = _chained(terms, stage.chain)
            for _ in range(stage.depth):
                terms = _halved(terms)
        if stage.kept:
            terms = round_to(terms, as_dtype(stage.kept)).astype(terms.dtype)
    while terms.shape[1] > 1:
        terms = _halved(terms)
    return terms[:, 0]


def _chained(terms: Array, chain: int) -> Array:
    chain = min(chain, terms.shape[1])
    if chain <= 1:
        return terms
    before, count, after = terms.shape
    chains = ceil(count / chain)
    whole = count // chains * chains
    result = _in_a_row(terms[:, :whole].reshape(before, whole // chains, chains, after))
    if whole < count:
        result[:, : count - whole] += terms[:, whole:]
    return result


def _in_turns(terms: Array, stage: Stage) -> Array:
    """Return chains of neighbours whose terms and sums are rounded, except the last ones."""
    before, _, after = terms.shape
    dtype, kind = as_dtype(stage.rounded), terms.dtype
    parts = _padded(terms, stage.chain).reshape(-1, stage.chain, after)
    total = np.zeros((len(parts), after), kind)
    for turn in range(stage.chain - 1):
        own = round_to(parts[:, turn], dtype).astype(kind)
        total = round_to(total + own, dtype).astype(kind)
    return (total + parts[:, -1]).reshape(before, -1, after)


def _halved(terms: Array) -> Array:
    count = terms.shape[1]
    if count < 2:
        return terms
    half = ceil(count / 2)
    result = terms[:, :half].copy()
    result[:, : count - half] += terms[:, half:]
    return result


def _dealt(terms: Array, stage: Stage) -> Array:
    """Return chains to which blocks of terms are dealt round-robin; missing terms are 0."""
    before, count, after = terms.shape
    chain, width, run = stage.chain, stage.width, stage.run
    if chain <= 1 and not stage.cut:
        return terms
    cut, block = stage.cut or count, chain * width
    padded = _padded(_padded(terms, cut).reshape(-1, cut, after), block)
    turns = padded.reshape(-1, chain // run, width, run, after).swapaxes(2, 3)
    sums = _in_a_row(turns.reshape(-1, chain, width, after))
    return sums.reshape(before, -1, after)[:, : stage.chains(count)]


def _in_a_row(terms: Array) -> Array:
    """Return sequential sums of terms [blocks, chain, width, after] over the chain."""
    blocks, chain, width, after = terms.shape
    if width * after > 1 or chain <= 2:
        return arrays.in_a_row(np.add, terms, 1)
    return arrays.running(np.add, terms.reshape(blocks, chain), 1)[:, -1:, None]


def _padded(terms: Array, multiple: int) -> Array:
    """Return terms with zeros up to a multiple along axis 1."""
    before, count, after = terms.shape
    missing = -count % multiple
    if not missing:
        return terms
    return np.concatenate([terms, np.zeros((before, missing, after), terms.dtype)], axis=1)


def _trees(terms: Array, depth: int) -> Array:
    """Return trees over 2**depth neighbours each: the first half plus the second, elementwise."""
    before, _, after = terms.shape
    parts = _padded(terms, 2**depth).reshape(before, -1, 2**depth, after)
    for _ in range(depth):
        first, second = np.split(parts, 2, axis=2)
        parts = first + second
    return parts[:, :, 0]


def running(terms: Array, order: Order) -> Array:
    """Return the running sums along axis 1 of terms [before, count, after], in their own precision.

    Neighbours form the chains and trees; the total of the preceding terms is added to each running
    sum of a chain.
    """
    return _running(terms, order.within(terms.shape[1]))


def _running(terms: Array, stages: tuple[Stage, ...]) -> Array:
    before, count, after = terms.shape
    if not stages or count <= 1 or not terms.size:
        return arrays.running(np.add, terms, 1)
    chain, size = stages[0].chain, 2 ** stages[0].depth
    parts = _padded(terms, chain * size).reshape(before, -1, size, chain, after)
    parts = arrays.running(np.add, parts, 3)
    ends = parts[..., -1, :].copy()
    for level in range(stages[0].depth):
        # As the lanes of a warp do: each adds the value of the lane 2**level below.
        ends[:, :, 2**level :] = ends[:, :, 2**level :] + ends[:, :, : -(2**level)]
    parts[:, :, 1:] += ends[:, :, :-1, None]
    if parts.shape[1] > 1:
        parts[:, 1:] += _running(ends[:, :, -1], stages[1:])[:, :-1, None, None]
    return parts.reshape(before, -1, after)[:, :count]


def as_terms(array: Array, axes: Sequence[int]) -> Array:
    """Return an array as [before, count, after] with the axes summed over in the middle."""
    axes = tuple(axes)
    if not axes:
        return array.reshape(-1, 1, 1)
    first, last = min(axes), max(axes)
    kept = [a for a in range(array.ndim) if a not in axes]
    if len(axes) < last - first + 1:
        array = np.transpose(array, (*kept, *axes))
        first, last = len(kept), array.ndim - 1
    shape: Any = array.shape
    return array.reshape(
        prod(shape[:first]), prod(shape[first : last + 1]), prod(shape[last + 1 :])
    )
