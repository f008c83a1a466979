"""Quotients of exponentials by their own sum, and logarithms of such sums, whose errors are large.

Scores in 16-bit floats that are rounded the other way are off by so much that the limits of a sum
of their exponentials reach 0, as if there were a pole. But exponentials are positive, and a part is
never larger than the whole: a / (a + r) is a weight of nearly 1 where the rest r is small, however
far a is off. A value that may be q times as large may be q times as small, not smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fusec.dataclasses import replace
from fusec.ir.arrays import np
from fusec.ir.evaluate import Array, Sizes, evaluate_attributes, extents
from fusec.ir.graph import Const, Fusion, Node, Value
from fusec.ops.movement.links import links_of
from fusec.ops.pointwise.binary import div
from fusec.ops.pointwise.exponential import exp, log
from fusec.ops.pointwise.ternary import where
from fusec.ops.reduction.reductions import sum as sum_
from fusec.reference.errors.common_factors import SMALL
from fusec.reference.errors.estimate import LIMIT, Estimate, known, squared

CANCELLED = 2.0**-48
"""Fraction of a whole's variance that may be lost in its difference from that of a part."""
Limit = Callable[[Estimate, Sequence[Estimate]], Estimate]
"""Limits the error of a node's result, without its own error, given its operands."""
Axes = Mapping[int, int]
"""Axes of a value computed from a sum, with the corresponding axes of the sum's terms."""


def find_shares(fusion: Fusion, sizes: Sizes) -> dict[Node, Limit]:
    """Return quotients of parts by their whole, and logarithms of wholes, with their limits."""
    found = dict[Node, Limit]()
    for node in fusion.nodes:
        if node.op is not sum_ or not isinstance(terms := node.operands[0], Value):
            continue
        maker = fusion.producer.get(terms)
        if maker is None or maker.op is not exp:
            continue
        for user, axes in _users_of_whole(fusion, node, sizes):
            if user.op is log:
                found[user] = limit_logarithm
            elif _divides(user, terms, node.attributes["dims"], axes, sizes):
                found[user] = limit_quotient
    return found


def _users_of_whole(fusion: Fusion, total: Node, sizes: Sizes) -> Iterator[tuple[Node, Axes]]:
    """Yield readers of a sum, moved or partly replaced by a constant, with the result's axes."""
    left: list[tuple[Value, Axes]] = [(total.output, _passed(total, 0, None, sizes))]
    seen = {total.output}
    while left:
        value, axes = left.pop()
        for user in fusion.users.get(value, ()):
            place = user.operands.index(value)
            passed = _passed(user, place, axes, sizes)
            others = [o for k, o in enumerate(user.operands) if k != place]
            guarded = user.op is where and place > 0 and isinstance(others[1], Const)
            if guarded or (user.op.family == "movement" and len(user.operands) == 1):
                if user.output not in seen:
                    seen.add(user.output)
                    left.append((user.output, passed))
            else:
                yield user, passed


def _passed(node: Node, place: int, axes: Axes | None, sizes: Sizes) -> Axes:
    """Return the axes of a node's result aligned with an operand's; axes: those of the operand."""
    shapes = [extents(o.type, sizes) for o in node.operands]
    attributes = evaluate_attributes(node.attributes, sizes)
    links = links_of(node, attributes, shapes, extents(node.output.type, sizes))
    pairs = [(axis, target) for index, axis, target in links.same if index == place]
    if axes is None:
        return {target: axis for axis, target in pairs}
    return {target: axes[axis] for axis, target in pairs if axis in axes}


def _divides(user: Node, terms: Value, dims: Sequence[int], axes: Axes, sizes: Sizes) -> bool:
    """Return whether each term is divided by its own sum."""
    if user.op is not div or user.operands[0] != terms:
        return False
    shape = extents(terms.type, sizes)
    kept = [a for a, extent in enumerate(shape) if a not in dims and extent > 1]
    return shape == extents(user.output.type, sizes) and all(axes.get(a) == a for a in kept)


def limit_quotient(passed: Estimate, operands: Sequence[Estimate]) -> Estimate:
    """Return a quotient with its largest possible error if the whole is very uncertain.

    With a + r as the whole, its limits are those of a and of r.
    """
    part, whole = operands
    vague = _is_vague(whole)
    if not vague.any():
        return passed
    a, of_part, of_whole = part.value, part.sigma, whole.sigma
    with np.errstate(all="ignore"):
        rest = np.maximum(whole.value - a, 0.0)
        both = squared(of_whole)
        spread = np.sqrt(np.maximum(both - squared(of_part), 0.0) + both * CANCELLED)
        (a_low, a_high), (r_low, r_high) = _ends(a, of_part), _ends(rest, spread)
        low, high = a_low / (a_low + r_high), a_high / (a_high + r_low)
        off = np.maximum(high - passed.value, passed.value - low)
    return _limited(passed, off, vague)


def limit_logarithm(passed: Estimate, operands: Sequence[Estimate]) -> Estimate:
    """Return the logarithm of a sum with its largest error where the sum is very uncertain."""
    (whole,) = operands
    vague = _is_vague(whole)
    if not vague.any():
        return passed
    with np.errstate(all="ignore"):
        return _limited(passed, np.log1p(LIMIT * whole.sigma / whole.value), vague)


def _is_vague(whole: Estimate) -> Array:
    """Return which sums are finite but very uncertain."""
    sigma, value = whole.sigma, whole.value
    with np.errstate(all="ignore"):
        small = squared(sigma) < SMALL * squared(value)
    return (sigma > 0) & ~small & np.isfinite(sigma) & np.isfinite(value)


def _ends(positive: Array, sigma: Array) -> tuple[Array, Array]:
    """Return the bounds of a positive number."""
    high = positive + LIMIT * sigma
    return np.where(high > 0, squared(positive) / high, 0.0), high


def _limited(passed: Estimate, off: Array, vague: Array) -> Estimate:
    """Return a result with its error limited to `off` where it is vague; all of it is common."""
    with np.errstate(all="ignore"):
        variance = np.fmin(squared(off / LIMIT), squared(passed.sigma))
    own, common = (0.0 if v is None else v for v in (passed.independent, passed.common))
    return replace(
        passed,
        independent=np.where(vague, 0.0, own),
        common=known(np.where(vague, variance, common)),
        alike=None,
    )
