"""Why a verdict is inconclusive: where expected errors grow too large to detect a wrong result."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import EnvironmentProblem
from fusec.ir.arrays import np
from fusec.ir.evaluate import Sizes
from fusec.ir.graph import Fusion, Node, Value, needed_nodes
from fusec.ir.roles import Combine
from fusec.ops.pointwise.binary import add, sub
from fusec.reference.detection import LEAST_POWER, OPEN_SHARE, Power, joined, power
from fusec.reference.errors.estimate import LARGEST, Estimate
from fusec.reference.errors.nodes import Model
from fusec.reference.part import Index
from fusec.reference.stream import Stream

CANCELS = 16.0
"""How many times larger than a result that nearly cancels its terms are."""


@dataclass
class _Seen:
    """Detection limits of the blocks of a value."""

    value: Value
    powers: list[Power] = field(default_factory=list[Power])
    open: int = 0
    checked: int = 0

    def add(self, part: Estimate) -> None:
        self.powers.append(power(part, self.value.dtype))
        # A bool that may flip may have either value.
        known = LARGEST["f64"] if self.value.dtype.kind != "bool" else 0.0
        self.open += int(np.count_nonzero(part.sigma > known))
        self.checked += part.value.size

    @property
    def is_open(self) -> bool:
        """Return whether too many elements have an unknown expected value."""
        return self.open > max(self.checked * OPEN_SHARE, 2)

    @property
    def is_decided(self) -> bool:
        """Return whether a wrong value would be detected."""
        rounded = self.value.dtype.is_rounded
        return not self.is_open and joined(self.powers).scale_error(rounded=rounded) <= LEAST_POWER

    @property
    def largest(self) -> float:
        """Return the size of the largest element."""
        return joined(self.powers).largest


def find_causes(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, model: Model,
    outputs: Sequence[Value], limit: float, seed: int,
) -> dict[Value, str]:  # fmt: skip
    """Return where each output's errors grow too large and how to avoid it, as text.

    The fusion is evaluated once more; nothing is returned if its memory does not allow it.
    """
    nodes = needed_nodes(fusion.nodes, outputs)
    read = dict.fromkeys(v for n in nodes for v in n.inputs if v in fusion.input_position)
    values = [*(v for v in read if not v.is_scalar), *(v for n in nodes for v in n.outputs)]
    seen = {value: _Seen(value) for value in values}
    lock = threading.Lock()

    def consume(value: Value, index: Index, part: Estimate) -> None:
        with lock:
            seen[value].add(part)

    try:
        Stream(fusion, inputs, sizes, values, model, limit).run(consume, seed)
    except EnvironmentProblem:
        return {}
    found = dict[Value, str]()
    for output in outputs:
        node = _origin(fusion, seen, output)
        if node is not None:
            found[output] = _text(node, seen)
    return found


def _origin(fusion: Fusion, seen: Mapping[Value, _Seen], output: Value) -> Node | None:
    """Return the first operation whose errors are too large although its operands' are not."""
    value, node = output, None
    while value in seen and not seen[value].is_decided:
        node = fusion.producer.get(value)
        if node is None:
            break
        open_ones = (v for v in node.inputs if v in seen and not seen[v].is_decided)
        value = next(open_ones, None)
        if value is None:
            break
    return node


def _text(node: Node, seen: Mapping[Value, _Seen]) -> str:
    """Return what is wrong at an operation, and how to make its verdict conclusive."""
    value = node.output
    name = f"`{value.name} = {node.op.name}(...)`"
    largest = seen[value].largest
    terms = max((seen[v].largest for v in node.inputs if v in seen), default=0.0)
    sums = node.op in (add, sub) or node.op.combine in (Combine.MOMENTS, Combine.SUM)
    if sums and terms > CANCELS * largest:
        dtype = value.dtype.compute.part.name
        wider = "" if dtype == "f64" else ", or compute in f64"
        return (
            f"at {name}, terms of up to {terms:.2g} nearly cancel: rounding to {dtype} dominates "
            f"results of up to {largest:.2g}; try inputs nearer to 0{wider}"
        )
    if seen[value].is_open:
        near = "within their errors of a pole or discontinuity"
        return f"at {name}, values are {near}; try other inputs"
    return f"errors grow at {name}, for operands of up to {terms:.2g}; try smaller inputs"
