"""What the verdict says of right and of wrong results, computed in f32 without a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fusec.ir.evaluate import Array, Sizes, extents
from fusec.ir.graph import Fusion, Value, needed_nodes
from fusec.reference.errors.nodes import Model
from fusec.reference.errors.order import Order, Stage
from fusec.reference.stream import estimate
from fusec.reference.verdict import DIFFERS, Verdict, compare, verdict_on
from fusec.run.inputs import choose_sizes, random_inputs
from tools.injected_faults import injected_faults, orders_of
from tools.single import Arithmetic, evaluate_single, rounded, stored, summed_extent

ORDERS = {
    "serial": Order((Stage(1 << 40),)),
    "chains": Order((Stage(32),)),
    "tree": Order(()),
}
"""The orders of sums that right results are computed in."""
ENTROPIES = ("random", "constant", "two values", "mask")
"""Kinds of inputs: in all but the first many elements are equal, and are rounded alike."""
ROUNDOFF = 2.0**-24
"""Unit roundoff of f32."""


@dataclass(frozen=True)
class Setting:
    """One way in which right results are computed: its order of sums, inputs and arithmetic."""

    order: str
    entropy: str = "random"
    seed: int = 0

    def inputs(self, fusion: Fusion, sizes: Sizes) -> dict[str, Any]:
        """Return the inputs of a run."""
        drawn = random_inputs(fusion, sizes, self.seed)
        return with_entropy(fusion, drawn, self.entropy, self.seed)

    def arithmetic(self) -> Arithmetic:
        """Return how the run computes."""
        return Arithmetic(ORDERS[self.order], self.seed)

    def model(self, fusion: Fusion, sizes: Sizes) -> Model:
        """Return what the verdict is told of it."""
        return Model(orders_of(fusion, sizes, self.arithmetic()))


@dataclass
class Wrong:
    """What became of wrong outputs: how many count, and those that were not found out."""

    pairs: int = 0
    missed: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


def with_entropy(fusion: Fusion, inputs: Mapping[str, Any], kind: str, seed: int) -> dict[str, Any]:
    """Return inputs whose floats are all one, one of two, or masked: values that were drawn."""
    changed = dict(inputs)
    if kind == "random":
        return changed
    rng = np.random.default_rng(seed)
    for entry in fusion.inputs:
        value = entry.value
        array = np.asarray(changed.get(value.name))
        if value.is_scalar or not value.dtype.is_float or not array.size:
            continue
        low, high = np.percentile(array.astype(np.float64), [30, 80])
        changed[value.name] = _sampled(rng, array.shape, kind, low, high).astype(value.dtype.numpy)
    return changed


def _sampled(
    rng: np.random.Generator, shape: tuple[int, ...], kind: str, low: float, high: float
) -> Array:
    if kind == "constant":
        return np.full(shape, high)
    least = low if kind == "two values" or low > 0 else 0.0
    return np.where(rng.random(shape) < (0.5 if kind == "two values" else 0.7), least, high)


def judge_right(fusion: Fusion, sizes: Sizes, setting: Setting) -> Verdict:
    """Return the verdict on right results."""
    inputs = setting.inputs(fusion, sizes)
    with np.errstate(all="ignore"):
        found = stored(fusion, evaluate_single(fusion, inputs, sizes, setting.arithmetic()))
        model = setting.model(fusion, sizes)
        return compare(fusion, sizes, inputs, found, model=model, poison=False)


def judge_wrong(fusion: Fusion, sizes: Sizes, setting: Setting) -> Wrong:
    """Return what became of wrong outputs, one at a time among right ones."""
    inputs = setting.inputs(fusion, sizes)
    before = random_inputs(fusion, sizes, setting.seed + 1)
    arithmetic, model = setting.arithmetic(), setting.model(fusion, sizes)
    wrong = Wrong()
    with np.errstate(all="ignore"):
        right = evaluate_single(fusion, inputs, sizes, arithmetic)
        expected = estimate(fusion, inputs, sizes, None, model)
        for made in injected_faults(fusion, inputs, before, sizes, arithmetic, right):
            value, name = made.output, made.output.name
            if not made.counts(right[name], expected[name]):
                continue
            wrong.pairs += 1
            found = verdict_on(value, rounded(made.wrong, value.dtype), expected[name])
            if found.word != DIFFERS:
                wrong.missed.append((name, made.kind, found.text()))
    return wrong


@dataclass(frozen=True)
class Calibration:
    """How the expected errors of one output compare with those of several f32 evaluations.

    spread, expected: root mean squares over all elements and evaluations, before the last rounding;
    size: that of the values. ratio: the largest error over the expected one. halves: whether a half
    type is rounded to on the way, whose rare flips few evaluations show.
    """

    output: str
    dtype: str
    spread: float
    expected: float
    size: float
    ratio: float
    median: float
    halves: bool

    @property
    def counts(self) -> bool:
        """Return whether the output is off by enough to tell: by a quarter of a rounding."""
        return self.spread > 0 and self.spread >= ROUNDOFF / 4 * self.size


def calibrate(fusion: Fusion, sizes: Sizes, evaluations: int) -> list[Calibration]:
    """Return the calibration of every float output; inputs and orders of terms are drawn anew."""
    outputs = [v for v in dict.fromkeys(o.value for o in fusion.outputs) if v.dtype.is_float]
    sums = {v: np.zeros(4) for v in outputs}
    ratios, medians = dict.fromkeys(outputs, 0.0), {v: list[float]() for v in outputs}
    for number in range(evaluations):
        setting = Setting(list(ORDERS)[number % len(ORDERS)], seed=number)
        inputs = setting.inputs(fusion, sizes)
        with np.errstate(all="ignore"):
            found = evaluate_single(fusion, inputs, sizes, setting.arithmetic())
            known = estimate(fusion, inputs, sizes, None, setting.model(fusion, sizes))
        for value in outputs:
            each = known[value.name]
            with np.errstate(invalid="ignore"):
                error = np.abs(found[value.name].astype(np.float64) - each.value)
            sure = np.isfinite(error) & np.isfinite(each.sigma) & np.isfinite(each.value)
            error, sigma, size = error[sure], each.sigma[sure], np.abs(each.value[sure])
            squares = (error, sigma, size, np.ones(error.size))
            sums[value] += [float(np.sum(np.square(s))) for s in squares]
            with np.errstate(all="ignore"):
                over = np.where(error > 0, error / sigma, 0.0)
            ratios[value] = max(ratios[value], float(np.max(over, initial=0.0)))
            if sigma.any():
                medians[value].append(float(np.median(over[sigma > 0])))
    found = list[Calibration]()
    for value in outputs:
        if sums[value][3]:
            spread, expected, size = np.sqrt(sums[value][:3] / sums[value][3]).tolist()
            median = float(np.median(medians[value] or [0.0]))
            rounds = any(v.dtype.is_half for v in _before(fusion, value))
            kind = (value.name, value.dtype.name)
            ratio = ratios[value]
            found.append(Calibration(*kind, spread, expected, size, ratio, median, rounds))
    return found


def _before(fusion: Fusion, value: Value) -> Iterator[Value]:
    """Yield the values that a node computes for another one, itself left out."""
    for node in needed_nodes(fusion.nodes, [value]):
        yield from (v for v in node.outputs if v is not value)


def small_sizes(fusion: Fusion, most: int, terms: int = 2048) -> dict[str, int]:
    """Return sizes at which no tensor has more than `most` elements, if that can be.

    Sums keep at least `terms` terms where they have so many.
    """
    scalars = {i.value.name for i in fusion.inputs if i.value.is_scalar}
    given = {
        d.name: d.default
        for d in fusion.dims
        if not d.anonymous and "." not in d.name and d.name not in scalars
    }
    steps = {d.name: d.multiple_of for d in fusion.dims}
    sizes = choose_sizes(fusion, given)
    least = min(terms, longest_sum(fusion, sizes))
    while largest(fusion, sizes) > most:
        for name in sorted(given, key=lambda n: -given[n]):
            half = max(given[name] // 2 // steps[name] * steps[name], steps[name])
            smaller = choose_sizes(fusion, {**given, name: half})
            if half < given[name] and longest_sum(fusion, smaller) >= least:
                given[name], sizes = half, smaller
                break
        else:
            break
    return sizes


def largest(fusion: Fusion, sizes: Sizes) -> int:
    """Return the elements of the largest tensor."""
    return max(int(np.prod(extents(v.type, sizes), dtype=np.int64)) for v in fusion.values)


def longest_sum(fusion: Fusion, sizes: Sizes) -> int:
    """Return the terms of the longest sum."""
    return max((summed_extent(n, sizes) for n in fusion.nodes), default=0)
