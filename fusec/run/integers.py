"""Integer inputs for which sums and products are exact in any order: results agree bitwise.

Of several distributions, from integers up to 8 down to sparse ones, the first is selected that
makes the largest number of sums in the fusion exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fusec.dataclasses import dataclass
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, Sizes
from fusec.ir.graph import Fusion, Input, Value
from fusec.run.arrays import span
from fusec.run.contents import Ends, Numbers, contents_of
from fusec.run.exact_range import BOOL, ExactRange, exact_ranges, held, is_ruled, is_sum, of_number

LARGEST = 2.0**60
HALVINGS = 30
"""Halvings of the step until an interval contains two multiples; narrower ones have one value."""


@dataclass(frozen=True)
class InputRange:
    """Random multiples of a step up to `most`; nonzero with probability `share`."""

    most: int
    share: float = 1.0


INPUT_RANGES = (
    InputRange(8),
    InputRange(4),
    InputRange(2),
    InputRange(1),
    InputRange(1, 2.0**-3),
    InputRange(1, 2.0**-6),
    InputRange(1, 2.0**-9),
)


@dataclass(frozen=True)
class Choice:
    """A distribution of inputs, and the values that are then exact in any summation order."""

    input_range: InputRange
    exact: frozenset[Value]


def choose(fusion: Fusion, sizes: Sizes) -> Choice:
    """Return the first distribution that makes the largest number of sums exact."""
    choices = (Choice(w, frozenset(places(fusion, sizes, w))) for w in INPUT_RANGES)
    sums = [v for n in fusion.nodes if is_sum(n) for v in n.outputs]
    return max(choices, key=lambda c: sum(v in c.exact for v in sums))  # the first of equal ones


def exact_outputs(fusion: Fusion, sizes: Sizes) -> frozenset[str]:
    """Return the outputs that are bitwise determined on integer inputs; none without exact sums.

    Integers and bools do not depend on summation order for any inputs, so only floats count.
    """
    exact = choose(fusion, sizes).exact
    if not any(v in exact for n in fusion.nodes if is_sum(n) for v in n.outputs):
        return frozenset()
    outputs = (o.value for o in fusion.outputs)
    return frozenset(v.name for v in outputs if v in exact and v.dtype.is_float)


def places(fusion: Fusion, sizes: Sizes, input_range: InputRange) -> dict[Value, ExactRange]:
    """Return the ranges of the values that are exact for a distribution of inputs."""
    given = {i.value: _exact_range(fusion, i, sizes, input_range) for i in fusion.inputs}
    known = {value: exact_range for value, exact_range in given.items() if exact_range is not None}
    return exact_ranges(fusion, known, sizes)


def _exact_range(
    fusion: Fusion, entry: Input, sizes: Sizes, input_range: InputRange
) -> ExactRange | None:
    """Return the range of the elements of an input."""
    value, dtype = entry.value, entry.value.dtype
    if dtype.kind == "bool":
        return BOOL
    if dtype.is_complex:
        return None
    if value.is_scalar and entry.default is not None:
        return of_number(entry.default, dtype)
    if entry.generator:
        return ExactRange(1.0, 2.0**64)
    contents = whole_contents(fusion, entry, sizes)
    if not isinstance(contents, Numbers):
        return ExactRange(1.0, float(contents.end))
    if contents.positions:
        return ExactRange(1.0, contents.high)
    points = points_of(contents, input_range.most, dtype)
    shape = [d.evaluate(sizes) for d in value.shape]
    repeats = span(shape, [s.evaluate(sizes) for s in entry.strides]) < math.prod(shape)
    share = input_range.share if is_sparse(contents, dtype, input_range) and not repeats else 1.0
    most = max(abs(points.low), abs(points.high)) * points.step
    return held(ExactRange(points.exact_range_step, most, share), dtype)


def whole_contents(fusion: Fusion, entry: Input, sizes: Sizes) -> Numbers | Ends:
    """Return the contents of an input; any integers where only sums and the like follow."""
    contents = contents_of(fusion, entry, sizes)
    if isinstance(contents, Ends) or contents.positions or contents.explicit:
        return contents
    if all(is_ruled(node) for node, _ in fusion.readers(entry.value, is_ruled)):
        return Numbers(-math.inf, math.inf, explicit=False)
    return contents


def is_sparse(contents: Numbers, dtype: DType, input_range: InputRange) -> bool:
    """Return whether most elements are randomly set to 0."""
    return input_range.share < 1 and dtype.is_float and contents.low <= 0 <= contents.high


@dataclass(frozen=True)
class Points:
    """The candidate values of a random input: (low, ..., high) * step, with or without 0."""

    low: int
    high: int
    step: float
    zero: bool

    @property
    def exact_range_step(self) -> float:
        """Return the largest power of two that divides all values."""
        over, under = float(self.step).as_integer_ratio()
        return (over & -over) / under

    def draw(self, generator: Any, count: int, dtype: DType) -> Array:
        """Return `count` random values."""
        every = np.arange(self.low, self.high + 1)
        chosen = every if self.zero or not every.any() else every[every != 0]
        drawn = chosen[generator.integers(0, len(chosen), count)]
        return (drawn * self.step if dtype.is_float else drawn).astype(dtype.numpy)


def points_of(contents: Numbers, most: int, dtype: DType) -> Points:
    """Return the values of an interval nearest 0, at most `most` steps from the nearest one.

    The step is 1, or else the largest power of two with two multiples in the interval.
    """
    low, high, step = max(contents.low, -LARGEST), min(contents.high, LARGEST), 1.0
    if dtype.is_integer:
        facts = np.iinfo(dtype.numpy)
        low = max(math.ceil(low), int(facts.min))
        high = max(min(math.floor(high), int(facts.max)), low)
    for _ in range(HALVINGS):
        first, last = math.ceil(low / step), math.floor(high / step)
        if last > first or low == high == first * step:
            near = min(max(0, first), last)
            first, last = max(first, near - most), min(last, near + most)
            return Points(first, last, step, zero=contents.explicit)
        step /= 2
    return Points(1, 1, low, zero=True)


def draw(
    contents: Numbers, input_range: InputRange, generator: Any, count: int, dtype: DType
) -> Array:
    """Return random elements of an input with the given distribution."""
    drawn = points_of(contents, input_range.most, dtype).draw(generator, count, dtype)
    if is_sparse(contents, dtype, input_range):
        drawn[generator.random(count) >= input_range.share] = 0
    return drawn
