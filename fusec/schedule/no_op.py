"""The no_op scheduler: segments whose outputs need no kernel because they are views or empty."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.ir.dim import product
from fusec.ir.effects import own_strides
from fusec.ir.graph import Fusion, Output, Value
from fusec.schedule.common import specialise
from fusec.schedule.family import Family
from fusec.schedule.plan import Guard, Plan, View
from fusec.schedule.problem import Problem
from fusec.schedule.space import Parameters
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.views import Layout, view_of
from fusec.target import Target


@dataclass(frozen=True)
class NoOpParameters(Parameters):
    """There is nothing to choose."""


NoOpPlan = Plan[Problem, NoOpParameters]


class NoOp(Family[Problem, NoOpParameters, NoOpPlan]):
    """Accepts segments whose outputs are views of inputs, or have no element at hint sizes."""

    name = "no_op"
    templates: ClassVar = {}
    reach = ()
    vocabulary = frozenset[str]()

    def problem(self, segment: Fusion) -> Problem | Refusal:
        """Return the segment, or which output has to be computed."""
        for output in segment.outputs:
            layout = _layout(segment, output)
            if isinstance(layout, Refusal):
                return layout
        return Problem(segment, specialise(segment, (d.name for d in segment.dims))[0])

    def default_parameters(self, problem: Problem, target: Target) -> NoOpParameters:
        """Return the only choice."""
        return NoOpParameters()

    def plan(self, problem: Problem, parameters: NoOpParameters, target: Target) -> NoOpPlan:
        """Return a plan without kernels; each view names its base."""
        views: list[View] = []
        guards: list[Guard] = []
        for output in problem.segment.outputs:
            value, layout = output.value, _layout(problem.segment, output)
            if layout is None:
                elements = product(value.shape)
                if not elements.is_const:
                    guards.append(Guard(elements, "==", 0, f"`{value.name}` is empty"))
            elif isinstance(layout, Layout):
                base = layout.base.name
                views.append(View(value.name, base, layout.offset, value.shape, layout.strides))
        return Plan(
            self.name,
            problem.fusion,
            (),
            parameters,
            guards=tuple(guards),
            views=tuple(views),
            problem=problem,
        )

    def estimate(self, plan: NoOpPlan, target: Target) -> Estimate:
        """Return an empty estimate."""
        return Estimate(bytes=0, ctas=0, kernels=0)


def _layout(segment: Fusion, output: Output) -> Layout | Refusal | None:
    """Return an output as a view of an input; None if it is empty, a refusal if it is computed."""
    value = output.value
    if _is_empty(segment, value):
        return None
    if value in segment.effects.into:
        target = segment.effects.buffer(value)
        return Refusal("alias", f"`{value.name}` is written to `{target}`")
    if output.part is not None:
        return Refusal("part", f"`{value.name}` is written to `{output.part.of}`")
    layout = view_of(segment, value, frozenset(i.value for i in segment.given))
    if layout is None:
        return Refusal("computed", f"`{value.name}` {value.type} is not a view of an input")
    if output.strides is not None:
        return Refusal("strides", f"`{value.name}` must be a part of a larger tensor")
    if output.stride_order is not None and layout.strides != own_strides(output):
        return Refusal("stride_order", f"`{value.name}` needs a different memory layout")
    return layout


def _is_empty(segment: Fusion, value: Value) -> bool:
    return any(extent.evaluate(segment.hints) == 0 for extent in value.shape)
