"""Base class of the schedulers whose rows or columns are read again after they are reduced."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from fusec.ir.graph import Fusion
from fusec.schedule.common import is_empty
from fusec.schedule.compile_time import build_time
from fusec.schedule.plan import Kernel
from fusec.schedule.pressure import Pressure
from fusec.schedule.redefinitions import variances_in_two_passes
from fusec.schedule.rows.domain import Nest, PhasedPlan
from fusec.schedule.rows.family import RowsFamily
from fusec.schedule.rows.parameters import UNROLLED, PersistentParameters
from fusec.schedule.rows.pressure import Loops, phased_pressure
from fusec.schedule.rows.problem import RowsProblem, as_rows
from fusec.schedule.rows.two_pass import two_pass
from fusec.segment.protocol import Estimate, Proposal, Redefinition, Refusal
from fusec.segment.traffic import bytes_read, traffic, work
from fusec.target import Target

S = TypeVar("S", bound=PersistentParameters)


class PersistentFamily(RowsFamily[S]):
    """Kernels that reduce their input and read it again from on-chip storage.

    inner: whether the columns of rows are contiguous, else the rows.
    """

    inner: ClassVar[bool]

    def rows(
        self, segment: Fusion, fusion: Fusion, inner: bool | None = None
    ) -> RowsProblem | Refusal:
        """Return a segment as rows, with its variances in two passes."""
        return as_rows(segment, two_pass(fusion), stores=True, inner=self.inner or inner)

    def problem(self, segment: Fusion) -> RowsProblem | Refusal:
        """Return the segment as rows that are read again, with the sizes of columns specialized."""
        problem = super().problem(segment)
        if isinstance(problem, Refusal):
            return problem
        if is_empty(problem.fusion):
            return Refusal("empty", "a tensor has no elements")
        if problem.inner is not self.inner:
            return Refusal("reduction_axes", "the reduction is over the contiguous axis")
        return problem.check_reuse() or problem

    def nest(self, problem: RowsProblem, p: S, width: int, *, shifted: bool = False) -> Nest:
        """Return the loops of a kernel with vectors of a width."""
        return problem.loops(width, shifted)

    def waits(self, plan: PhasedPlan[RowsProblem, S], target: Target) -> float:
        """Return the seconds in which nothing is loaded from memory."""
        return 0.0

    def estimate(self, plan: PhasedPlan[RowsProblem, S], target: Target) -> Proposal:
        """Return the estimate: one pass over the inputs if rows or columns stay on chip."""
        problem, p = plan.problem, plan.parameters
        phases = self.nest(problem, p, 1)[1]
        kept = p.storage != "none"
        refusal = problem.check_rereading(on_chip=kept)
        if refusal is not None:
            return refusal
        flops, sfu = work(problem.fusion)
        if not p.stays_in_registers:
            # A loop over memory recomputes values that the compiler keeps in registers otherwise.
            more = problem.repeated_work(phases)
            flops, sfu = flops + more[0], sfu + more[1]
        again = 0 if kept else phases.rereadings
        results = 1 if self.inner else p.vector_width  # of each reduction per thread
        return Estimate(
            bytes=traffic(problem.segment) + again * bytes_read(problem.segment),
            flops=flops,
            sfu=sfu,
            efficiency=self.efficiency(plan, target),
            ctas=plan.kernels[0].grid[0].evaluate(problem.hints),
            waits=self.waits(plan, target),
            build=build_time(phases, p.unrolled_elements, target, results),
        )

    def pressure(self, plan: PhasedPlan[RowsProblem, S], kernel: Kernel) -> Pressure:
        """Return the register pressure of a thread, including its whole part of staged rows."""
        p, stays = plan.parameters, plan.parameters.stays_in_registers
        vectors = p.chunks if stays else 1 if self.inner else UNROLLED
        loops = Loops(p.vector_width, vectors, stays, outer=not self.inner, shifted=p.shifted)
        return phased_pressure(plan, loops)

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        """Return variances in two passes over on-chip data."""
        return variances_in_two_passes(segment)
