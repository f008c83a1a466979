"""Propagation of an operand's expected errors to the result of an operation, by its slope."""

from __future__ import annotations

from collections.abc import Callable

from fusec.dataclasses import replace
from fusec.ir.arrays import np
from fusec.ir.evaluate import Array
from fusec.reference.errors.estimate import (
    Alike,
    Estimate,
    add,
    known,
    spread_alike,
    squared,
    together,
)


def joined(
    passed: Estimate, operand: Estimate, slope: Array | None, least: Array | None
) -> Estimate:
    """Return a result with the error of one more operand, propagated by its slope.

    least: the slope that propagates a part of a sum: a lost part changes the result at least so
    much.
    """
    square = None if slope is None else _square(np.asarray(slope))
    taken = spread_alike(operand, passed.value.shape)
    own, shared = _scaled(taken.independent, square), _scaled(taken.common, square)
    join = together if passed.ancestors & operand.ancestors else add
    part = passed.part
    if operand.part is not None:
        with np.errstate(all="ignore"):
            reached = operand.part * (1.0 if least is None else np.abs(least))
        part = reached if part is None else np.fmax(part, reached)
    return replace(
        passed,
        independent=join(passed.independent, own),
        common=join(passed.common, shared),
        alike=_with_alike(passed.alike, taken.alike, square, join),
        most=_with_most(passed, operand, slope),
        ancestors=passed.ancestors | operand.ancestors,
        part=part,
    )


def _with_most(passed: Estimate, operand: Estimate, slope: Array | None) -> Array | None:
    """Return the limit of an error with that of one more operand propagated to it."""
    if passed.most is None and operand.most is None:
        return None
    with np.errstate(all="ignore"):
        return known(passed.reach + operand.reach * (1.0 if slope is None else np.abs(slope)))


def _with_alike(
    passed: Alike | None,
    taken: Alike | None,
    square: Array | None,
    join: Callable[[Array | None, Array | None], Array | None],
) -> Alike | None:
    """Return the error common along some axes only, with that of one more operand added."""
    if taken is None:
        return passed
    own = _scaled(taken.variance, square)
    assert own is not None
    if passed is None:
        return Alike(taken.axes, own)
    both = join(passed.variance, own)
    assert both is not None
    return Alike(passed.axes | taken.axes, both)


def _square(slope: Array) -> Array:
    """Return the square of a slope; unchanged for a mask of taken operands."""
    return slope if slope.dtype.kind == "b" else squared(slope)


def _scaled(variance: Array | None, square: Array | None) -> Array | None:
    if variance is None or square is None:
        return variance
    with np.errstate(all="ignore"):
        scaled = variance * square
    if scaled.size and np.isnan(np.max(scaled)):
        scaled = np.where(np.isnan(scaled), np.where(variance == 0, 0.0, np.inf), scaled)
    return scaled
