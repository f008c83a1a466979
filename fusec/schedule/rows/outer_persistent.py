"""Column-persistent kernels: reductions over outer axes whose input is read again after them."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.schedule.blocks import VECTOR_WIDTH
from fusec.schedule.orders import down_columns, of_all
from fusec.schedule.plan import staged_in_turn
from fusec.schedule.registers import (
    MOST_THREAD_REGISTERS,
    double_words,
    fits,
    least_blocks,
    sum_words,
    words,
)
from fusec.schedule.rows.domain import PhasedPlan
from fusec.schedule.rows.parameters import UNROLLED, PersistentParameters
from fusec.schedule.rows.persistent import PersistentFamily
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.space import POWERS, THREADS, Field, power_above
from fusec.schedule.templates import Template
from fusec.segment.protocol import Refusal
from fusec.target import Target

REGISTER_BYTES = 160
"""Bytes of its columns that a thread keeps in registers."""


@dataclass(frozen=True, kw_only=True)
class OuterPersistentParameters(PersistentParameters):
    """The schedule parameters of a column-persistent kernel; chunks: rows of vectors per thread."""

    free: ClassVar = (
        Field(
            "storage",
            ("registers", "none"),
            "where columns are kept between phases; `none` reads them again",
        ),
        VECTOR_WIDTH,
        Field("threads_x", POWERS, "vectors of columns per block"),
        Field("threads_y", THREADS, "rows at a time"),
    )


OuterPersistentPlan = PhasedPlan[RowsProblem, OuterPersistentParameters]


class OuterPersistent(PersistentFamily[OuterPersistentParameters]):
    """Accepts reductions over outer axes whose input is read again after them."""

    name = "outer_persistent"
    templates: ClassVar = {
        "outer_persistent": Template("rows.outer_persistent"),
    }
    reach = ("outer_persistent",)
    vocabulary = TEMPLATE_NAMES
    inner = False

    def by_rows(self, problem: RowsProblem, target: Target) -> OuterPersistentParameters:
        """Return the parameters: as many concurrent rows as keep a thread's columns in registers.

        If a thread has too few registers, it gets narrower vectors, or a smaller block; the wider
        the part of a row that a block reads, the better.
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
                    if fits(found.threads, each.least(found), target.registers):
                        return found
                    if found.threads <= 32:
                        break
                    found = _parameters(
                        problem, each, threads_x, width, found.threads_y // 2, storage
                    )
        return last

    def with_derived(
        self, problem: RowsProblem, parameters: OuterPersistentParameters
    ) -> OuterPersistentParameters:
        """Return parameters with the derived rows per thread."""
        rows = -(-problem.rows.columns.value // parameters.threads_y)
        return replace(parameters, chunks=rows)

    def why_illegal(
        self, problem: RowsProblem, parameters: OuterPersistentParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        p = parameters
        found = problem.check_block(p)
        if found is not None:
            return found
        if p.storage == "none":
            return problem.hazard(on_chip=False)
        kept = held(problem, p.vector_width).kept
        if not kept:
            return Refusal("storage", "no vector of a column is read twice")
        if p.chunks * kept > MOST_THREAD_REGISTERS:
            because = f"{p.chunks * kept} words do not fit in the registers of a thread"
            return Refusal("registers", because)
        return None

    def plan(
        self, problem: RowsProblem, parameters: OuterPersistentParameters, target: Target
    ) -> OuterPersistentPlan:
        """Return a plan of one kernel."""
        p = parameters
        nest = self.nest(problem, p, p.vector_width)
        kept = nest[1].cached if p.stays_in_registers else ()
        row = nest[2][0]
        staged = (i for i in kept if row in i.variables and problem.is_whole(i, p.vector_width))
        each = held(problem, p.vector_width)
        kernel = replace(
            self.rows_kernel(problem, p),
            least_blocks=least_blocks(p.threads, each.of_rows(p), each.doubles, each.columns),
        )
        return self.planned(
            problem,
            p,
            nest,
            (kernel,),
            of_all(problem.segment, down_columns(problem.rows.columns, p.threads_y)),
            staged=staged_in_turn((i, 0) for i in staged),
            guards=problem.guards,
        )


@dataclass(frozen=True)
class Held:
    """The words that a thread holds with vectors of one width.

    kept: per row that stays in registers; read: per row that is read; columns: partial results, and
    per-column values and loads; doubles: for special functions of doubles.
    """

    kept: int
    read: int
    columns: int
    doubles: int

    def of_rows(self, parameters: OuterPersistentParameters) -> int:
        """Return the words of the rows that a thread preferably has in flight."""
        rows = parameters.chunks
        return self.read * (rows if parameters.stays_in_registers else min(rows, UNROLLED))

    def least(self, parameters: OuterPersistentParameters) -> int:
        """Return the fewest words with which a thread does not spill."""
        kept = parameters.chunks * self.kept
        rows = kept if parameters.stays_in_registers else self.of_rows(parameters)
        return rows + self.columns + self.doubles


def held(problem: RowsProblem, width: int) -> Held:
    """Return the words that a thread holds with vectors of a width."""
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
    """Return the parameters with as many concurrent rows as there is work for."""
    length = problem.rows.columns.value
    wanted = max(4, -(-length * 4 * (each.kept or each.read) // REGISTER_BYTES))
    threads_y = min(1024 // threads_x, max(32 // threads_x, power_above(wanted)))
    return _parameters(problem, each, threads_x, width, threads_y, storage)


def _parameters(
    problem: RowsProblem, each: Held, threads_x: int, width: int, threads_y: int, storage: str
) -> OuterPersistentParameters:
    """Return the parameters with a number of concurrent rows; rows that do not fit are not kept."""
    length = problem.rows.columns.value
    if not 0 < -(-length // threads_y) * 4 * each.kept <= REGISTER_BYTES:
        storage = "none"
    if storage == "none":
        threads_y = min(threads_y, 512 // threads_x)
    return OuterPersistentParameters(
        storage=storage,
        vector_width=width,
        threads_x=threads_x,
        threads_y=threads_y,
        chunks=-(-length // threads_y),
        wide_index=problem.wide,
    )
