"""The pointwise scheduler: elementwise and movement operations on one domain, vectorized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from fusec.dataclasses import replace
from fusec.index.domain import Domain, find_domain, repeated, stored_once
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.annotations import Setting
from fusec.ir.dim import ceildiv, dim, minimum, product
from fusec.ir.expression import of_var
from fusec.ir.graph import Fusion, Node
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.schedule.blocks import check_shape
from fusec.schedule.common import dynamic_symbols, specialise, tensor_arguments
from fusec.schedule.compile_time import flat_build_time
from fusec.schedule.family import NOTHING_SET, Family
from fusec.schedule.plan import Guard, Kernel, Plan
from fusec.schedule.pointwise.choice import (
    THREADS,
    FlatProblem,
    PointwiseParameters,
    default_parameters,
    vector_facts,
    why_illegal,
)
from fusec.schedule.pointwise.loads import pressure_of
from fusec.schedule.pointwise.rereads import (
    is_bound,
    may_be_bound,
    with_fewest_rereads,
    with_rereads,
)
from fusec.schedule.pressure import Pressure
from fusec.schedule.registers import MOST_REGISTERS, blocks_with_doubles
from fusec.schedule.requirements import flat
from fusec.schedule.rows.domain import in_place_hazard
from fusec.schedule.run_time_sizes import Loops, innermost, with_run_time_sizes
from fusec.schedule.strides import (
    axis_lowering,
    lines_of_warp,
    reach_by_lines,
    strided_loads,
)
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate, Proposal, Refusal
from fusec.segment.traffic import elements, picked_bytes, traffic, work
from fusec.target import Target

SHIFTED_REGISTERS = 10
"""Registers for the indices and predicates at the ends of rows whose vectors are peeled."""


PointwisePlan = Plan[FlatProblem, PointwiseParameters]


class Pointwise(Family[FlatProblem, PointwiseParameters, PointwisePlan]):
    """Accepts segments of elementwise and movement operations with one domain."""

    name = "pointwise"
    templates: ClassVar = {
        "pointwise": Template("pointwise"),
    }
    reach = ("pointwise",)
    vocabulary = TEMPLATE_NAMES

    def problem(self, segment: Fusion) -> FlatProblem | Refusal:
        """Return the segment with its domain, or why it is unsupported."""
        refusal = flat(segment)
        if refusal is not None:
            return refusal
        if all(o.value.is_scalar for o in segment.outputs):
            return Refusal("outputs", "no output is a tensor")
        first = find_domain(segment)
        if isinstance(first, Refusal):
            return first
        hazard = _check_stores(segment, first)
        if hazard is not None:
            return hazard
        fusion, _ = specialise(segment, dynamic_symbols(segment))
        domain = find_domain(fusion)
        if isinstance(domain, Refusal):
            return domain
        return FlatProblem(segment, fusion, domain, first)

    def with_dynamic_sizes(self, problem: FlatProblem) -> FlatProblem:
        """Return the problem with more dynamic sizes, except the innermost."""
        return _with_any_rows(problem)

    def default_parameters(self, problem: FlatProblem, target: Target) -> PointwiseParameters:
        """Return the parameters with the lowest predicted cost."""
        registers = target.registers // THREADS
        first = default_parameters(problem, registers)
        estimate = self._estimate(problem, target)
        if not may_be_bound(estimate, problem, target):
            return first
        found = with_rereads(estimate, problem, first, target)
        return with_fewest_rereads(problem, first) if is_bound(found, target) else first

    def why_illegal(
        self, problem: FlatProblem, parameters: PointwiseParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        return check_shape(parameters) or why_illegal(problem, parameters)

    def plan(
        self, problem: FlatProblem, parameters: PointwiseParameters, target: Target
    ) -> PointwisePlan:
        """Return a plan of one kernel."""
        fusion, domain, p = problem.fusion, problem.domain, parameters
        rows, columns = problem.nest_with(p).rows.rows, problem.nest_with(p).rows.columns
        chunks = ceildiv(columns, p.vector_width) + int(p.shifted)
        if p.shifted:
            blocks = ceildiv(rows, p.vector_width * p.unroll) * p.vector_width
            blocks = minimum(rows, blocks)  # no empty blocks for small row counts
        else:
            blocks = ceildiv(rows, p.threads_y * p.unroll)
        grid = (blocks, ceildiv(chunks, p.threads_x), dim(1))
        if not p.break_point:
            grid = (ceildiv(chunks, p.threads_x * p.unroll), dim(1), dim(1))
        about = fusion, domain, domain.axes
        kernel = Kernel(
            name=f"{fusion.name}_pointwise",
            template="pointwise",
            grid=grid,
            block=p.block,
            arguments=tensor_arguments(fusion),
            least_blocks=blocks_with_doubles(*about, p.vector_width, p.threads),
        )
        facts = vector_facts(problem, parameters)
        return Plan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            guards=(*problem.index[1], *_not_empty(fusion, domain), *facts),
            specialised=problem.specialised,
            problem=problem,
        )

    def propose(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> Proposal:
        """Return the predicted cost, which is the same for all parameters if memory-bound."""
        problem = self.known(segment)
        if settings or isinstance(problem, Refusal):
            return super().propose(segment, target, settings)
        estimate = self._estimate(problem, target)
        if may_be_bound(estimate, problem, target):
            return super().propose(segment, target, settings)
        return estimate

    def estimate(self, plan: PointwisePlan, target: Target) -> Estimate:
        """Return the estimate: every input read once, every output written once.

        Blocks may reread data from L2, which may take longer than that.
        """
        estimate = self._estimate(plan.problem, target)
        if not may_be_bound(estimate, plan.problem, target):
            return estimate
        return with_rereads(estimate, plan.problem, plan.parameters, target)

    def pressure(self, plan: PointwisePlan, kernel: Kernel) -> Pressure:
        """Return the register pressure of a thread's vectors."""
        p, nest = plan.parameters, plan.problem.nest_with(plan.parameters)
        held = pressure_of(nest.loads, nest.lowering, nest.loops, p.unroll)
        return replace(held, own=SHIFTED_REGISTERS) if p.shifted else held

    def _estimate(self, problem: FlatProblem, target: Target) -> Estimate:
        segment, domain = problem.segment, problem.segment_domain
        # One instance may represent both a value and its source before movement.
        made = dict.fromkeys(axis_lowering(segment, domain).made.values())
        computed = [i for i in made if i.node is not None]
        flops, sfu = _work(segment, computed)
        stated = [i for i in made if i.kind in ("load", "op", "select")]
        points = product(domain.reference.shape).evaluate(segment.hints)
        moved = traffic(segment)
        return Estimate(
            bytes=moved,
            flops=flops,
            sfu=sfu,
            efficiency=_efficiency(segment, domain, moved, target),
            ctas=max(1, points // 1024),
            kernels=1
            if any(product(o.value.shape).evaluate(segment.hints) for o in segment.outputs)
            else 0,
            build=flat_build_time(stated, target),
        )


def _with_any_rows(strict: FlatProblem) -> FlatProblem:
    """Return the problem with more dynamic sizes, except the innermost."""

    def made(fusion: Fusion) -> FlatProblem | Refusal:
        domain = find_domain(fusion)
        if isinstance(domain, Refusal):
            return domain
        return FlatProblem(strict.segment, fusion, domain, strict.segment_domain)

    def loops(found: FlatProblem) -> Loops:
        p = default_parameters(found, MOST_REGISTERS)
        nest = found.nest_with(p)
        for output in found.fusion.outputs:
            nest.lowering.at_home(output.value)
        inner = frozenset(nest.loops[1:])
        widths = (p.break_point, p.vector_width, p.unroll, p.threads_x, p.shifted)
        columns = nest.rows.reduced if p.break_point else ()
        return Loops(nest.lowering, inner, widths=widths, numbers=tuple(a.extent for a in columns))

    last = innermost(strict.segment_domain.reference.shape)
    return with_run_time_sizes(strict, made, loops, last)


def _check_stores(segment: Fusion, domain: Domain) -> Refusal | None:
    """Return why outputs cannot be stored at their addresses, or None.

    Data written into an input need not depend on the overwritten data: reads and stores are matched
    by address. An address that is constant along an axis is stored at one point there: the one
    where it is read.
    """
    effects = segment.effects
    points = stored_once(segment, domain)
    if not effects.in_place:
        return None
    lowering = Lowering(segment, domain, {a: of_var(a) for a in domain.axes})
    read = {
        o.value: {i.name for i in instances_under([lowering.at_home(o.value)]) if i.kind == "load"}
        for o in segment.outputs
    }
    for output in effects.in_place:
        own, target = points[output.value], effects.buffer(output.value)
        for other, names in read.items():
            elsewhere = any(points[other].get(a) != point for a, point in own.items())
            if elsewhere and target in names:
                because = f"`{target}` is written in place where `{other.name}` is not"
                return Refusal("in_place", because)
    return in_place_hazard(segment, lowering, once=True)


def _work(segment: Fusion, computed: Iterable[Instance]) -> tuple[float, float]:
    """Return (operations, special functions); values computed in several places count for each."""
    flops, sfu = work(segment)
    seen: set[Node] = set()
    for instance in computed:
        assert instance.node is not None
        if instance.node in seen:
            count = elements(instance.node.output, segment.hints)
            flops += instance.node.op.cost.flops * count
            sfu += instance.node.op.cost.sfu * count
        seen.add(instance.node)
    return flops, sfu


def _not_empty(fusion: Fusion, domain: Domain) -> tuple[Guard, ...]:
    """Return guards on the extents along which an output is stored only once."""
    found = {a.extent: v for v, a in repeated(fusion, domain) if not a.extent.is_const}
    return tuple(
        Guard(e * -1, "<=", -1, f"`{v.name}` is written by the first of {e}")
        for e, v in found.items()
    )


def _efficiency(fusion: Fusion, domain: Domain, bytes_: int, target: Target) -> float:
    """Return the fraction of the bandwidth reached with that many bytes moved.

    Strided loads take one access per line, and indexed sectors are loaded one by one.
    """
    along, across = target.reach("pointwise", "vector"), target.reach("pointwise", "strided")
    moved, longer = max(1, bytes_), 0.0
    for load in strided_loads(fusion, domain):
        lines = lines_of_warp(load, domain, fusion.hints)
        reach = reach_by_lines(along, across, lines, load.load.dtype.size)
        longer += load.bytes / moved * (along / reach - 1)
    picked = picked_bytes(fusion) / moved
    longer += picked * (along / target.reach("pointwise", "picked") - 1) if picked else 0.0
    return along / (1 + longer)
