"""The host scheduler: segments that run without a kernel because a file pins them to it.

Operations that only move elements become driver copies, zeros are filled by the driver. Anything
else is evaluated on the CPU, by the body that declares the operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, dim
from fusec.ir.effects import own_strides
from fusec.ir.graph import Const, Fusion, Output, Value
from fusec.ir.row_copies import row_copies
from fusec.ops.checks import CHECK_INDEX
from fusec.ops.find import find_op
from fusec.schedule.common import specialise
from fusec.schedule.family import Family
from fusec.schedule.plan import HostCopy, HostPlan, Plan, View
from fusec.schedule.problem import Problem
from fusec.schedule.space import Parameters
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.segmented import tensor_bytes
from fusec.segment.views import Layout, view_of
from fusec.target import Target

MOST_CALLS = 256
"""Most driver calls per tensor; one call per element is slower than evaluating it."""


@dataclass(frozen=True)
class HostParameters(Parameters):
    """There is nothing to choose."""


@dataclass(frozen=True, eq=False)
class HostProblem(Problem):
    """A segment with the driver calls that compute it; None if it is evaluated on the CPU."""

    plan: HostPlan
    calls: int


class HostOperations(Family[HostProblem, HostParameters, Plan[HostProblem, HostParameters]]):
    """Accepts the segments that a file pins to it."""

    name = "host"
    templates: ClassVar = {}
    reach = ()
    vocabulary = frozenset[str]()

    def problem(self, segment: Fusion) -> HostProblem | Refusal:
        """Return how the host runs the segment."""
        if any(n.op is CHECK_INDEX for n in segment.nodes):
            return Refusal("check", "kernels check indices")
        fusion, _ = specialise(segment, (d.name for d in segment.dims))
        made = [_moved(segment, o) for o in segment.outputs]
        copies = [c for found in made if found is not None for c in found]
        calls = sum(_calls(segment, c) for c in copies)
        # Copies in sequence would read what an earlier one has written.
        overwrites = len(made) > 1 and any(o.value in segment.effects.into for o in segment.outputs)
        if None in made or calls > MOST_CALLS or overwrites:
            return HostProblem(segment, fusion, HostPlan(evaluated=True), 1)
        zeros = tuple(o.value.name for o, found in zip(segment.outputs, made, strict=True)
                      if not found)  # fmt: skip
        return HostProblem(segment, fusion, HostPlan(tuple(copies), zeros), calls + len(zeros))

    def default_parameters(self, problem: HostProblem, target: Target) -> HostParameters:
        """Return the only choice."""
        return HostParameters()

    def plan(
        self, problem: HostProblem, parameters: HostParameters, target: Target
    ) -> Plan[HostProblem, HostParameters]:
        """Return a plan without kernels."""
        return Plan(self.name, problem.fusion, (), parameters, host=problem.plan, problem=problem)

    def estimate(self, plan: Plan[HostProblem, HostParameters], target: Target) -> Estimate:
        """Return the traffic on the GPU; the time of operations evaluated on the CPU is unknown."""
        hints = plan.fusion.hints
        read = sum(tensor_bytes(i.value, hints) for i in plan.fusion.inputs)
        written = sum(tensor_bytes(o.value, hints) for o in plan.fusion.outputs)
        if not plan.problem.plan.evaluated:
            read = sum(_bytes(plan.fusion, c, hints) for c in plan.problem.plan.copies)
        calls = plan.problem.calls
        return Estimate(bytes=read + written, written=written, ctas=0, kernels=calls)


def _moved(segment: Fusion, output: Output) -> tuple[HostCopy, ...] | None:
    """Return the copies that compute an output, none if it is zeros; None if it is computed."""
    value = output.value
    node = segment.producer[value]
    if node.op is find_op("full"):
        own = output.strides is None and output.part is None and value not in segment.effects.into
        return () if own and _is_zero(node.operands[0]) else None
    layout = _source(segment, value)
    if layout is not None:
        return (_copy(value, dim(0), layout, value),)
    if node.op is not find_op("cat"):
        return None
    at: int = node.attributes["dim"]
    start = dim(0)
    found: list[HostCopy] = []
    strides = _strides(segment, output)
    for part in node.inputs:
        layout = _source(segment, part)
        if layout is None:
            return None
        found.append(_copy(part, start * strides[at], layout, value))
        start += part.shape[at]
    return tuple(found)


def _strides(segment: Fusion, output: Output) -> tuple[Dim, ...]:
    entry = segment.effects.into.get(output.value)
    return own_strides(output) if entry is None else entry.strides


def _copy(part: Value, offset: Dim, layout: Layout, whole: Value) -> HostCopy:
    source = View(part.name, layout.base.name, layout.offset, part.shape, layout.strides)
    return HostCopy(whole.name, offset, source)


def _source(segment: Fusion, value: Value) -> Layout | None:
    """Return a value as a view of an input, through copies; None if it is computed."""
    given = {i.value: i for i in segment.given if not i.value.is_scalar}
    while value not in given and (node := segment.producer.get(value)) and node.op.copies:
        (value,) = node.inputs
    if value in given:
        return Layout(value, dim(0), given[value].strides)
    return view_of(segment, value, frozenset(given))


def _is_zero(value: object) -> bool:
    """Return whether the bits of a literal are zero in every type."""
    return isinstance(value, Const) and repr(value.value) in ("0", "0.0", "False", "0j")


def _calls(segment: Fusion, copy: HostCopy) -> int:
    """Return the number of driver calls of a copy, at hint sizes."""
    hints = segment.hints
    output = next(o for o in segment.outputs if o.value.name == copy.target)
    view, to = copy.source, _strides(segment, output)
    shape, target, source = (
        [d.evaluate(hints) for d in dims] for dims in (view.shape, to, view.strides)
    )
    return len(row_copies(shape, target, source, output.value.dtype.size))


def _bytes(fusion: Fusion, copy: HostCopy, hints: Mapping[str, int]) -> int:
    output = next(o.value for o in fusion.outputs if o.value.name == copy.target)
    size = output.dtype.size
    for extent in copy.source.shape:
        size *= extent.evaluate(hints)
    return size
