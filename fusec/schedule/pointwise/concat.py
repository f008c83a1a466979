"""The concat scheduler: concatenations of many tensors, stored by several kernels.

Each kernel belongs to the pointwise scheduler and stores some of the tensors at their offset in the
result, without writing the rest of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import dim
from fusec.ir.graph import Fusion, Input, Node, Output, Type, Value, needed_nodes
from fusec.ops.find import find_op
from fusec.ops.names import fresh_name
from fusec.schedule.common import specialise
from fusec.schedule.family import Family
from fusec.schedule.plan import Plan
from fusec.schedule.pointwise.choice import FlatProblem
from fusec.schedule.pointwise.family import Pointwise, PointwisePlan
from fusec.schedule.problem import Problem
from fusec.schedule.requirements import wide_concatenation
from fusec.schedule.space import Parameters
from fusec.segment.limits import MOST_ARMS
from fusec.segment.protocol import Estimate, Refusal
from fusec.target import Target


@dataclass(frozen=True)
class ConcatParameters(Parameters):
    """kernels: the number of kernels that store the result; nothing is chosen."""

    kernels: int


@dataclass(frozen=True, eq=False)
class ConcatProblem(Problem):
    """A segment, and the part that each of its kernels stores, as updates of the result."""

    parts: tuple[FlatProblem, ...]


ConcatPlan = Plan[ConcatProblem, ConcatParameters]


class Concat(Family[ConcatProblem, ConcatParameters, ConcatPlan]):
    """Accepts segments whose only output is a cat of more tensors than one kernel takes."""

    name = "concat"
    templates: ClassVar = {}
    reach = ()
    vocabulary = frozenset[str]()

    def __init__(self) -> None:
        """Create the pointwise scheduler that plans the kernels."""
        super().__init__()
        self._pointwise = Pointwise()

    def problem(self, segment: Fusion) -> ConcatProblem | Refusal:
        """Return the segment with the fusions of its kernels."""
        node = wide_concatenation(segment) or _wide_cat(segment)
        if isinstance(node, Refusal):
            return node
        parts: list[FlatProblem] = []
        for part in _updates(segment, node):
            found = self._pointwise.known(part)
            if isinstance(found, Refusal):
                return found
            parts.append(found)
        sizes = dict(chain.from_iterable(p.specialised.items() for p in parts))
        kept = (d.name for d in segment.dims if d.name not in sizes)
        return ConcatProblem(segment, specialise(segment, kept)[0], tuple(parts))

    def default_parameters(self, problem: ConcatProblem, target: Target) -> ConcatParameters:
        """Return the only choice."""
        return ConcatParameters(len(problem.parts))

    def plan(
        self, problem: ConcatProblem, parameters: ConcatParameters, target: Target
    ) -> ConcatPlan:
        """Return a plan with one kernel for each part of the result."""
        plans = self._plans(problem, target)
        return Plan(
            self.name,
            problem.fusion,
            tuple(replace(k, of=plan) for plan in plans for k in plan.kernels),
            parameters,
            guards=tuple(dict.fromkeys(g for plan in plans for g in plan.guards)),
            specialised=problem.specialised,
            problem=problem,
        )

    def estimate(self, plan: ConcatPlan, target: Target) -> Estimate:
        """Return the estimate of all kernels, launched one after the other."""
        plans = self._plans(plan.problem, target)
        prices = [self._pointwise.estimate(p, target) for p in plans]
        return Estimate(
            bytes=sum(p.bytes for p in prices),
            flops=sum(p.flops for p in prices),
            sfu=sum(p.sfu for p in prices),
            efficiency=min(p.efficiency for p in prices),
            ctas=max(p.ctas for p in prices),
            kernels=sum(p.kernels for p in prices),
            build=max((p.build for p in prices), key=lambda b: b.seconds - b.separate),
        )

    def _plans(self, problem: ConcatProblem, target: Target) -> list[PointwisePlan]:
        chosen = ((p, self._pointwise.default_parameters(p, target)) for p in problem.parts)
        return [self._pointwise.plan(p, parameters, target) for p, parameters in chosen]


def _wide_cat(segment: Fusion) -> Node | Refusal:
    """Return the node that concatenates tensors to the only output, or a refusal."""
    output = segment.outputs[0]
    target = segment.effects.into.get(output.value)
    if target is not None:
        because = f"`{output.value.name}` is written to `{target.value.name}`"
        return Refusal("in_place", because)
    if output.value in segment.users:
        return Refusal("concat", f"`{output.value.name}` is read in the segment that computes it")
    return segment.producer[output.value]


def _updates(segment: Fusion, node: Node) -> Iterator[Fusion]:
    """Yield fusions that each write some operands of a cat into its result."""
    assert node.op.access is not None
    assert node.op.access.concat_dim is not None
    axis, whole = node.op.access.concat_dim(node), node.output
    strides = segment.effects.strides(whole)
    taken = segment.names
    start = dim(0)
    for number, operands in enumerate(_groups(node.inputs)):
        extent = sum((v.shape[axis] for v in operands), dim(0))
        nodes = needed_nodes(segment.nodes, operands)
        joined = operands[0]
        if len(operands) > 1:
            shape = (*whole.shape[:axis], extent, *whole.shape[axis + 1 :])
            joined = Value(fresh_name(taken, f"{whole.name}_part"), Type(whole.dtype, shape))
            nodes.append(replace(node, operands=operands, outputs=(joined,)))
        updated = Value(fresh_name(taken, f"{whole.name}_with"), whole.type)
        starts = tuple(start if k == axis else dim(0) for k in range(whole.rank))
        attributes = {"start_indices": starts}
        update = Node(find_op("update_slice"), (whole, joined), attributes, (updated,), node.span)
        read = {v for n in nodes for v in n.inputs} | {*operands}
        yield replace(
            segment,
            name=f"{segment.name}_{number}",
            inputs=(*(i for i in segment.inputs if i.value in read), Input(whole, strides)),
            nodes=(*nodes, update),
            outputs=(Output(updated, alias=whole.name),),
        )
        start = start + extent


def _groups(operands: tuple[Value, ...]) -> Iterator[tuple[Value, ...]]:
    """Yield the fewest groups of neighbours, with about equally many operands."""
    count = -(-len(operands) // MOST_ARMS)
    for k in range(count):
        yield operands[len(operands) * k // count : len(operands) * (k + 1) // count]
