"""The decode attention scheduler: few queries over many keys, split over several blocks."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts
from fusec.index.domain import Refusal
from fusec.index.instances import Instance, instances_under
from fusec.ir.dim import ceildiv, dim
from fusec.ir.dtype import F32, U32
from fusec.ir.graph import Fusion
from fusec.ops.names import fresh_name
from fusec.schedule.attention.common import recognised, row_guards
from fusec.schedule.attention.decode.choice import (
    STREAMED,
    DecodeKernel,
    DecodeParameters,
    likely_parameters,
    part_floats,
    shared_layout,
    why_illegal,
)
from fusec.schedule.attention.decode.cost import best_splits, held, seconds, streaming
from fusec.schedule.attention.decode.problem import Decode, find_decode, start_of
from fusec.schedule.attention.kernel.names import DECODE
from fusec.schedule.attention.masks import visible
from fusec.schedule.attention.sums import sum_of
from fusec.schedule.common import tensor_arguments
from fusec.schedule.family import Family
from fusec.schedule.orders import PlannedOrder, PlannedStage, of_tensor_cores, serial
from fusec.schedule.plan import Kernel, Plan, Workspace
from fusec.schedule.pressure import Pressure, of_template
from fusec.schedule.problem import Problem
from fusec.schedule.requirements import two_gemms_or_sums
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate
from fusec.segment.traffic import traffic, work
from fusec.target import Target

FAMILIES = ("contraction", "pointwise", "movement", "factory", "scalar", "reduction", "indexing")
TEMPLATE = "attention_decode"


@dataclass(frozen=True, eq=False)
class DecodeProblem(Problem):
    """A segment that is an attention with few queries."""

    decode: Decode

    @property
    def in_memory(self) -> bool:
        """Return whether index width depends on memory alone: scores exist only in tiles."""
        return True


DecodePlan = Plan[DecodeProblem, DecodeParameters]


class AttentionDecodes(Family[DecodeProblem, DecodeParameters, DecodePlan]):
    """Accepts attentions of at most 16 queries that share keys, and elementwise work on scores."""

    name = "attention_decode"
    templates: ClassVar = {
        "attention_decode": Template("attention.decode", 36),
    }
    reach = ("matmul",)
    vocabulary = DECODE

    def problem(self, segment: Fusion) -> DecodeProblem | Refusal:
        """Return the attention that a segment is, or why it is not one."""
        why_illegal = two_gemms_or_sums(segment)
        found = why_illegal or recognised(segment, find_decode, FAMILIES, "blocks")
        if isinstance(found, Refusal):
            return found
        fusion, decode = found
        extents = (decode.batches, decode.graph.n)
        if min(e.evaluate(fusion.hints) for e in extents) == 0:
            return Refusal("extents", "a tensor without elements")
        return DecodeProblem(segment, fusion, decode)

    def default_parameters(
        self, problem: DecodeProblem, target: Target
    ) -> DecodeParameters | Refusal:
        """Return tiles that fit in shared memory, and splits that fill the GPU."""
        found = likely_parameters(problem.decode, target)
        if found is None:
            return Refusal("shared memory", "no tile of keys fits in shared memory and registers")
        once = traffic(problem.segment) <= STREAMED * target.l2
        once = once and not problem.decode.shares_more
        found = self.with_derived(problem, replace(found, streaming=once))
        shared = best_splits(found, problem.decode, problem.hints, target)
        offers = [replace(found, splits=splits) for splits in shared]
        return min(offers, key=lambda p: self._seconds(problem, p, target))

    def _seconds(self, problem: DecodeProblem, p: DecodeParameters, target: Target) -> float:
        return seconds(p, problem.decode, traffic(problem.segment), problem.hints, target)

    def with_derived(
        self, problem: DecodeProblem, parameters: DecodeParameters
    ) -> DecodeParameters:
        """Return parameters with the derived index width."""
        return replace(parameters, wide_index=problem.wide)

    def why_illegal(
        self, problem: DecodeProblem, parameters: DecodeParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        return why_illegal(parameters, problem.decode, target)

    def estimate(self, plan: DecodePlan, target: Target) -> Estimate:
        """Return the estimate: the traffic of keys and values, and how well blocks fill the SMs."""
        problem, p = plan.problem, plan.parameters
        graph = problem.decode.graph
        moved = traffic(problem.segment)
        flops, sfu = work(graph.outputs.epilogue.fusion)
        hints = problem.hints
        keys = problem.decode.batches.evaluate(hints) * graph.n.evaluate(hints)
        features = graph.features.value + graph.value_features.value
        taken, cost = self._seconds(problem, p, target), target.cost.attention_decode
        scratch = sum(w.size.evaluate(hints) * w.dtype.size for w in plan.workspaces)
        return Estimate(
            bytes=moved,
            workspace_bytes=2 * scratch,
            flops=flops,
            sfu=sfu,
            tensor_flops=2.0 * 16 * keys * features,
            efficiency=cost.memory_reach,
            ctas=target.sms,  # SM utilization is part of the predicted waits
            waits=max(0.0, taken - streaming(moved, target)),
            seen=visible(graph, hints),
        )

    def least_in_parts(self, segment: Fusion, target: Target) -> float:
        """Return seconds below which no two or more kernels compute a segment; 0.0 if unknown."""
        problem = self.known(segment)
        if isinstance(problem, Refusal) or problem.decode.fusion is not problem.fusion:
            return 0.0  # where sums are products, kernels of rows compute these, too
        from fusec.schedule.attention.in_parts import least_seconds_in_parts

        return least_seconds_in_parts(problem.fusion, problem.decode.graph, target)

    def plan(
        self, problem: DecodeProblem, parameters: DecodeParameters, target: Target
    ) -> DecodePlan:
        """Return a plan of one kernel."""
        fusion, decode = problem.fusion, problem.decode
        facts = Facts(problem.hints)
        operands = operands_of(problem)
        for operand in operands:
            start_of(operand, facts)
        layout = shared_layout(parameters, decode)
        workspaces = _workspaces(fusion, decode, parameters)
        read = {i.value for part in (decode.graph.scores, decode.graph.outputs)
                for i in part.epilogue.fusion.inputs}  # fmt: skip
        read |= {i.value for i in instances_under(operands) if i.kind == "load"}
        read |= {i.value for i in fusion.inputs if i.value.is_scalar}
        inputs = fusion.effects.inputs_for({v for v in read if v is not None})
        kernel = DecodeKernel(
            name=f"{fusion.name}_attention_decode",
            template=TEMPLATE,
            grid=(decode.batches * parameters.splits, dim(1), dim(1)),
            block=(parameters.threads, 1, 1),
            arguments=tensor_arguments(replace(fusion, inputs=inputs), workspaces),
            shared_bytes=layout.bytes,
            layout=layout,
        )
        return Plan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            workspaces,
            guards=(*problem.index[1], *row_guards(facts)),
            specialised=problem.specialised,
            orders=_orders(fusion, decode, parameters),
            rounded_early={}
            if decode.rounded is None
            else {decode.rounded.name: parameters.tile_keys},
            problem=problem,
        )

    def pressure(self, plan: DecodePlan, kernel: Kernel) -> Pressure:
        """Return the register pressure of a thread: queries, accumulators, scores and weights."""
        return replace(
            of_template(kernel.template), staged=held(plan.problem.decode, plan.parameters)
        )


def operands_of(problem: DecodeProblem) -> tuple[Instance, ...]:
    """Return queries, keys and values in loop variables."""
    found = [problem.decode.operand(number) for number in range(3)]
    return tuple(o for o in found if isinstance(o, Instance))


def _workspaces(fusion: Fusion, decode: Decode, p: DecodeParameters) -> tuple[Workspace, ...]:
    """Return the workspaces: the blocks' partial results, and the counters of finished blocks."""
    if p.splits == 1:
        return ()
    taken = fusion.names
    floats = decode.batches * (p.splits * part_floats(decode))
    return (
        Workspace(fresh_name(taken, "partials"), F32, floats),
        Workspace(fresh_name(taken, "arrivals"), U32, decode.batches, "zeroed once"),
    )


def _orders(fusion: Fusion, decode: Decode, p: DecodeParameters) -> dict[str, PlannedOrder]:
    """Return the summation orders of both GEMMs and of the sums of exponentials."""
    graph = decode.graph
    tiles = ceildiv(ceildiv(graph.n, p.tile_keys), p.warps * p.splits)
    # A lane's neighbours in a tile, its tiles, the four lanes of a row; then warps and blocks.
    lanes = (PlannedStage(dim(p.tile_keys // 8), 1), serial(tiles), PlannedStage(dim(1), 2))
    parts = (serial(dim(p.warps)), serial(dim(p.splits)))
    return {
        sum_of(fusion, graph.first): of_tensor_cores(graph.features, 16),
        sum_of(fusion, graph.second): of_tensor_cores(graph.n, p.tile_keys, p.warps, p.splits),
        graph.total.output.name: PlannedOrder((*lanes, *parts)),
    }
