"""Expected errors of elementwise operations.

Each operand is moved up and down by the limit of its error; the larger change of the result, over
that of the operand, is the slope that propagates both of its variances. Operations with simple
slopes declare them. The operation's own error is added: see `estimate.rounding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import reduce
from itertools import product as cartesian
from typing import Any

from fusec.dataclasses import replace
from fusec.ir.arrays import np
from fusec.ir.evaluate import Array, apply_reference, settle, storage
from fusec.ir.graph import Node
from fusec.ir.op import Slopes
from fusec.reference.errors.absorption import absorbed, as_absorbed
from fusec.reference.errors.between import between
from fusec.reference.errors.common_factors import factor_of
from fusec.reference.errors.complexes import complex_error, directions, steepness, unjudged
from fusec.reference.errors.estimate import (
    JUMP_PROBABILITY,
    LIMIT,
    Estimate,
    add,
    distance,
    jump_probability,
    known,
    narrowing,
    result,
    rounding,
    together,
    truth,
    without_errors,
)
from fusec.reference.errors.passing import joined
from fusec.reference.errors.shared import shared_of
from fusec.reference.errors.shares import Limit

Attributes = Mapping[str, Any]


class Arithmetic(Enum):
    """How an operation is computed: exactly, as declared, by a cheaper form, or inside one."""

    EXACT = "exact"
    DECLARED = "declared"
    APPROXIMATED = "approximated"
    INSIDE = "inside"


RESOLUTION = 2.0**-52
"""Relative spacing of doubles."""
CORRECT = 0.5
"""Error in units of a correctly rounded result."""


def cast(node: Node, operand: Estimate, attributes: Attributes) -> Estimate:
    """Return a value converted to another type."""
    source, target = node.operands[0].type.dtype, node.output.dtype
    if target.kind == "bool" and source.kind != "bool":
        return truth(operand)
    (raw,) = apply_reference(node.op, [operand.value], attributes)
    if source.is_rounded and not target.is_rounded:
        return _jumping(node, [operand], raw, attributes)
    if not target.is_rounded:
        return replace(operand, value=np.asarray(raw).astype(storage(target), copy=False))
    wide = np.asarray(raw, storage(target))
    independent = add(operand.independent, narrowing(wide, source, target))
    found = result(wide, target, independent, operand.common, operand.ancestors, operand.part)
    found = replace(found, factor=operand.factor, shared=operand.shared)
    return replace(found, most=operand.most) if independent is operand.independent else found


def pointwise(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, arithmetic: Arithmetic,
    limit: Limit | None = None,
) -> Estimate:  # fmt: skip
    """Return the result of an elementwise operation, not a cast; limit: of propagated errors."""
    (raw,) = apply_reference(node.op, [o.value for o in operands], attributes)
    if arithmetic is Arithmetic.EXACT:
        values = [o.value for o in operands]
        return result(as_absorbed(node, values, raw), node.output.dtype, None, None)
    inexact = [k for k, o in enumerate(operands) if not o.exact]
    if inexact and node.op.compares:
        return _compared(node, operands, raw)
    if inexact and (node.op.discontinuous or _leaves_floats(operands, inexact, raw)):
        passed = _jumping(node, operands, raw, attributes)
    else:
        passed = _passed(node, operands, raw, inexact, attributes)
    limited = passed if limit is None or passed.exact else limit(passed, operands)
    is_limited, passed = limited is not passed, limited
    passed = _with_certain_nans(node, operands, raw, passed)
    own = replace(_with_own(node, operands, raw, passed), factor=factor_of(node, operands, raw))
    if not is_limited:
        own = replace(own, shared=shared_of(node, operands, passed, own))
    own = absorbed(node, operands, passed, own)
    own = _with_sure_infinities(node, operands, own, inexact, attributes)
    if arithmetic is Arithmetic.DECLARED:
        return own
    return _approximated(node, operands, own, inside=arithmetic is Arithmetic.INSIDE)


def _leaves_floats(operands: Sequence[Estimate], inexact: Sequence[int], raw: Array) -> bool:
    return raw.dtype.kind in "biu" and any(operands[k].value.dtype.kind in "fc" for k in inexact)


def _passed(
    node: Node, operands: Sequence[Estimate], raw: Array, inexact: Sequence[int],
    attributes: Attributes,
) -> Estimate:  # fmt: skip
    """Return the result with the propagated errors of its operands."""
    passed = Estimate(raw)
    for index in inexact:
        if node.op.slopes is None:
            slope, least = _slope(node, operands, index, raw, attributes)
        else:
            slope = _declared_slope(node.op.slopes, operands, index)
            least = slope
            if operands[index].part is not None:
                least = _declared_slope(node.op.slopes, operands, index, far=False)
        passed = joined(passed, operands[index], slope, least)
    return passed


def _with_certain_nans(
    node: Node, operands: Sequence[Estimate], raw: Array, passed: Estimate
) -> Estimate:
    """Return a result without errors where it is NaN because an operand certainly is NaN."""
    if passed.exact or raw.dtype.kind not in "fc" or node.op.chooses:
        return passed
    with np.errstate(all="ignore"):
        nan = np.isnan(raw)
        if not nan.any():
            return passed
        given = (np.isnan(o.value) & ~np.isinf(o.sigma) for o in operands if _is_float(o.value))
        certain = nan & reduce(np.logical_or, given, np.zeros(raw.shape, np.bool_))
    return replace(
        passed,
        independent=None
        if passed.independent is None
        else np.where(certain, 0, passed.independent),
        common=None if passed.common is None else np.where(certain, 0, passed.common),
    )


def _with_sure_infinities(
    node: Node, operands: Sequence[Estimate], own: Estimate, inexact: Sequence[int],
    attributes: Attributes,
) -> Estimate:  # fmt: skip
    """Return a result without errors where it is the same infinity at all limits of its operands.

    A masked score is minus infinity times a positive number, regardless of that number's error.
    """
    if own.exact or own.value.dtype.kind != "f":
        return own
    infinite = np.isinf(own.value)
    if not infinite.any():
        return own
    at = infinite & np.isinf(own.sigma)
    few = [np.broadcast_to(o.value, at.shape)[at] for o in operands]
    steps = {k: np.broadcast_to(_step(operands[k]), at.shape)[at] for k in inexact}
    sure = np.ones(int(np.count_nonzero(at)), np.bool_)
    for signs in cartesian((1, -1), repeat=len(inexact)):
        arrays = list(few)
        for index, sign in zip(inexact, signs, strict=True):
            arrays[index] = _shift(arrays[index], steps[index], sign)
        (end,) = apply_reference(node.op, arrays, attributes)
        sure &= settle(node, node.output, end) == own.value[at]
    if not sure.any():
        return own
    at = np.array(at)
    at[at] = sure
    return without_errors(own, at)


def _is_float(array: Array) -> bool:
    return array.dtype.kind in "fc"


def _declared_slope(
    slopes: Slopes, operands: Sequence[Estimate], place: int, *, far: bool = True
) -> Array | None:
    """Return the slope that an operation declares, for operands off by (far) their limits."""

    def reach(other: int) -> Array | float:
        return LIMIT * operands[other].sigma if far and not operands[other].exact else 0.0

    with np.errstate(all="ignore"):
        return slopes(place, [o.value for o in operands], reach)


def _step(operand: Estimate, times: int = 1) -> Array:
    """Return how far an operand is moved: by its limit, bools and integers by a whole step."""
    sigma = operand.sigma
    if operand.value.dtype.kind == "b":
        return np.asarray(sigma > 0, np.float64)
    with np.errstate(all="ignore"):
        reach = LIMIT * times * sigma
        return np.ceil(reach) if operand.value.dtype.kind in "iu" else reach


def _changes(
    node: Node, operands: Sequence[Estimate], index: int, raw: Array, attributes: Attributes,
    step: Array,
) -> list[Array]:  # fmt: skip
    """Return how the result changes when an operand is moved in each direction."""
    moved = list[Array]()
    for sign in directions(operands[index].value):
        arrays = [o.value for o in operands]
        arrays[index] = _shift(arrays[index], step, sign)
        (other, *_) = apply_reference(node.op, arrays, attributes)
        moved.append(distance(other, raw))
    return moved


def _shift(value: Array, step: Array, sign: complex) -> Array:
    with np.errstate(all="ignore"):
        if value.dtype.kind == "b":
            return value ^ (step > 0)
        if value.dtype.kind in "iu":
            whole = np.where(np.isfinite(step), step, 1.0).astype(value.dtype)
            return value + whole if sign == 1 else value - whole
        if sign in (1, -1):
            return value + step if sign == 1 else value - step
        return value + step * sign


def _slope(
    node: Node, operands: Sequence[Estimate], index: int, raw: Array, attributes: Attributes
) -> tuple[Array, Array]:
    """Return the change of the result over that of an operand at its limits.

    That of the steeper side, or of the range between, and that of the other.
    """
    operand = operands[index]
    step = _step(operand)
    moved = _changes(node, operands, index, raw, attributes, step)
    change, less = reduce(np.maximum, moved), reduce(np.fmin, moved)
    if operand.value.dtype.kind == "c":
        change = change * steepness(raw)
    inside, most = between(node, [o.value for o in operands], step, index)
    if inside is not None and inside.any():
        change = np.where(inside, np.fmax(change, most), change)
    slope, least = np.zeros(change.shape), np.zeros(change.shape)
    with np.errstate(all="ignore"):
        for each, side in ((slope, change), (least, less)):
            np.divide(side, step, out=each, where=np.broadcast_to(step > 0, slope.shape))
    if np.isnan(np.max(slope, initial=0)):
        slope = np.where(np.isnan(slope), np.inf, slope)
    return slope, least


def _jumping(
    node: Node, operands: Sequence[Estimate], raw: Array, attributes: Attributes
) -> Estimate:
    """Return the result of a discontinuous operation, off by the height of what it may cross.

    Several operands may reach a discontinuity together that none of them reaches alone.
    """
    inexact = [k for k, o in enumerate(operands) if not o.exact]
    passed, height = Estimate(raw), np.zeros(raw.shape)
    for index in inexact:
        operand = operands[index]
        step = _step(operand, len(inexact))
        moved = _changes(node, operands, index, raw, attributes, step)
        change, smooth = reduce(np.fmax, moved), reduce(np.fmin, moved)
        lost = np.isnan(reduce(np.add, moved))
        inside, most = between(node, [o.value for o in operands], step, index)
        if inside is not None and inside.any():
            change = np.where(inside, np.fmax(change, most), change)
        if operand.value.dtype.kind in "iu":
            # Values between two integers' results are meaningless.
            lost |= np.broadcast_to(step > 0, lost.shape)
        if raw.dtype.kind == "f":
            # A smooth stretch changes equally on both sides except for the reference's own
            # rounding.
            with np.errstate(all="ignore"):
                jumps = change > LIMIT * (smooth + np.abs(raw) * RESOLUTION)
                slope = np.where(step > 0, np.fmin(change, smooth * LIMIT) / step, 0.0)
            steepest = np.where(jumps, 1.0, slope)
            passed = joined(passed, operand, steepest, steepest)
            change = np.where(jumps, change, 0.0)
        else:
            passed = replace(passed, ancestors=passed.ancestors | operand.ancestors)
        height = np.fmax(height, np.where(lost, np.inf, change))
    if not height.any():
        return passed
    with np.errstate(all="ignore"):
        jump = np.square(JUMP_PROBABILITY * height)
    return replace(passed, independent=add(passed.independent, known(jump)), part=None)


def _compared(node: Node, operands: Sequence[Estimate], raw: Array) -> Estimate:
    """Return a comparison: it may flip where the operands are within their errors."""
    a, b = operands
    if node.operands[0] is node.operands[1]:
        # A value compared with itself has no error.
        return Estimate(raw)
    join = together if a.ancestors & b.ancestors else add
    variance = join(a.variance, b.variance)
    assert variance is not None
    with np.errstate(all="ignore"):
        sigma, off = np.sqrt(variance), distance(a.value, b.value)
        near = (sigma > 0) & ~(off > LIMIT * sigma)
        if not near.any():
            return Estimate(raw)
        chance = np.where(near, np.square(jump_probability(off, sigma)), 0.0)
    return Estimate(raw, known(np.asarray(chance)), None, a.ancestors | b.ancestors)


def _with_own(node: Node, operands: Sequence[Estimate], raw: Array, passed: Estimate) -> Estimate:
    """Return a result with the error of the operation itself."""
    dtype, values = node.output.dtype, [o.value for o in operands]
    own = complex_error(node, values, raw)
    if own is None:
        with np.errstate(all="ignore"):
            terms = raw if node.op.terms is None else node.op.terms(*values, raw)
        ulps = _accuracy(node)
    else:
        ulps, terms = own
    independent, common = rounding(terms, dtype, ulps, _exact_where(operands, raw.shape))
    if own is not None and ulps:
        independent = unjudged(node, values, raw, independent)
    spread, shared = add(passed.independent, independent), add(passed.common, common)
    if terms is raw and ulps <= CORRECT:
        found = result(
            raw, dtype, passed.independent, shared, passed.ancestors, passed.part, independent
        )
    else:
        found = result(raw, dtype, spread, shared, passed.ancestors, passed.part)
    most, variance = passed.most, add(independent, common)
    if most is not None and variance is not None:
        most = most + LIMIT * np.sqrt(variance)
    return replace(found, alike=passed.alike, most=most)


def _approximated(
    node: Node, operands: Sequence[Estimate], exact: Estimate, *, inside: bool
) -> Estimate:
    """Return a result with the error of the form that replaces the operation or surrounds it."""
    form, values = node.op.approx, [o.value for o in operands]
    if inside:
        assert node.op.inside is not None
        ulps, terms = node.op.inside
    else:
        assert form is not None
        ulps, terms = form.accuracy, form.terms
    with np.errstate(all="ignore"):
        relative = exact.value if terms is None else terms(*values, exact.value)
    independent, common = rounding(relative, node.output.dtype, ulps, exact=False)
    return replace(
        exact,
        independent=add(exact.independent, known(independent)),
        common=add(exact.common, known(common)),
        most=None,
    )


def _exact_where(operands: Sequence[Estimate], shape: tuple[int, ...]) -> Array | bool:
    """Return where all operands are exact."""
    exact: Array | bool = True
    for operand in operands:
        variance = operand.variance
        if variance is None:
            continue
        here = variance == 0
        if not here.any():
            return False
        exact = here if exact is True else exact & here
    return exact if exact is True else np.broadcast_to(exact, shape)


def _accuracy(node: Node) -> float:
    """Return the declared error of an operation in the type that it computes in."""
    wide = node.op.accuracy_f64 is not None and "f64" in {d.name for d in node.compute_dtypes}
    return node.op.accuracy_f64 if wide and node.op.accuracy_f64 else node.op.accuracy
