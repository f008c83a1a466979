"""The elements scheduler: a thread computes some elements, a block apart, without vectors."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.index.domain import Domain, find_domain
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.schedule.common import dynamic_symbols, is_empty, specialise, tensor_arguments
from fusec.schedule.family import Family
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.problem import Problem
from fusec.schedule.requirements import flat
from fusec.schedule.space import Field, Parameters
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.traffic import traffic, work
from fusec.target import Target

THREADS = 256


@dataclass(frozen=True, eq=False)
class Elements(Problem):
    """A segment with its iteration domain."""

    domain: Domain

    @property
    def count(self) -> Dim:
        """Return the number of elements of the domain."""
        return product(a.extent for a in self.domain.axes)


@dataclass(frozen=True)
class ElementsParameters(Parameters):
    """The elements that a thread computes, and whether indices need 64 bits."""

    free: ClassVar = (Field("per_thread", (1, 2, 4, 8), "elements that a thread computes"),)

    per_thread: int
    wide_index: bool


ElementsPlan = Plan[Elements, ElementsParameters]


class ElementsFamily(Family[Elements, ElementsParameters, ElementsPlan]):
    """Accepts elementwise segments with one domain."""

    name = "elements"
    templates: ClassVar = {"elements": Template("elements")}
    reach = ("transpose",)
    vocabulary = TEMPLATE_NAMES

    def problem(self, segment: Fusion) -> Elements | Refusal:
        """Return the segment with its domain."""
        refusal = flat(segment)
        if refusal is not None:
            return refusal
        if is_empty(segment) or all(o.value.is_scalar for o in segment.outputs):
            return Refusal("outputs", "no output is a tensor with elements")
        fusion, _ = specialise(segment, dynamic_symbols(segment))
        domain = find_domain(fusion)
        return domain if isinstance(domain, Refusal) else Elements(segment, fusion, domain)

    def default_parameters(self, problem: Elements, target: Target) -> ElementsParameters:
        """Return one element per thread."""
        del target
        return ElementsParameters(1, problem.wide)

    def why_illegal(
        self, problem: Elements, parameters: ElementsParameters, target: Target
    ) -> Refusal | None:
        """Return a refusal if threads have more elements than there are; None if legal."""
        del target
        if parameters.per_thread > problem.count.evaluate(problem.hints):
            return Refusal("elements", "per_thread exceeds the number of elements")
        return None

    def plan(
        self, problem: Elements, parameters: ElementsParameters, target: Target
    ) -> ElementsPlan:
        """Return a plan of one kernel."""
        del target
        blocks = ceildiv(problem.count, THREADS * parameters.per_thread)
        kernel = Kernel(
            name=f"{problem.fusion.name}_elements",
            template="elements",
            grid=(blocks, dim(1), dim(1)),
            block=(THREADS, 1, 1),
            arguments=tensor_arguments(problem.fusion),
        )
        return Plan(
            self.name,
            problem.fusion,
            (kernel,),
            parameters,
            guards=problem.index[1],
            specialised=problem.specialised,
            problem=problem,
        )

    def estimate(self, plan: ElementsPlan, target: Target) -> Estimate:
        """Return the traffic and operations: inputs and outputs once, element by element."""
        flops, sfu = work(plan.problem.fusion)
        return Estimate(
            bytes=traffic(plan.problem.segment),
            flops=flops,
            sfu=sfu,
            efficiency=target.reach("transpose", "scalar"),
            ctas=plan.kernels[0].grid[0].evaluate(plan.problem.hints),
        )
