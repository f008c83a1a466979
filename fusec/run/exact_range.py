"""Which values of a fusion are exact in any summation order: small multiples of a power of two.

A sum or product of such multiples is exact as long as the sum of absolute values stays below 2^24
steps in f32, or 2^53 in f64: the order of summation then does not matter. Integers are always
exact, since they wrap around. Values that depend on anything else are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

from fusec.dataclasses import dataclass, replace
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Sizes
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ir.roles import Combine

STEPS = {"f32": 2.0**24, "f64": 2.0**53}
"""Every multiple up to this number of steps is representable in the type."""
_FINEST = 2.0**200
"""The step of 0 and of infinities, which are multiples of any step."""


@dataclass(frozen=True)
class ExactRange:
    """Multiples of `step`, a power of two, with magnitude at most `most`.

    share: of any n elements of the tensor, at most filled(n, share) are nonzero.
    """

    step: float
    most: float
    share: float = 1.0

    def __or__(self, other: ExactRange) -> ExactRange:
        """Return the range of a value that is one of two."""
        return ExactRange(
            min(self.step, other.step),
            max(self.most, other.most),
            min(1.0, self.share + other.share),
        )

    def __add__(self, other: ExactRange) -> ExactRange:
        return replace(self | other, most=self.most + other.most)

    def __mul__(self, other: ExactRange) -> ExactRange:
        share = min(self.share, other.share)
        return ExactRange(self.step * other.step, self.most * other.most, share)

    def total(self, count: int) -> ExactRange:
        """Return the range of a sum of `count` terms, in any order, and of its partial sums."""
        return ExactRange(self.step, filled(count, self.share) * self.most)

    def whole(self) -> ExactRange:
        """Return the range of the value rounded to an integer, in any direction."""
        return replace(self, step=max(1.0, self.step), most=float(np.ceil(self.most)))

    def truth(self) -> ExactRange:
        """Return the range of a bool computed from the value."""
        return BOOL


BOOL = ExactRange(1.0, 1.0)
ZERO = ExactRange(_FINEST, 0.0, 0.0)
Found = Sequence[ExactRange]
Rule = Callable[[Node, Found, Sizes], ExactRange | None]


def filled(count: int, share: float) -> float:
    """Return the maximum number of nonzeros among `count` elements with probability `share` each.

    By Bernstein's inequality it is exceeded with a probability of 10^-13.
    """
    expected = count * share
    return min(float(count), expected + 8 * math.sqrt(expected) + 32)


def of_number(value: complex, dtype: DType) -> ExactRange | None:
    """Return the range of a literal rounded to `dtype`."""
    if isinstance(value, complex):
        return None
    stored = np.asarray(value, np.float64).astype(dtype.numpy) if dtype.is_float else value
    number = float(stored)
    if number == 0 or not math.isfinite(number):
        return ZERO
    over, under = number.as_integer_ratio()
    return ExactRange((over & -over) / under, abs(number))


def held(exact_range: ExactRange, dtype: DType) -> ExactRange | None:
    """Return the range of a value stored as `dtype`; None where it may not be exact."""
    if dtype.kind == "bool":
        return replace(exact_range, step=1.0, most=1.0)
    if dtype.is_integer:
        whole = exact_range.whole()
        return replace(whole, most=min(whole.most, 2.0**dtype.bits))
    if not dtype.is_float or exact_range.most > STEPS[dtype.compute.name] * exact_range.step:
        return None
    if not dtype.is_half:
        return exact_range
    facts = cast(Any, ml_dtypes.finfo)(dtype.numpy)
    digits, least, largest = int(facts.nmant), float(facts.smallest_subnormal), float(facts.max)
    step = max(exact_range.step, least)
    rounds = exact_range.most > 2.0 ** (digits + 1) * step
    most = exact_range.most * (1 + 2.0**-digits) if rounds else exact_range.most
    return None if most > largest else replace(exact_range, step=step, most=most)


def exact_ranges(
    fusion: Fusion, inputs: Mapping[Value, ExactRange], sizes: Sizes
) -> dict[Value, ExactRange]:
    """Return the ranges of the values of a fusion that do not depend on summation order."""
    found = dict(inputs)
    for node in fusion.nodes:
        for value, exact_range in zip(node.outputs, _results(node, found, sizes), strict=True):
            kept = None if exact_range is None else held(exact_range, value.dtype)
            if kept is not None:
                found[value] = kept
    return found


def is_ruled(node: Node) -> bool:
    """Return whether exact operands give exact results of the operation, within limits."""
    return _rule(node) is not None or node.op.family == "sort"


def _results(
    node: Node, found: Mapping[Value, ExactRange], sizes: Sizes
) -> tuple[ExactRange | None, ...]:
    unknown = (None,) * len(node.outputs)
    known: list[ExactRange] = []
    for operand, dtype in zip(node.operands, node.compute_dtypes, strict=True):
        exact_range = _operand(operand, dtype, found, sizes)
        if exact_range is None:
            return unknown
        spread = node.op.is_elementwise and count_of(operand, sizes) < count_of(node.output, sizes)
        known.append(_anywhere(exact_range) if spread and exact_range.share else exact_range)
    if node.op.family == "sort":
        places = ExactRange(1.0, float(count_of(node.operands[0], sizes)))
        return tuple(known[0] | places if v.dtype.is_integer else known[0] for v in node.outputs)
    rule = _rule(node)
    if rule is not None:
        return (rule(node, known, sizes),) * len(node.outputs)
    # Integer arithmetic is exact for any values.
    whole = not any(o.type.dtype.is_rounded for o in (*node.operands, node.output))
    return (ExactRange(1.0, math.inf),) if node.op.is_elementwise and whole else unknown


def _operand(
    operand: Operand, dtype: DType, found: Mapping[Value, ExactRange], sizes: Sizes
) -> ExactRange | None:
    if isinstance(operand, Const):
        return of_number(operand.value, dtype)
    if operand.is_scalar and operand.dim is not None:
        return of_number(operand.dim.evaluate(sizes), dtype)
    return found.get(operand)


def count_of(operand: Operand, sizes: Sizes) -> int:
    """Return the number of elements of an operand."""
    return math.prod(extent.evaluate(sizes) for extent in operand.shape)


# --- rules: from the ranges of the operands, in order


def _either(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    """Return the range of an element of one of the operands."""
    exact_range = found[0]
    for other in found[1:]:
        exact_range |= other
    return exact_range


def _moved(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    given = sum(count_of(o, sizes) for o in node.operands if isinstance(o, Value))
    repeats = count_of(node.output, sizes) > given
    exact_range = _either(node, found, sizes)
    return replace(exact_range, share=1.0) if repeats and exact_range.share else exact_range


def _looked_up(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    """Return the range of the elements; one may be taken many times."""
    assert node.op.lookup is not None
    return replace(found[node.op.lookup.table], share=1.0)


def _cast(node: Node, found: Found, sizes: Sizes) -> ExactRange | None:
    source, dtype = node.operands[0].type.dtype, node.output.dtype
    if not (source.is_float and dtype.is_integer):
        return found[0]
    signed = dtype.kind == "int"
    return found[0].whole() if signed and found[0].most < 2.0 ** (dtype.bits - 1) else None


def _summed(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    results = max(1, count_of(node.output, sizes))
    return found[0].total(count_of(node.operands[0], sizes) // results)


def _running_sum(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    axis: int = node.attributes["dim"]
    total = found[0].total(node.operands[0].shape[axis].evaluate(sizes))
    return _anywhere(total + found[1] if len(found) > 1 else total)


def _anywhere(exact_range: ExactRange) -> ExactRange:
    return replace(exact_range, share=1.0)


def _product(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    """Return the range of a GEMM, with its bias."""
    product = (found[0] * found[1]).total(node.operands[0].shape[-1].evaluate(sizes))
    declared = node.op.product
    bias = None if declared is None else declared.bias
    if bias is None or len(found) <= bias:
        return _anywhere(product)
    return _anywhere(product + found[bias])


def _any_of_it(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    return _anywhere(found[0])


def _any_of_all(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    return _anywhere(_either(node, found, sizes))


def _truth(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    return BOOL


def _written(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    return found[0] | found[2]


def _scattered(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    """Return the range of sums to which all elements along the dim may be added."""
    axis: int = node.attributes["dim"]
    index = node.operands[1].shape
    meeting = index[axis if len(index) > 1 else 0].evaluate(sizes) if index else 1
    return _anywhere(found[0] + found[2].total(meeting))


def _sequence(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    return found[0] + found[1] * ExactRange(1.0, float(count_of(node.output, sizes)))


def _place(node: Node, found: Found, sizes: Sizes) -> ExactRange:
    return ExactRange(1.0, float(count_of(node.operands[0], sizes)))


ROLES: Mapping[tuple[str, Combine | None], Rule] = {
    ("reduction", Combine.SUM): _summed,
    ("reduction", Combine.MAXIMUM): _any_of_it,
    ("reduction", Combine.MINIMUM): _any_of_it,
    ("reduction", Combine.FIRST_MAXIMUM): _place,
    ("reduction", Combine.FIRST_MINIMUM): _place,
    ("reduction", Combine.SOME): _truth,
    ("reduction", Combine.EVERY): _truth,
    ("scan", Combine.SUM): _running_sum,
    ("scan", Combine.MAXIMUM): _any_of_all,
    ("scan", Combine.MINIMUM): _any_of_all,
    ("contraction", Combine.SUM): _product,
    ("scatter", None): _written,
    ("scatter", Combine.SUM): _scattered,
    ("movement", None): _moved,
    ("indexing", None): _looked_up,
    ("factory", None): _sequence,
}
"""The range of results by op family and by how colliding elements combine; else unknown."""


def is_sum(node: Node) -> bool:
    """Return whether results depend on the summation order, unless the sums are exact."""
    return node.op.combine is Combine.SUM


def _rule(node: Node) -> Rule | None:
    op = node.op
    if op.exact is not None:
        declared = op.exact
        return lambda node, found, sizes: declared(found)
    return _cast if op.converts else ROLES.get((op.family, op.combine))
