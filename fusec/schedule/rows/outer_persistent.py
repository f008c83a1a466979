"""Column-persistent kernels: reductions over outer axes whose input is read again after them."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import ceildiv, dim
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.schedule.common import (
    access,
    is_empty,
    tensor_arguments,
)
from fusec.schedule.compile_time import build_time
from fusec.schedule.family import Family
from fusec.schedule.orders import down_columns, of_all
from fusec.schedule.plan import Kernel, staged_in_turn
from fusec.schedule.pressure import Pressure
from fusec.schedule.redefinitions import variances_in_two_passes
from fusec.schedule.registers import (
    MOST_THREAD_REGISTERS,
    double_words,
    fits,
    least_blocks,
    sum_words,
    words,
)
from fusec.schedule.requirements import memory_bound
from fusec.schedule.rows.domain import PhasedPlan
from fusec.schedule.rows.pressure import Loops, phased_pressure
from fusec.schedule.rows.problem import RowsProblem, as_rows, with_any_rows, with_columns
from fusec.schedule.rows.two_pass import two_pass
from fusec.schedule.space import POWERS, THREADS, WIDTHS, Field, Parameters, power_above
from fusec.schedule.templates import Template
from fusec.segment.price import bytes_read, traffic, work
from fusec.segment.protocol import Estimate, Proposal, Redefinition, Refusal
from fusec.target import Target

REGISTER_BYTES = 160
"""Bytes of its columns that a thread keeps in registers."""
UNROLLED = 4
"""Rows that a thread reads at a time where its columns do not stay in registers."""


@dataclass(frozen=True)
class OuterPersistentParameters(Parameters):
    """The choices of a column-persistent kernel; rows_per_thread: rows that a thread keeps."""

    storage: str
    vector_width: int
    threads_x: int
    threads_y: int
    rows_per_thread: int
    wide_index: bool
    free: ClassVar = (
        Field(
            "storage",
            ("registers", "none"),
            "where columns are kept between phases; `none` reads them again",
        ),
        Field("vector_width", WIDTHS, "elements per load and store of a thread"),
        Field("threads_x", POWERS, "vectors of columns per block"),
        Field("threads_y", THREADS, "rows at a time"),
    )

    @property
    def unrolled(self) -> int:
        """Return the elements that the loop of a phase computes without a branch."""
        rows = self.rows_per_thread if self.storage == "registers" else UNROLLED
        return rows * self.vector_width


OuterPersistentPlan = PhasedPlan[RowsProblem, OuterPersistentParameters]


class OuterPersistent(Family[RowsProblem, OuterPersistentParameters, OuterPersistentPlan]):
    """Accepts reductions over outer axes whose input is read again after them."""

    name = "outer_persistent"
    templates: ClassVar = {
        "outer_persistent": Template("rows.outer_persistent"),
    }
    reach = ("outer_persistent",)
    vocabulary = TEMPLATE_NAMES

    def problem(self, segment: Fusion) -> RowsProblem | Refusal:
        """Return the segment with column lengths put in and variances in two passes, by columns."""
        refusal = memory_bound(segment)
        if refusal is not None:
            return refusal
        if is_empty(segment):
            return Refusal("empty", "a tensor has no elements")
        fusion = with_columns(segment)
        if isinstance(fusion, Refusal):
            return fusion
        problem = as_rows(segment, two_pass(fusion), stores=True)
        if isinstance(problem, Refusal):
            return problem
        if problem.inner:
            return Refusal("reduction_axes", "the reduction is over the contiguous axis")
        return problem.check_reuse() or problem

    def with_dynamic_sizes(self, problem: RowsProblem) -> RowsProblem:
        """Return the problem for more sizes of what is kept."""
        segment = problem.segment
        return with_any_rows(
            problem, lambda f: as_rows(segment, two_pass(f), stores=True, inner=False)
        )

    def default_parameters(self, problem: RowsProblem, target: Target) -> OuterPersistentParameters:
        """Return the parameters: as many rows at a time as keep a thread's columns in registers.

        Where a thread has too few registers for what it holds it gets narrower vectors, or a
        smaller block; the wider the part of a row that a block reads, the better.
        """
        fusion, rows = problem.fusion, problem.rows
        widest = problem.vectors[0]
        results = max(1, rows.rows.evaluate(fusion.hints))
        widths = [widest >> k for k in range(widest.bit_length())]
        shapes = [(x, w) for w in widths for x in (8, 4, 2, 1) if x == 1 or x * w <= 2 * results]
        shapes.sort(key=lambda shape: -shape[0] * shape[1])
        by_width = {width: held(problem, width) for width in widths}
        found = last = _first(problem, by_width[widest], *shapes[0])
        for storage in ("registers", "none")[found.storage == "none" :]:
            for threads_x, width in shapes:
                each = by_width[width]
                found = _first(problem, each, threads_x, width, storage)
                while found.storage == storage:
                    last = found
                    if fits(found.threads_x * found.threads_y, each.least(found), target.registers):
                        return found
                    if found.threads_x * found.threads_y <= 32:
                        break
                    found = _parameters(
                        problem, each, threads_x, width, found.threads_y // 2, storage
                    )
        return last

    def with_derived(
        self, problem: RowsProblem, parameters: OuterPersistentParameters
    ) -> OuterPersistentParameters:
        """Return parameters with the rows that each thread has."""
        rows = -(-problem.rows.columns.value // parameters.threads_y)
        return replace(parameters, rows_per_thread=rows)

    def why_illegal(
        self, problem: RowsProblem, parameters: OuterPersistentParameters, target: Target
    ) -> Refusal | None:
        """Return why no kernel has some parameters, or None."""
        p = parameters
        found = problem.check_block(p.vector_width, p.threads_x, p.threads_y)
        if found is not None:
            return found
        if p.storage == "none":
            return problem.hazard(on_chip=False)
        kept = held(problem, p.vector_width).kept
        if not kept:
            return Refusal("storage", "no vector of a column is read twice")
        if p.rows_per_thread * kept > MOST_THREAD_REGISTERS:
            because = f"{p.rows_per_thread * kept} words do not fit in the registers of a thread"
            return Refusal("registers", because)
        return None

    def plan(
        self, problem: RowsProblem, parameters: OuterPersistentParameters, target: Target
    ) -> OuterPersistentPlan:
        """Return a plan of one kernel."""
        fusion, rows, width = problem.fusion, problem.rows, parameters.vector_width
        lowering, phases, loops = problem.loops(width)
        kept = phases.cached if parameters.storage == "registers" else ()
        staged = (i for i in kept if loops[0] in i.variables and problem.is_whole(i, width))
        each = held(problem, width)
        columns = ceildiv(rows.rows, width)
        kernel = Kernel(
            name=f"{fusion.name}_outer_persistent",
            template="outer_persistent",
            grid=(ceildiv(columns, parameters.threads_x), dim(1), dim(1)),
            block=(parameters.threads_x, parameters.threads_y, 1),
            arguments=tensor_arguments(fusion),
            least_blocks=least_blocks(
                parameters.threads_x * parameters.threads_y,
                each.of_rows(parameters),
                each.doubles,
                each.columns,
            ),
        )
        return PhasedPlan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            (),
            (*problem.index[1], *problem.vectors[1]),
            problem.specialised,
            orders=of_all(problem.segment, down_columns(rows.columns, parameters.threads_y)),
            problem=problem,
            loops=loops,
            lowering=lowering,
            phases=phases,
            staged=staged_in_turn((i, 0) for i in staged),
        )

    def estimate(self, plan: OuterPersistentPlan, target: Target) -> Proposal:
        """Return a price: one reading where the columns fit into registers."""
        problem, parameters = plan.problem, plan.parameters
        fusion, rows = problem.fusion, problem.rows
        _, phases, _ = problem.loops(1)
        kept = parameters.storage != "none"
        refusal = problem.check_rereading(on_chip=kept)
        if refusal is not None:
            return refusal
        again = 0
        if parameters.storage != "registers" and phases.cached:
            again = sum(len(p) > 0 for p in phases.loads[1:])
        flops, sfu = work(fusion)
        if not kept:
            more = problem.repeated_work(phases)
            flops, sfu = flops + more[0], sfu + more[1]
        columns = ceildiv(rows.rows, parameters.vector_width * parameters.threads_x)
        return Estimate(
            bytes=traffic(problem.segment) + again * bytes_read(problem.segment),
            flops=flops,
            sfu=sfu,
            efficiency=target.reach(self.name, access(parameters.vector_width)),
            ctas=columns.evaluate(fusion.hints),
            build=build_time(phases, parameters.unrolled, target, parameters.vector_width),
        )

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        """Return variances in two passes over columns on chip."""
        return variances_in_two_passes(segment)

    def pressure(self, plan: OuterPersistentPlan, kernel: Kernel) -> Pressure:
        """Return what a thread holds: of columns in registers all that is its own."""
        p = plan.parameters
        stays = p.storage == "registers"
        rows = p.rows_per_thread if stays else UNROLLED
        return phased_pressure(plan, Loops(p.vector_width, rows, stays, outer=True))


@dataclass(frozen=True)
class Held:
    """What a thread holds with vectors of one width, in words.

    kept: per row that stays in registers; read: per row that is read; columns: partial results,
    and what belongs to columns and rows read; doubles: for special functions of doubles.
    """

    kept: int
    read: int
    columns: int
    doubles: int

    def of_rows(self, parameters: OuterPersistentParameters) -> int:
        """Return the words of the rows that a thread likes to have on their way at once."""
        rows = parameters.rows_per_thread
        return self.read * (rows if parameters.storage == "registers" else min(rows, UNROLLED))

    def least(self, parameters: OuterPersistentParameters) -> int:
        """Return the words without which a thread spills."""
        kept = parameters.rows_per_thread * self.kept
        rows = kept if parameters.storage == "registers" else self.of_rows(parameters)
        return rows + self.columns + self.doubles


def held(problem: RowsProblem, width: int) -> Held:
    """Return what a thread holds with vectors of a width."""
    fusion, domain, rows = problem.fusion, problem.domain, problem.rows
    lowering, phases, (row, _, _) = problem.loops(width)
    loads = {i for i in lowering.made.values() if i.kind == "load" and row in i.variables}
    of_rows = [i for i in lowering.made.values() if row in i.variables]
    of_columns = {o for i in of_rows for o in i.operands if o.variables and row not in o.variables}
    parts = [sum(width * sum_words(n) for n in group) for group in phases.reductions]
    return Held(
        kept=sum(words(i.dtype, width) for i in phases.cached if i in loads),
        read=sum(words(i.dtype, width) for i in loads),
        columns=sum(words(i.dtype.compute, width) for i in of_columns) + max(parts, default=0),
        doubles=double_words(fusion, domain, rows.reduced),
    )


def _first(
    problem: RowsProblem, each: Held, threads_x: int, width: int, storage: str = "registers"
) -> OuterPersistentParameters:
    """Return the parameters with as many rows at a time as there is work for."""
    length = problem.rows.columns.value
    wanted = max(4, -(-length * 4 * (each.kept or each.read) // REGISTER_BYTES))
    threads_y = min(1024 // threads_x, max(32 // threads_x, power_above(wanted)))
    return _parameters(problem, each, threads_x, width, threads_y, storage)


def _parameters(
    problem: RowsProblem, each: Held, threads_x: int, width: int, threads_y: int, storage: str
) -> OuterPersistentParameters:
    """Return the parameters with a number of rows at a time; what is too much is not kept."""
    length = problem.rows.columns.value
    if not 0 < -(-length // threads_y) * 4 * each.kept <= REGISTER_BYTES:
        storage = "none"
    if storage == "none":
        threads_y = min(threads_y, 512 // threads_x)
    return OuterPersistentParameters(
        storage, width, threads_x, threads_y, -(-length // threads_y), problem.wide
    )
