"""Reductions whose input is read once: over inner axes, outer axes, a mixture, or all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fusec.index.access import Facts, vector_base
from fusec.index.domain import Domain, find_domain
from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.dtype import U32
from fusec.ir.expression import Index, Var, delinearize, of_var
from fusec.ir.graph import Fusion, Value
from fusec.ir.recent import Recent
from fusec.ir.roles import Combine
from fusec.schedule.blocks import (
    access_trouble,
    column_sums,
    shape_trouble,
    shared_trouble,
)
from fusec.schedule.common import (
    MEMORY_BOUND,
    access,
    dynamic_symbols,
    free_name,
    is_empty,
    specialise,
    tensor_arguments,
    unsupported_nodes,
)
from fusec.schedule.compile_time import build_time
from fusec.schedule.family import Family
from fusec.schedule.orders import PlannedOrder, along_rows, down_columns, of_all
from fusec.schedule.phased_pressure import Loops, phased_pressure
from fusec.schedule.plan import Guard, Kernel, Workspace
from fusec.schedule.pressure import Pressure
from fusec.schedule.problem import Problem, widest_vectors
from fusec.schedule.registers import blocks_beside_doubles, partial_words
from fusec.schedule.rows import (
    PhasedPlan,
    Phases,
    Rows,
    in_place_hazard,
    lowered,
    phases_of,
    rows_of,
)
from fusec.schedule.space import COUNTS, THREADS, WIDTHS, Field, Parameters
from fusec.schedule.strides import is_inner
from fusec.segment.price import traffic, work
from fusec.segment.protocol import Estimate, Refusal
from fusec.target import Target

MIN_VECTORS_PER_SPLIT = 512
"""Vectors of the reduced axes below which a further block does not pay for its partial result."""
UNROLLED = 4
"""Vectors that a loop takes at a time."""
DIVISION = 12
"""Operations of a division, which a Welford state takes for each element that is pushed by itself.

By the layer norm and the batch norm of the benchmarks on an H200.
"""
VECTOR_DIVISION = 6
"""The same for each element of a vector, which has one division and a merge for all of them.

Fitted to `benchmarks.segmentation model`: layer norms of 128 K, batch norms of 200 K columns.
"""
COMBINING = 3e-6
"""Seconds in which the last block of a result adds the parts that others have left in memory.

Fitted to batch norm f16[32, 64, 56, 56], 64 results of 5 blocks each: 18.6 us for 13 MB.
"""


@dataclass(frozen=True)
class ReductionParameters(Parameters):
    """The choices of a reduction kernel.

    inner: whether the reduced axes run along memory (threads_x side by side on them, threads_y rows
    per block) or the kept axes do (threads_x vectors of kept columns, threads_y rows at a time).
    splits: blocks that share one result and whose partial results the last of them combines.
    """

    inner: bool
    vector_width: int
    threads_x: int
    threads_y: int
    splits: int
    wide_index: bool
    free: ClassVar = (
        Field("vector_width", WIDTHS),
        Field("threads_x", THREADS),
        Field("threads_y", THREADS),
        Field("splits", COUNTS),
    )


_RECENT: Recent[tuple[Lowering, Phases]] = Recent()


@dataclass(frozen=True, eq=False)
class RowsProblem(Problem):
    """A segment as rows of columns to reduce.

    inner: whether the columns run along memory; stores: whether what is stored runs along it, too.
    """

    domain: Domain
    rows: Rows
    inner: bool
    stores: bool

    def loops(self, width: int) -> tuple[Lowering, Phases, tuple[Var, Var, Var]]:
        """Return the values in the loops over rows and vectors of a width, their phases, and the
        loop variables: row, chunk and lane. Where columns do not run along memory, the rows are
        what is reduced.
        """
        if self.inner:
            return *lowered(self.fusion, self.domain, self.rows, width), self.rows.variables(width)
        binding, variables = bind_outer(self.rows, width)

        def found() -> tuple[Lowering, Phases]:
            lowering = Lowering(self.fusion, self.domain, binding)
            return lowering, phases_of(self.fusion, lowering, variables)

        return *_RECENT.of(self.fusion, (id(self.domain), self.rows, width), found), variables

    def is_whole(self, load: Instance, width: int) -> bool:
        """Return whether a load's elements of a vector of columns are one access."""
        assert load.address is not None
        lane = self.rows.variables(width)[2]
        facts = Facts(self.hints)
        return width == 1 or (
            vector_base(load.address, load.conditions, lane, width, facts) is not None
        )

    def block_trouble(self, width: int, threads_x: int, threads_y: int) -> Refusal | None:
        """Return why no block of such threads, with vectors of a width, reduces the rows."""
        found = access_trouble(width, self.vectors[0]) or shape_trouble(threads_x, threads_y)
        if found is not None or self.inner:
            return found
        reduced = (n for n in self.fusion.nodes if n in self.domain.reduced)
        return shared_trouble(column_sums(reduced, width, threads_x, threads_y))

    @cached_property
    def vectors(self) -> tuple[int, tuple[Guard, ...]]:
        """Return the widest vectors along memory, and the guards that they need."""
        return widest_vectors(self, self.domain, self.rows, inner=self.inner, stores=self.stores)


ReductionPlan = PhasedPlan[RowsProblem, ReductionParameters]


class Reduction(Family[RowsProblem, ReductionParameters, ReductionPlan]):
    """Accepts reductions of one set of axes, none of which is read after another."""

    name = "reduction"

    def problem(self, segment: Fusion) -> RowsProblem | Refusal:
        """Return the segment along the axis that runs along memory in its largest input."""
        found = unsupported_nodes(segment, MEMORY_BOUND) or orient(segment)
        return found if isinstance(found, Refusal) else _trouble(found) or found

    def likeliest(self, problem: RowsProblem, target: Target) -> ReductionParameters:
        """Return the parameters: threads by row length, splits until every SM has two blocks."""
        fusion, rows = problem.fusion, problem.rows
        width, wide = problem.vectors[0], problem.wide
        results = max(1, rows.rows.evaluate(fusion.hints))
        length = max(1, rows.columns.evaluate(fusion.hints))
        if problem.inner:
            vectors = -(-length // width)
            threads = min(512, max(8, 1 << max(0, -(-vectors // 4) - 1).bit_length()))
            at_once = max(
                32 // threads if threads < 32 else 1, min(256 // threads, _power(results)), 1
            )
            blocks = -(-results // at_once)
            wanted = -(-2 * target.sms // blocks)
            splits = max(1, min(wanted, vectors // MIN_VECTORS_PER_SPLIT))
            return ReductionParameters(True, width, threads, at_once, splits, wide)
        vectors = -(-results // width)
        threads_x = min(32, _power(vectors) * (1 if _power(vectors) == vectors else 2))
        threads_y = 256 // threads_x
        blocks = -(-vectors // threads_x)
        wanted = -(-4 * target.sms // blocks)
        splits = max(1, min(wanted, length // (8 * threads_y)))
        return ReductionParameters(False, width, threads_x, threads_y, splits, wide)

    def trouble(
        self, problem: RowsProblem, parameters: ReductionParameters, target: Target
    ) -> Refusal | None:
        """Return why no kernel has some parameters, or None."""
        p = parameters
        return problem.block_trouble(p.vector_width, p.threads_x, p.threads_y)

    def plan(
        self, problem: RowsProblem, parameters: ReductionParameters, target: Target
    ) -> ReductionPlan:
        """Return a plan of one kernel."""
        fusion = problem.fusion
        workspaces = workspaces_of(problem, parameters) if parameters.splits > 1 else ()
        kernel = Kernel(
            name=f"{fusion.name}_reduction",
            template="reduction_inner" if parameters.inner else "reduction_outer",
            grid=(_blocks(problem, parameters), dim(parameters.splits), dim(1)),
            block=(parameters.threads_x, parameters.threads_y, 1),
            arguments=tensor_arguments(fusion, workspaces),
            least_blocks=blocks_beside_doubles(
                fusion,
                problem.domain,
                problem.rows.reduced,
                parameters.vector_width,
                parameters.threads_x * parameters.threads_y,
            ),
        )
        lowering, phases, loops = problem.loops(parameters.vector_width)
        return PhasedPlan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            workspaces,
            (*problem.index[1], *problem.vectors[1]),
            problem.specialised,
            orders=of_all(problem.segment, order_of(problem.rows, parameters)),
            problem=problem,
            loops=loops,
            lowering=lowering,
            phases=phases,
            staged=(),
        )

    def price(self, plan: ReductionPlan, target: Target) -> Estimate:
        """Return a price: the inputs once, and partial results where blocks share a result."""
        problem, parameters = plan.problem, plan.parameters
        fusion, rows = problem.fusion, problem.rows
        _, phases = lowered(fusion, problem.domain, rows, 1)
        results = rows.rows.evaluate(fusion.hints) * len(fusion.outputs)
        blocks = plan.kernels[0].grid[0].evaluate(fusion.hints) * parameters.splits
        flops, sfu = work(fusion)
        by_vectors = parameters.inner and parameters.vector_width > 1
        pushing = VECTOR_DIVISION if by_vectors else DIVISION
        flops += pushing * sum(_variance_elements(fusion))
        return Estimate(
            bytes=traffic(problem.segment),
            workspace_bytes=0 if parameters.splits == 1 else 8 * results * parameters.splits,
            flops=flops,
            sfu=sfu,
            efficiency=target.reach(self.name, access(parameters.vector_width)),
            ctas=max(1, blocks),
            waits=COMBINING if parameters.splits > 1 else 0.0,
            build=build_time(
                phases,
                UNROLLED * parameters.vector_width,
                1 if parameters.inner else parameters.vector_width,
            ),
            kernels=0 if is_empty(fusion) and not results else 1,
        )

    def pressure(self, plan: ReductionPlan, kernel: Kernel) -> Pressure:
        """Return what a thread holds of the vectors that its loop takes at a time."""
        p = plan.parameters
        return phased_pressure(plan, Loops(p.vector_width, UNROLLED, outer=not p.inner))


def _trouble(problem: RowsProblem) -> Refusal | None:
    """Return why one sweep over the columns does not do, or None."""
    fusion, rows = problem.fusion, problem.rows
    lowering, phases = lowered(fusion, problem.domain, rows, 1)
    _, chunk, _ = rows.variables(1)
    if any(phases.reductions[1:]):
        return Refusal("depth", "a reduction reads the result of another one")
    if any(phases.loads[1:]) or any(
        lowering.at_home(o.value).depth and chunk in _home(lowering, o.value)
        for o in fusion.outputs
    ):
        return Refusal("persistence", "an element is read or written after the reduction")
    unwritten = _without_loop(fusion, lowering, rows)
    if unwritten is not None:
        return Refusal("empty", f"nothing is reduced beside elements of `{unwritten.name}`")
    if any(lowering.home(n.inputs[0])[1] for n in phases.reductions[0]):
        return Refusal("conditions", "a reduction reads only a part of the domain")
    return in_place_hazard(fusion, lowering, on_chip=False)


def order_of(rows: Rows, p: ReductionParameters) -> PlannedOrder:
    """Return the order of a kernel's sums."""
    if p.inner:
        return along_rows(rows.columns, p.vector_width, p.threads_x, p.splits)
    return down_columns(rows.columns, p.threads_y, p.splits)


def _without_loop(fusion: Fusion, lowering: Lowering, rows: Rows) -> Value | None:
    """Return an output whose elements a loop would write that has no turn, if there is one."""
    hints = fusion.hints
    if rows.rows.evaluate(hints) and rows.columns.evaluate(hints):
        return None
    for output in fusion.outputs:
        turns = rows.rows if lowering.at_home(output.value).depth else rows.rows * rows.columns
        if not turns.evaluate(hints) and product(output.value.shape).evaluate(hints):
            return output.value
    return None


def _variance_elements(fusion: Fusion) -> Iterator[int]:
    """Yield how many elements each variance of a fusion is of."""
    for node in fusion.nodes:
        if node.op.combine is Combine.MOMENTS:
            yield product(node.inputs[0].shape).evaluate(fusion.hints)


def _home(lowering: Lowering, value: Value) -> frozenset[Var]:
    return frozenset[Var]().union(*(c.variables for c in lowering.home(value)[0]))


def orient(segment: Fusion) -> RowsProblem | Refusal:
    """Return the segment seen along the axis that runs along memory in its largest input."""
    fusion = with_columns(segment)
    if isinstance(fusion, Refusal):
        return fusion
    return as_rows(segment, fusion)


def with_columns(segment: Fusion) -> Fusion | Refusal:
    """Return the segment with the sizes of what is reduced put in, and all that are inside."""
    domain = find_domain(segment)
    if isinstance(domain, Refusal):
        return domain
    reduced = frozenset[str]().union(*(a.extent.symbols for a in domain.reduced_axes))
    return specialise(segment, dynamic_symbols(segment) - reduced)[0]


def as_rows(
    segment: Fusion, fusion: Fusion, *, stores: bool = False, inner: bool | None = None
) -> RowsProblem | Refusal:
    """Return a segment, written as a fusion, as rows.

    stores: whether elements are stored; inner: as which the columns are taken, wherever they lie.
    """
    domain = find_domain(fusion)
    if isinstance(domain, Refusal):
        return domain
    rows = rows_of(domain)
    if isinstance(rows, Refusal):
        return rows
    inner = is_inner(fusion, domain, rows) if inner is None else inner
    return RowsProblem(segment, fusion, domain, rows, inner, stores=stores or not inner)


def bind_outer(rows: Rows, width: int) -> tuple[dict[Var, Index], tuple[Var, Var, Var]]:
    """Bind the axes of an outer reduction to loop variables: row (reduced), chunk, lane (kept)."""
    row = Var("row", rows.columns)
    chunk, lane = Var("chunk", ceildiv(rows.rows, width)), Var("v", dim(width))
    column = of_var(chunk) * width + of_var(lane)
    at_row = delinearize(of_var(row), (a.extent for a in rows.reduced))
    at_column = delinearize(column, (a.extent for a in rows.kept))
    binding = {
        **dict(zip(rows.reduced, at_row, strict=True)),
        **dict(zip(rows.kept, at_column, strict=True)),
    }
    return binding, (row, chunk, lane)


def _power(value: int) -> int:
    return 1 << (max(1, value).bit_length() - 1)


def _blocks(problem: RowsProblem, parameters: ReductionParameters) -> Dim:
    rows = problem.rows
    if parameters.inner:
        return ceildiv(rows.rows, parameters.threads_y)
    return ceildiv(ceildiv(rows.rows, parameters.vector_width), parameters.threads_x)


def workspaces_of(problem: RowsProblem, parameters: ReductionParameters) -> tuple[Workspace, ...]:
    """Return the buffers of partial results, one per reduction, and the arrival counters."""
    blocks = _blocks(problem, parameters)
    results = problem.rows.rows
    if not parameters.inner:
        results = blocks * parameters.threads_x * parameters.vector_width
    fusion = problem.fusion
    taken = {*(v.name for v in fusion.values), *(d.name for d in fusion.dims)}
    made = [
        Workspace(
            free_name(f"{node.output.name}_partials", taken),
            node.output.dtype.compute,
            results * parameters.splits * partial_words(node),
        )
        for node in fusion.nodes
        if node in problem.domain.reduced
    ]
    return (*made, Workspace(free_name("arrived", taken), U32, blocks, "zeroed once"))
