"""The attention scheduler: two GEMMs and the softmax between them in one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts
from fusec.index.domain import Refusal
from fusec.ir.annotations import Setting
from fusec.ir.dim import Dim, ceildiv, dim, minimum
from fusec.ir.graph import Fusion
from fusec.schedule.attention.common import check_copies, recognised, row_guards
from fusec.schedule.attention.forward.choice import (
    FEATURES,
    AttentionKernel,
    AttentionParameters,
    compared,
    shared_layout,
    why_illegal,
)
from fusec.schedule.attention.forward.cost import seconds
from fusec.schedule.attention.forward.problem import Attention, find_attention
from fusec.schedule.attention.kernel.names import FORWARD
from fusec.schedule.attention.maps import is_readable, tensor_maps
from fusec.schedule.attention.masks import visible
from fusec.schedule.common import tensor_arguments
from fusec.schedule.compared import ComparedFamily
from fusec.schedule.matmul.choice import coordinate_guards
from fusec.schedule.matmul.cost.estimate import lasting
from fusec.schedule.orders import PlannedOrder, PlannedStage, of_tensor_cores, serial
from fusec.schedule.plan import Argument, Kernel, Plan
from fusec.schedule.pressure import Pressure, of_template
from fusec.schedule.problem import Problem
from fusec.schedule.requirements import two_gemms
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate
from fusec.segment.traffic import traffic, work
from fusec.target import Target

FAMILIES = ("contraction", "pointwise", "movement", "factory", "scalar", "reduction")
TEMPLATE = "attention_wgmma"


@dataclass(frozen=True, eq=False)
class AttentionProblem(Problem):
    """A segment that is an attention."""

    attention: Attention

    @property
    def in_memory(self) -> bool:
        """Return whether index width depends on memory alone: scores exist only in tiles."""
        return True


AttentionPlan = Plan[AttentionProblem, AttentionParameters]


class Attentions(ComparedFamily[AttentionProblem, AttentionParameters, AttentionPlan]):
    """Accepts two GEMMs with a softmax between them, and elementwise work on scores and outputs."""

    name = "attention"
    templates: ClassVar = {
        "attention_wgmma": Template("attention.forward", 20),
    }
    reach = ("matmul",)
    vocabulary = FORWARD

    def problem(self, segment: Fusion) -> AttentionProblem | Refusal:
        """Return the attention that a segment is, or why it is not one."""
        why_illegal = two_gemms(segment)
        found = why_illegal or recognised(segment, find_attention, FAMILIES, "tiles")
        if isinstance(found, Refusal):
            return found
        fusion, attention = found
        return _unreadable(attention, fusion) or AttentionProblem(segment, fusion, attention)

    def compared(
        self, problem: AttentionProblem, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[AttentionParameters]:
        """Yield combinations of tiles, warpgroups and stages if the target has wgmma."""
        width = 2 if all(c % 2 == 0 for _, c in problem.attention.n.terms) else 1
        return compared(width) if target.has_wgmma else iter(())

    def seconds(
        self, problem: AttentionProblem, parameters: AttentionParameters, target: Target
    ) -> float:
        """Return the predicted time of the kernels."""
        return seconds(parameters, problem.attention, problem.hints, target)

    def no_kernel(self, problem: AttentionProblem, target: Target) -> Refusal:
        """Return why there is no kernel."""
        if not target.has_wgmma:
            return Refusal("target", f"{target.arch} has no wgmma")
        return Refusal("shared memory", "no tile of keys fits in shared memory and registers")

    def with_derived(
        self, problem: AttentionProblem, parameters: AttentionParameters
    ) -> AttentionParameters:
        """Return parameters with the derived index width."""
        return replace(parameters, wide_index=problem.wide)

    def why_illegal(
        self, problem: AttentionProblem, parameters: AttentionParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        return why_illegal(parameters, problem.attention, target)

    def estimate(self, plan: AttentionPlan, target: Target) -> Estimate:
        """Return the estimate: the predicted time of the kernel, expressed as tensor core work."""
        problem, parameters = plan.problem, plan.parameters
        taken = self.seconds(problem, parameters, target)
        # With fewer tiles than SMs, each gets more than its share of the bandwidth.
        reading = _tiles(parameters, problem.attention).evaluate(problem.hints)
        reading *= target.draw / target.sms
        flops, sfu = work(problem.attention.outputs.epilogue.fusion)
        estimate = Estimate(
            bytes=traffic(problem.segment),
            flops=flops,
            sfu=sfu,
            efficiency=target.reach("matmul", "vector") * min(1.0, reading),
            ctas=target.sms,  # SM utilization is part of the predicted time
            seen=visible(problem.attention, problem.hints),
        )
        return lasting(estimate, taken, target, is_simt=False)

    def least_in_parts(self, segment: Fusion, target: Target) -> float:
        """Return seconds below which no two or more kernels compute a segment; 0.0 if unknown."""
        problem = self.known(segment)
        if isinstance(problem, Refusal):
            return 0.0
        from fusec.schedule.attention.in_parts import least_seconds_in_parts

        return least_seconds_in_parts(problem.fusion, problem.attention, target)

    def plan(
        self, problem: AttentionProblem, parameters: AttentionParameters, target: Target
    ) -> AttentionPlan:
        """Return a plan of one kernel."""
        fusion, attention = problem.fusion, problem.attention
        facts = Facts(problem.hints)
        for operand in (attention.queries, attention.keys, attention.values):
            is_readable(operand, facts)
        layout = shared_layout(parameters, attention.features.value, attention.value_features.value)
        tiles = _tiles(parameters, attention)
        kernel = AttentionKernel(
            name=f"{fusion.name}_attention",
            template=TEMPLATE,
            grid=(minimum(tiles, target.sms), dim(1), dim(1)),
            block=(parameters.threads, 1, 1),
            arguments=_arguments(fusion, attention, parameters),
            shared_bytes=layout.bytes,
            layout=layout,
        )
        return Plan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            guards=(*problem.index[1], *row_guards(facts), *coordinate_guards(_extents(attention))),
            specialised=problem.specialised,
            orders=_orders(attention, parameters),
            rounded_early={attention.weights.name: parameters.tile_keys},
            problem=problem,
        )

    def pressure(self, plan: AttentionPlan, kernel: Kernel) -> Pressure:
        """Return the average register pressure of a thread: accumulators, scores and weights."""
        p = plan.parameters
        held = plan.problem.attention.value_features.value // 2 + p.tile_keys * 3 // 4
        share = held * p.warpgroups // (p.warpgroups + 1)
        return replace(of_template(kernel.template), staged=share)


def _tiles(p: AttentionParameters, attention: Attention) -> Dim:
    """Return the number of tiles of queries."""
    return attention.batches * ceildiv(attention.m, p.rows)


def _unreadable(attention: Attention, fusion: Fusion) -> Refusal | None:
    """Return why no parameters let the kernel run an attention, or None."""
    operands = (attention.queries, attention.keys, attention.values)
    features = (attention.features, attention.value_features)
    sides = zip(operands, (True, True, False), strict=True)
    return check_copies(fusion, features, FEATURES, sides, _extents(attention))


def _extents(attention: Attention) -> tuple[Dim, ...]:
    """Return the extents that coordinates of tensor maps index."""
    return attention.batches, attention.m, attention.n


def _arguments(
    fusion: Fusion, attention: Attention, p: AttentionParameters
) -> tuple[Argument, ...]:
    """Return the arguments: the tensor maps, then all other inputs and outputs."""
    read = {i.value for i in attention.scores.epilogue.fusion.inputs}
    read |= {i.value for i in attention.outputs.epilogue.fusion.inputs}
    read |= {i.value for i in fusion.inputs if i.value.is_scalar}
    inputs = fusion.effects.inputs_for(read)
    return (*tensor_maps(fusion, attention, p), *tensor_arguments(replace(fusion, inputs=inputs)))


def _orders(attention: Attention, p: AttentionParameters) -> dict[str, PlannedOrder]:
    """Return the summation orders of both GEMMs and of the sums of exponentials."""
    # A thread's neighbours in a tile, its tiles, then the four lanes that have a row.
    own = PlannedStage(dim(p.tile_keys // 8), 1)
    exponentials = (own, serial(ceildiv(attention.n, p.tile_keys)), PlannedStage(dim(1), 2))
    return {
        attention.first.output.name: of_tensor_cores(attention.features, 16),
        attention.second.output.name: of_tensor_cores(attention.n, p.tile_keys),
        attention.total.output.name: PlannedOrder(exponentials),
    }
