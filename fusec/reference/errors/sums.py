"""Expected errors of sums: of their terms, and of their own roundings.

With independent variances s and common ones l of the terms, a sum has sum(s) and sum(sqrt(l))**2
(sum(l) for errors that are common along axes other than those of the sum), the roundings of its
order (`order.roundings`), and the square of the error of the same sum actually computed in that
order: roundings of repeated terms are not independent. Sums of multiples of one number, up to 2**24
of it, are exact: integers, and some 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod

from fusec.dataclasses import dataclass, replace
from fusec.ir.arrays import np
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, storage
from fusec.ir.totals import total
from fusec.reference.errors.arrangements import arrangements
from fusec.reference.errors.estimate import Estimate, add, overflowing, power_below, squared, unit
from fusec.reference.errors.order import Order, as_terms, performed, roundings
from fusec.reference.errors.repeats import REPEATED, alike, repeats

State = dict[str, Array]

WHOLE = {"f32": 2.0**24, "f64": 2.0**53}
"""Limits up to which all integers are floats."""
COARSE = 6
"""Trailing zero bits of all terms in sums that may be exact."""
CERTAIN = 4.0
"""Times the limit that the sum of sizes, estimated from a sample, must reach to be certainly too
large."""
SIZE, STEP = "size", "step"
"""Names of the sum of all sizes, and of the common divisor of all terms."""
SHARED, SLOPE = "shared", "slope"
"""Names of the variance of an error that all terms share, and of the sum of its signed slopes."""
TAKEN = "taken"
"""Name of the sums that were actually computed, in every order."""
OFF = "off"
"""Name of the errors of sums of squares actually computed in every order."""
BATCH_ELEMENTS = 1 << 17
"""Elements whose spacing is computed at once; that takes some ten temporary arrays of this size."""
PARTS = 64
"""Number of equal parts of a reduction that may each be lost: see `Estimate.part`."""


@dataclass(frozen=True)
class Rules:
    """How the sums of a node are computed, and whether errors are estimated.

    orders: that of the node's sums, or the candidates; count: number of terms in total.
    """

    orders: tuple[Order, ...]
    count: int
    errors: bool = True


def addition(dtype: DType) -> Callable[..., Array]:
    """Return the sum function: doubles suffice for f32 in any order."""
    return total if dtype.part.name == "f64" else np.sum


def moments(x: Array, axes: tuple[int, ...]) -> Array:
    """Return sum(|x|**2)."""
    if x.dtype.kind == "c":
        return np.sum(squared(x), axis=axes)
    terms = as_terms(x, axes)
    if terms.shape[2] == 1:
        squares = np.einsum("bn,bn->b", terms[..., 0], terms[..., 0])
    else:
        squares = np.einsum("bna,bna->ba", terms, terms)
    return np.asarray(squares).reshape([e for a, e in enumerate(x.shape) if a not in axes])


def passed(operand: Estimate, axes: tuple[int, ...], weight: Array | None = None) -> State:
    """Return the weighted sums of the terms' errors; equal terms have the same error."""
    state: State = {}
    shape = operand.value.shape
    if operand.independent is not None:
        variance = np.broadcast_to(operand.independent, shape)
        terms = variance if weight is None else variance * squared(weight)
        times = repeats(operand.value, axes, variance)
        state["independent"] = np.sum(terms * times if times.ndim else terms, axis=axes)
        state["independent"] *= 1.0 if times.ndim else times
    if operand.common is not None:
        sigma = np.broadcast_to(np.sqrt(operand.common), shape)
        state["common"] = np.sum(sigma if weight is None else sigma * np.abs(weight), axis=axes)
    return state


def taken(x: Array, axes: tuple[int, ...], dtype: DType, rules: Rules, name: str = TAKEN) -> State:
    """Return the sum in the type that a kernel computes it in, in its candidate orders.

    First over the terms in place; if terms repeat and there are few sums, also over permuted and
    nudged terms (`arrangements`). The contribution of a nudge is subtracted.
    """
    compute = dtype.compute
    kind = compute.numpy if x.dtype.kind == "c" else compute.part.numpy
    terms = as_terms(x.astype(kind, copy=False), axes)
    kept = [e for a, e in enumerate(x.shape) if a not in axes]
    found = [[performed(terms, order).reshape(1, *kept)] for order in rules.orders]
    if alike(x, axes) > REPEATED:
        for arranged, added in arrangements(terms):
            for sums, order in zip(found, rules.orders, strict=True):
                more = _each_performed(arranged, order) - added
                sums.append(np.moveaxis(more, 1, 0).reshape(-1, *kept))
    return {f"{name} {number}": np.concatenate(sums) for number, sums in enumerate(found)}


def _each_performed(terms: Array, order: Order) -> Array:
    """Return the sums over axis 2 of several arrangements [before, arrangements, count, after]."""
    before, times, count, after = terms.shape
    return performed(terms.reshape(-1, count, after), order).reshape(before, times, after)


def merged(a: State, b: State) -> State:
    """Merge the sums of two blocks' states, keeping only the arrangements that both have."""

    def joined(key: str) -> Array:
        if key not in a or key not in b:
            return a[key] if key in a else b[key]  # an error that the other block does not have
        if key.startswith((TAKEN, OFF)):
            return _stacked(a[key], b[key])
        if key == SHARED:
            return np.maximum(a[key], b[key])  # all blocks share it
        return np.minimum(a[key], b[key]) if key == STEP else a[key] + b[key]

    return {key: joined(key) for key in a | b}


def _stacked(a: Array, b: Array) -> Array:
    both = min(len(a), len(b))
    return a[:both] + b[:both]


def spacing(x: Array, dtype: DType) -> Array | None:
    """Return the largest power of 2 that each term is a multiple of, infinity for 0.

    None if some are as fine as floats get: a small sample usually suffices to see that.
    """
    if x.dtype.kind == "c" or not x.size or _spacing(_few(x), dtype.compute) is None:
        return None
    return _spacing(x, dtype.compute)


def least_spacing(x: Array, axis: int, dtype: DType) -> Array | None:
    """Return the least spacing along an axis, read in chunks; None if `spacing` is."""
    if x.dtype.kind == "c" or not x.size or _spacing(_few(x), dtype.compute) is None:
        return None
    rows, found = max(1, BATCH_ELEMENTS * len(x) // x.size), list[Array]()
    for low in range(0, len(x), rows):
        steps = _spacing(x[low : low + rows], dtype.compute)
        if steps is None:
            return None
        found.append(np.min(steps, axis=axis, initial=inf))
    return np.min(np.stack(found), axis=0) if axis == 0 else np.concatenate(found)


def _few(x: Array) -> Array:
    """Return a sample of an array's elements, without reading the others."""
    return x[tuple(slice(None, None, -(-e // 16)) for e in x.shape[-2:])] if x.ndim < 3 else (
        x[(*(e // 2 for e in x.shape[:-2]), ..., slice(None, None, -(-x.shape[-1] // 256)))]
    )  # fmt: skip


def _spacing(x: Array, compute: DType) -> Array | None:
    digits = 52
    if compute.name != "f64":
        digits = 23
        if not (x.astype(np.float32) == x).all():
            return None
    wide = np.asarray(x, np.float64)
    lowest = wide.view(np.uint64) & np.uint64((1 << 52) - 1)
    lowest |= np.uint64(1 << 52)
    lowest &= ~lowest + np.uint64(1)
    power = power_below(wide)
    zero = x == 0
    if np.any((lowest < np.uint64(1 << (COARSE + 52 - digits))) & ~zero):
        return None
    if np.any((power == 0) & ~zero):
        return None  # subnormal doubles
    return np.where(zero, inf, lowest.astype(np.float64) * 2.0**-52 * power)


def lattice(x: Array, axes: tuple[int, ...], dtype: DType) -> State:
    """Return sum(|x|), and the common divisor of all terms: sums are exact up to 2**24 of these."""
    steps = spacing(x, dtype) if _may_be_exact(x, axes, dtype) else None
    if steps is None:
        return {SIZE: np.asarray(inf), STEP: np.asarray(0.0)}
    return {SIZE: np.sum(np.abs(x), axis=axes), STEP: np.min(steps, axis=axes, initial=inf)}


def _may_be_exact(x: Array, axes: tuple[int, ...], dtype: DType) -> bool:
    """Return whether a sample of terms does not rule out that sums are exact."""
    if x.dtype.kind == "c" or not x.size:
        return False
    few = _few(x)
    steps = _spacing(few, dtype.compute)
    if steps is None:
        return False
    count = prod(x.shape[a] for a in axes)
    size = float(np.mean(np.abs(few))) * count
    return size <= CERTAIN * WHOLE[dtype.compute.part.name] * float(np.min(steps))


def may_be_exact(factors: Sequence[Array], count: int, dtype: DType) -> bool:
    """Return whether a sample of two factors does not rule out that sums of products are exact.

    count: products in a sum.
    """
    size, step = float(count), 1.0
    for factor in factors:
        if factor.dtype.kind == "c" or not factor.size:
            return True
        few = _few(factor)
        steps = _spacing(few, dtype.compute)
        if steps is None:
            return False
        size *= float(np.sqrt(np.mean(np.square(few))))
        step *= float(np.min(steps))
    return size <= CERTAIN * WHOLE[dtype.compute.part.name] * step


def is_exact(state: State, dtype: DType) -> Array:
    """Return which sums have no rounded partial sum, in any order."""
    return state[SIZE] <= WHOLE[dtype.compute.part.name] * state[STEP]


def start_sum(operand: Estimate, axes: tuple[int, ...], dtype: DType, rules: Rules) -> State:
    x = operand.value.astype(storage(dtype), copy=False)
    state: State = {"out": addition(dtype)(x, axes)}
    if not rules.errors or not dtype.is_rounded:
        return state | (passed(operand, axes) if rules.errors else {})
    state |= lattice(x, axes, dtype)
    state["squares"] = moments(x, axes)
    return state | taken(x, axes, dtype, rules) | _pass_unshared(operand, axes)


def _pass_unshared(operand: Estimate, axes: tuple[int, ...]) -> State:
    """Return the sums of the terms' errors, summing errors common along other axes separately."""
    apart, shared = operand.alike, operand.shared
    if shared is not None and all(shared.variance.shape[a] == 1 for a in axes):
        state = passed(replace(operand, common=shared.rest), axes)
        slope = np.broadcast_to(shared.slope, operand.value.shape)
        state[SLOPE] = np.sum(slope, axis=axes)
        state[SHARED] = np.squeeze(shared.variance, axis=axes)
        return state
    if apart is None or operand.common is None or not apart.axes.isdisjoint(axes):
        return passed(operand, axes)
    with np.errstate(invalid="ignore"):
        rest = np.maximum(operand.common - apart.variance, 0)
    rest = np.where(np.isfinite(operand.common), rest, operand.common)
    state = passed(replace(operand, common=rest if rest.any() else None), axes)
    terms = np.broadcast_to(apart.variance, operand.value.shape)
    state["apart"] = np.sum(terms * repeats(operand.value, axes, terms), axis=axes)
    return state


def finish_sum(state: State, dtype: DType, rules: Rules) -> Estimate:
    out = state["out"]
    independent, common = state.get("independent"), state.get("common")
    common = add(None if common is None else np.square(common), state.get("apart"))
    if SHARED in state:
        common = add(common, np.square(state[SLOPE]) * state[SHARED])
    if "squares" not in state:
        return Estimate(out, independent, common)
    count, squares = int(state["count"]), state["squares"]
    exact = is_exact(state, dtype)
    own = sum_error(out, squares, sums_of(state), count, dtype, rules.orders)
    if not any(order.rounds_whole_numbers for order in rules.orders):
        own = np.where(exact, 0.0, own)
    part = part_of(out, squares)
    inexact = independent is not None or bool(own.any())
    return Estimate(out, add(independent, own) if inexact else None, common, part=part)


def part_of(out: Array, squares: Array) -> Array:
    """Return the expected size of one of the equal parts of a sum, given sum(x) and sum(x**2)."""
    with np.errstate(over="ignore"):
        return np.sqrt(squares / PARTS + np.square(np.abs(out) / PARTS))


def sums_of(state: State, name: str = TAKEN) -> list[Array]:
    """Return the sums actually computed, in every order."""
    return [array for key, array in state.items() if key.startswith(name)]


def sum_error(
    out: Array, squares: Array, found: Sequence[Array], count: Array | int, dtype: DType,
    orders: Sequence[Order], *, whole: bool = True,
) -> Array:  # fmt: skip
    """Return the variance of a sum's own roundings; `found` are the sums computed in `orders`.

    Infinite where sums of some order overflow; `whole`: the sum itself is the result.
    """
    own = np.zeros(np.shape(out))
    for order, sums in zip(orders, found, strict=True):
        own = np.maximum(own, _in_order(out, squares, sums, count, dtype, order))
    own = np.where(np.isfinite(out), own, 0.0)
    lost = overflowing(out, np.sqrt(count * squares), dtype, whole=whole)
    return np.where(lost, inf, own) if lost.any() else own


def _in_order(
    out: Array, squares: Array, sums: Array, count: Array | int, dtype: DType, order: Order
) -> Array:
    closed = roundings(out, squares, count, order, unit(dtype) / 2)
    return widened(closed, squared(sums - out))


def widened(closed: Array, off: Array) -> Array:
    """Return the variance of sums by the closed form and by their actual errors (squared).

    If they are further off than with independent roundings, all sums may be.
    """
    off = np.where(np.isfinite(off), off, 0.0)
    sure, further = (off > 0) & (closed > 0), 1.0
    if sure.any():
        further = max(1.0, float(np.mean(off[sure] / np.broadcast_to(closed, off.shape)[sure])))
    return closed * further + np.max(off, axis=0)
