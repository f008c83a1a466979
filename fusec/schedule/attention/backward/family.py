"""The scheduler of attention's backward: five GEMMs in two kernels that store no weights.

One kernel owns keys and accumulates the gradients of keys and values; the other owns queries. Both
recompute the weights of a tile where they need them. If a thread cannot hold both accumulators of
the keys, values have a kernel of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts
from fusec.index.domain import Refusal
from fusec.ir.annotations import Setting
from fusec.ir.dim import Dim, ceildiv, dim, minimum
from fusec.ir.graph import Fusion
from fusec.schedule.attention.backward.choice import (
    FEATURES,
    LIKELY,
    BackwardParameters,
    Walk,
    WalkKernel,
    held_words,
    walk_layout,
    why_illegal,
)
from fusec.schedule.attention.backward.cost import seconds
from fusec.schedule.attention.backward.maps import tensor_maps
from fusec.schedule.attention.backward.problem import Backward, find_backward
from fusec.schedule.attention.backward.values import find_query_values
from fusec.schedule.attention.common import check_copies, recognised, row_guards
from fusec.schedule.attention.kernel.names import BACKWARD
from fusec.schedule.attention.maps import is_readable
from fusec.schedule.attention.masks import visible
from fusec.schedule.common import tensor_arguments
from fusec.schedule.compared import ComparedFamily
from fusec.schedule.matmul.choice import coordinate_guards
from fusec.schedule.matmul.cost.estimate import lasting
from fusec.schedule.orders import PlannedOrder, of_tensor_cores
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.pressure import Pressure, of_template
from fusec.schedule.problem import Problem
from fusec.schedule.requirements import five_gemms
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate
from fusec.segment.traffic import traffic, work
from fusec.target import Target

FAMILIES = ("contraction", "pointwise", "movement", "factory", "scalar")
TEMPLATE = "attention_backward"


@dataclass(frozen=True, eq=False)
class BackwardProblem(Problem):
    """A segment that is the backward of an attention.

    query_values: the number of per-query values; reads: whether weights read memory for each key.
    """

    backward: Backward
    query_values: int
    reads: bool

    @property
    def in_memory(self) -> bool:
        """Return whether index width depends on memory alone: weights exist only in tiles."""
        return True


BackwardPlan = Plan[BackwardProblem, BackwardParameters]


class AttentionBackwards(ComparedFamily[BackwardProblem, BackwardParameters, BackwardPlan]):
    """Accepts the five GEMMs of an attention's backward, and the elementwise work on weights."""

    name = "attention_backward"
    templates: ClassVar = {
        "attention_backward": Template("attention.backward", 20),
    }
    reach = ("matmul",)
    vocabulary = BACKWARD

    def problem(self, segment: Fusion) -> BackwardProblem | Refusal:
        """Return the attention backward that a segment is, or why it is not one."""
        why_illegal = five_gemms(segment)
        found = why_illegal or recognised(segment, find_backward, FAMILIES, "tiles")
        if isinstance(found, Refusal):
            return found
        fusion, backward = found
        values = find_query_values(backward.between)
        count = max(1, len(values.instances))
        problem = BackwardProblem(segment, fusion, backward, count, values.reads)
        return _unreadable(backward, fusion) or problem

    def compared(
        self, problem: BackwardProblem, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[BackwardParameters]:
        """Yield combinations of tiles, warpgroups and stages if the target has wgmma."""
        for separate, warpgroups, tiles in product((False, True), (2, 1), LIKELY):
            if target.has_wgmma:
                yield BackwardParameters(*tiles, warpgroups=warpgroups, separate=separate)

    def seconds(
        self, problem: BackwardProblem, parameters: BackwardParameters, target: Target
    ) -> float:
        """Return the predicted time of the kernels."""
        return seconds(parameters, problem.backward, problem.hints, target)

    def no_kernel(self, problem: BackwardProblem, target: Target) -> Refusal:
        """Return why there is no kernel."""
        if not target.has_wgmma:
            return Refusal("target", f"{target.arch} has no wgmma")
        return Refusal("shared memory", "no tile sizes fit in shared memory and registers")

    def with_derived(
        self, problem: BackwardProblem, parameters: BackwardParameters
    ) -> BackwardParameters:
        """Return parameters with the derived index width."""
        return replace(parameters, wide_index=problem.wide)

    def why_illegal(
        self, problem: BackwardProblem, parameters: BackwardParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        values, reads = problem.query_values, problem.reads
        return why_illegal(parameters, problem.backward, values, target, reads=reads)

    def estimate(self, plan: BackwardPlan, target: Target) -> Estimate:
        """Return the estimate: the predicted time of the kernels, expressed as tensor core work."""
        problem, parameters = plan.problem, plan.parameters
        taken = self.seconds(problem, parameters, target)
        flops, sfu = work(problem.backward.of_queries[1].epilogue.fusion)
        estimate = Estimate(
            bytes=traffic(problem.segment),
            flops=flops,
            sfu=sfu,
            kernels=len(plan.kernels),
            efficiency=target.reach("matmul", "vector"),
            ctas=target.sms,  # SM utilization is part of the predicted time
            seen=visible(problem.backward, problem.hints),
        )
        return lasting(estimate, taken, target, is_simt=False)

    def plan(
        self, problem: BackwardProblem, parameters: BackwardParameters, target: Target
    ) -> BackwardPlan:
        """Return a plan with one kernel per walk."""
        fusion, backward = problem.fusion, problem.backward
        facts = Facts(problem.hints)
        for operand in _all(backward):
            is_readable(operand, facts)
        return Plan(
            self.name,
            fusion,
            tuple(_kernel(problem, parameters, target, walk) for walk in parameters.walks),
            parameters,
            guards=(*problem.index[1], *row_guards(facts), *coordinate_guards(_extents(backward))),
            specialised=problem.specialised,
            orders=_orders(backward, parameters),
            problem=problem,
        )

    def pressure(self, plan: BackwardPlan, kernel: Kernel) -> Pressure:
        """Return the average register pressure: accumulators, GEMM results and weights."""
        assert isinstance(kernel, WalkKernel)
        p, backward = plan.parameters, plan.problem.backward
        features, values = backward.features.value, backward.value_features.value
        held = held_words(p, features, values, kernel.walk)
        share = held * p.warpgroups // (p.warpgroups + 1)
        return replace(of_template(kernel.template), staged=share)


def _kernel(
    problem: BackwardProblem, p: BackwardParameters, target: Target, walk: Walk
) -> WalkKernel:
    """Return the kernel of a walk."""
    fusion, backward, of_keys = problem.fusion, problem.backward, walk.of_keys
    features, values = backward.features.value, backward.value_features.value
    layout = walk_layout(p, features, values, problem.query_values, walk)
    tiles = backward.batches * ceildiv(backward.n if of_keys else backward.m, p.rows)
    parts = ((backward.of_keys if of_keys else backward.of_queries),) * walk.pulls
    parts += (backward.of_values,) * walk.shares
    read = {i.value for i in backward.between.part.epilogue.fusion.inputs}
    read |= {i.value for _, part in parts for i in part.epilogue.fusion.inputs}
    read |= {i.value for i in fusion.inputs if i.value.is_scalar}
    written = tuple(o for _, part in parts for o in part.epilogue.fusion.outputs)
    own = replace(fusion, inputs=fusion.effects.inputs_for(read), outputs=written)
    return WalkKernel(
        name=f"{fusion.name}_of_{walk.name}",
        template=TEMPLATE,
        grid=(minimum(tiles, target.sms), dim(1), dim(1)),
        block=(p.threads, 1, 1),
        arguments=(*tensor_maps(fusion, backward, p, of_keys=of_keys), *tensor_arguments(own)),
        shared_bytes=layout.bytes,
        walk=walk,
        query_values=problem.query_values,
        layout=layout,
    )


def _all(backward: Backward):
    return (backward.queries, backward.gradients, backward.keys, backward.values)


def _unreadable(backward: Backward, fusion: Fusion) -> Refusal | None:
    """Return why no parameters let the kernels run a backward, or None."""
    features = (backward.features, backward.value_features)
    sides = ((operand, True) for operand in _all(backward))
    return check_copies(fusion, features, FEATURES, sides, _extents(backward))


def _extents(backward: Backward) -> tuple[Dim, ...]:
    """Return the extents that coordinates of tensor maps index."""
    return backward.batches, backward.m, backward.n


def _orders(backward: Backward, p: BackwardParameters) -> dict[str, PlannedOrder]:
    """Return the summation orders of all GEMMs."""
    return {
        backward.first.output.name: of_tensor_cores(backward.features, 16),
        backward.second.output.name: of_tensor_cores(backward.value_features, 16),
        backward.of_queries[0].output.name: of_tensor_cores(backward.n, p.tile_keys),
        backward.of_keys[0].output.name: of_tensor_cores(backward.m, p.tile_queries),
        backward.of_values[0].output.name: of_tensor_cores(backward.m, p.tile_queries),
    }
