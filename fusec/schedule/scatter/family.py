"""Scatters: a copy of the tensor, then writes of the source at the positions of an index."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.ops.builder.build import make_node
from fusec.schedule.common import access, specialise
from fusec.schedule.family import Family
from fusec.schedule.former import Former
from fusec.schedule.plan import Kernel, Plan, Workspace
from fusec.schedule.pointwise.family import Pointwise, PointwisePlan
from fusec.schedule.requirements import any_scatter
from fusec.schedule.scatter.algorithms import (
    ALGORITHMS,
    THREADS,
    check_vectors,
    shares_warps,
    widest_vector,
    with_used_inputs,
)
from fusec.schedule.scatter.problem import Scatter, prepare
from fusec.schedule.sort.parts import needed
from fusec.schedule.space import WIDTHS, Field, Parameters
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.traffic import traffic, work
from fusec.target import Target

MANY_LINES = 16384
"""Lines that keep a GPU busy with one thread each."""
MOST_COMPARED = 256
"""Most elements of a line that are each compared with those before or after it."""
MOST_TOGETHER = 1024
"""The same if the lanes of a warp share one element and compare it with as many at once."""
SHORT = 16
"""Elements of a line that a thread can write sequentially without loss."""


@dataclass(frozen=True)
class ScatterParameters(Parameters):
    """The schedule parameters of a scatter."""

    algorithm: str
    vector_width: int
    wide_index: bool
    free: ClassVar = (
        Field(
            "algorithm",
            tuple(ALGORITHMS),
            "the algorithm: `lines` writes in source order, `elements` in arrival order, "
            "`winners` keeps the last write, `compared` and `sorted` find equal indices "
            "first",
        ),
        Field("vector_width", WIDTHS[:4], "adjacent elements of a line per store"),
    )


ScatterPlan = Plan[Scatter, ScatterParameters]


class Scatters(Family[Scatter, ScatterParameters, ScatterPlan]):
    """Accepts one scatter with elementwise operations before it, and after a sum."""

    name = "scatter"
    templates: ClassVar = {
        "scatter_lines": Template("scatter"),
        "scatter_elements": Template("scatter"),
        "scatter_sorted": Template("scatter"),
        "scatter_compared": Template("scatter"),
    }
    reach = ("scatter",)
    vocabulary = TEMPLATE_NAMES
    former: ClassVar = {"way": Former(("algorithm",))}

    def problem(self, segment: Fusion) -> Scatter | Refusal:
        """Return the segment around its scatter."""
        found = any_scatter(segment) or prepare(segment)
        if isinstance(found, Refusal) or found.after is None:
            return found
        untouched = Pointwise().problem(found.after.untouched)
        return untouched if isinstance(untouched, Refusal) else found

    def default_parameters(self, problem: Scatter, target: Target) -> ScatterParameters:
        """Return the algorithm: in the source's order if that fills the GPU, or one as exact."""
        possible = {name for name, each in ALGORITHMS.items() if each.why_illegal(problem) is None}
        orderly = problem.lines >= MANY_LINES or problem.length <= SHORT
        # Values that are summed before they are rounded, or read, are written once.
        rounded = problem.adds and problem.node.output.dtype.is_half
        once = rounded or problem.after is not None
        widest = widest_vector(problem)
        # If the last one writes, the lanes of a warp that share an element compare it quickly.
        quick = not problem.adds and shares_warps(problem, widest)
        paying = {
            "elements": True,  # for integers the order does not matter
            "compared": problem.length <= (MOST_TOGETHER if quick else MOST_COMPARED)
            and (once or quick or not orderly),
            "winners": not orderly,
            "sorted": once or not orderly,
        }
        algorithm = next((a for a, pays in paying.items() if pays and a in possible), "lines")
        if check_vectors(problem, algorithm, widest):
            widest = 1
        while widest > 1 and algorithm == "lines" and problem.lines // widest < MANY_LINES:
            widest //= 2
        return ScatterParameters(algorithm, widest, problem.wide)

    def why_illegal(
        self, problem: Scatter, parameters: ScatterParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        algorithm, width = parameters.algorithm, parameters.vector_width
        return ALGORITHMS[algorithm].why_illegal(problem) or check_vectors(
            problem, algorithm, width
        )

    def plan(self, problem: Scatter, parameters: ScatterParameters, target: Target) -> ScatterPlan:
        """Return a plan: the copy, and the kernels that write."""
        kernels = () if problem.in_place else _copy(problem, target)
        writes, workspaces = list[Kernel](), tuple[Workspace, ...]()
        if problem.elements:
            writes, workspaces = ALGORITHMS[parameters.algorithm].kernels(
                problem, target, parameters.vector_width
            )
        fusion, _ = specialise(problem.segment)
        return Plan(
            self.name,
            fusion,
            (*kernels, *writes),
            parameters,
            workspaces,
            specialised=problem.specialised,
            problem=problem,
        )

    def estimate(self, plan: ScatterPlan, target: Target) -> Estimate:
        """Return the estimate: the copy of the tensor, if any, and the source read and written."""
        scatter, algorithm = plan.problem, ALGORITHMS[plan.parameters.algorithm]
        width = plan.parameters.vector_width
        copied = 0 if scatter.in_place else scatter.elements * _written_again(scatter)
        flops, sfu = work(scatter.fusion)
        reach, along = (target.reach(self.name, a) for a in (access(width), "vector"))
        copy = (
            None if scatter.in_place else Pointwise().estimate(_copy_plan(scatter, target), target)
        )
        moved, scratch = traffic(scatter.segment), algorithm.scratch(scatter)
        written = max(0, moved - (0 if copy is None else copy.bytes)) + copied
        units = scatter.lines if algorithm.by_lines else scatter.elements
        seconds = written / reach + scratch / (along if algorithm.along_scratch else reach)
        whole = Estimate(
            bytes=moved,
            workspace_bytes=scratch + copied,
            flops=flops,
            sfu=sfu,
            efficiency=(written + scratch) / seconds if seconds else along,
            ctas=max(1, units // width // THREADS),
            kernels=len(plan.kernels),
        )
        return whole if copy is None else _after_copy(whole, copy, target)


def _after_copy(whole: Estimate, copy: Estimate, target: Target) -> Estimate:
    """Return the estimate of all kernels: the copy has its own blocks and efficiency."""
    rest = replace(whole, bytes=max(0, whole.bytes - copy.bytes), written=None)
    seconds = sum(each.parts(target)["memory"] for each in (copy, rest))
    largest = replace(whole, ctas=max(whole.ctas, copy.ctas), efficiency=1.0)
    reach = largest.parts(target)["memory"] / seconds if seconds else whole.efficiency
    return replace(largest, efficiency=reach)


def _written_again(scatter: Scatter) -> int:
    """Return the bytes read and written per element that the copy has already written."""
    if scatter.after is None:
        return 2 * scatter.node.output.dtype.size
    fusion = scatter.after.untouched
    return sum(each.value.dtype.size for each in (*fusion.inputs, *fusion.outputs))


def _copy(scatter: Scatter, target: Target) -> tuple[Kernel, ...]:
    """Return the kernel that copies the tensor to the output."""
    plan = _copy_plan(scatter, target)
    name = f"{scatter.fusion.name}_scatter_copy"
    return tuple(replace(k, name=name, of=plan) for k in plan.kernels)


def _copy_plan(scatter: Scatter, target: Target) -> PointwisePlan:
    """Return the plan that copies the tensor to the output, or computes the outputs from it."""
    if scatter.after is not None:
        return Pointwise().build(scatter.after.untouched, target)
    node = scatter.node
    copy = replace(make_node("set", [node.operands[0]], {}, ["copied"]), outputs=(node.output,))
    at = scatter.fusion.nodes.index(node)
    nodes = (*scatter.fusion.nodes[:at], copy)
    fusion = needed(scatter.fusion.with_nodes(nodes), scatter.fusion.outputs)
    fusion = with_used_inputs(fusion)
    return Pointwise().build(fusion, target)
