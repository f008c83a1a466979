"""Wrong results that a verdict must tell from right ones, made before the last rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from fusec.ir.evaluate import Array, Sizes
from fusec.ir.graph import Fusion, Node, Value, needed_nodes
from fusec.reference.errors.estimate import LIMIT, Estimate
from tools.single import Arithmetic, evaluate_single, summed_extent

SCALE = 1.02
STALE_SHARE = 0.01
"""Share of an output, at its end, that holds what was there before."""
LEAST_SHARE = 0.01
"""Share of elements that a mistake must change to count as one."""
ROUNDINGS = 2
"""Roundings of the output's type by which an element must change."""
FEWEST_TERMS = 64
"""Terms of the shortest sums of which a part is left out."""


@dataclass(frozen=True)
class InjectedFault:
    """A wrong output in place of a right one, and how it was made."""

    output: Value
    kind: str
    wrong: Array

    def counts(self, right: Array, expected: Estimate) -> bool:
        """Return whether the output is wrong: by more than its roundings in enough elements.

        What is stale or in another place is no mistake where it is within the limit of the value.
        """
        dtype = self.output.dtype
        with np.errstate(all="ignore"):
            size = np.abs(np.asarray(right, np.complex128))
            off = np.abs(np.asarray(self.wrong, np.complex128) - np.asarray(right, np.complex128))
            least = ROUNDINGS * (dtype.epsilon if dtype.is_rounded else 0.0) * size
            if self.kind in ("stale", "rotated"):
                least = np.maximum(least, LIMIT * expected.sigma)
            changed = (off > least) & np.isfinite(size)
        return bool(np.count_nonzero(changed) >= max(1, ceil(LEAST_SHARE * right.size)))


def injected_faults(
    fusion: Fusion,
    inputs: Mapping[str, Any],
    other_inputs: Mapping[str, Any],
    sizes: Sizes,
    arithmetic: Arithmetic,
    right: Mapping[str, Array],
) -> Iterator[InjectedFault]:
    """Yield wrong outputs for right ones; `other_inputs` are those of the run before."""
    before = evaluate_single(fusion, other_inputs, sizes, arithmetic)
    outputs = list(dict.fromkeys(o.value for o in fusion.outputs))
    for value in outputs:
        array = right[value.name]
        if array.dtype.kind in "fc":
            yield InjectedFault(value, "scaled", array * array.dtype.type(SCALE))
        yield InjectedFault(value, "zeroed", np.zeros_like(array))
        axis = next((a for a, extent in enumerate(array.shape) if extent > 1), None)
        if axis is not None:
            yield InjectedFault(value, "rotated", np.roll(array, 1, axis))
            yield InjectedFault(value, "stale", _with_tail(array, before[value.name]))
    for node in fusion.nodes:
        if summed_extent(node, sizes) < FEWEST_TERMS:
            continue
        reached = [v for v in outputs if node in needed_nodes(fusion.nodes, [v])]
        if not reached:
            continue
        found = evaluate_single(fusion, inputs, sizes, replace(arithmetic, lost=node))
        for value in reached:
            yield InjectedFault(value, f"lost part of {node.output.name}", found[value.name])


def _with_tail(array: Array, before: Array) -> Array:
    stale = array.copy().reshape(-1)
    count = ceil(STALE_SHARE * stale.size)
    stale[-count:] = before.reshape(-1)[-count:]
    return stale.reshape(array.shape)


def orders_of(fusion: Fusion, sizes: Sizes, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return the orders of all sums by name, as a model takes them."""

    def summing(node: Node) -> bool:
        # Grouped products are NumPy's.
        return bool(summed_extent(node, sizes)) and node.op.lookup is None

    values = (n.output for n in fusion.nodes if summing(n))
    return {value.name: arithmetic.order for value in values}
