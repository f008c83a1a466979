"""Reductions whose input is read once: over inner axes, outer axes, a mixture, or all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from fusec.index.instances import Lowering
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.dtype import F32, U32
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion, Value
from fusec.ir.roles import Combine
from fusec.schedule.common import (
    MEMORY_BOUND,
    access,
    free_name,
    is_empty,
    tensor_arguments,
    unsupported_nodes,
)
from fusec.schedule.compile_time import build_time
from fusec.schedule.family import Family
from fusec.schedule.grid_reduce import (
    BULK_CAPABILITY,
    IN_BULK,
    METHODS,
    MOMENTS_STEP,
    STEP,
    Sharing,
    fan_of,
    quickest,
    seconds,
)
from fusec.schedule.online import in_one_phase
from fusec.schedule.orders import PlannedOrder, along_rows, down_columns, of_all
from fusec.schedule.phased_pressure import Loops, phased_pressure
from fusec.schedule.plan import Guard, Kernel, Workspace
from fusec.schedule.pressure import Pressure, occupancy
from fusec.schedule.redefinitions import exponentials_online
from fusec.schedule.reduction_rows import UNROLLED, threads_of_row
from fusec.schedule.registers import blocks_beside_doubles, partial_words
from fusec.schedule.rows import PhasedPlan, Rows, in_place_hazard, lowered
from fusec.schedule.rows_problem import RowsProblem, as_rows, with_any_rows, with_columns
from fusec.schedule.space import (
    COUNTS,
    THREADS,
    WIDTHS,
    Field,
    Parameters,
    power_above,
    power_below,
)
from fusec.segment.price import traffic, work
from fusec.segment.protocol import Estimate, Redefinition, Refusal
from fusec.target import Target

MIN_VECTORS_PER_SPLIT = 512
"""Vectors of the reduced axes below which a further block does not pay for its partial result."""
DIVISION = 12
"""Operations of a division, which a Welford state takes for each element that is pushed by itself.

By the layer norm and the batch norm of the benchmarks on an H200.
"""
VECTOR_DIVISION = 6
"""The same for each element of a vector, which has one division and a merge for all of them.

Fitted to `benchmarks.segmentation model`: layer norms of 128 K, batch norms of 200 K columns.
"""
THREADS_PER_SM = 1024
"""Threads with UNROLLED vectors each on their way that keep an SM's part of the memory busy."""


@dataclass(frozen=True)
class ReductionParameters(Parameters):
    """The choices of a reduction kernel.

    inner: whether the reduced axes run along memory (threads_x side by side on them, threads_y rows
    per block) or the kept axes do (threads_x vectors of kept columns, threads_y rows at a time).
    splits: blocks that share one result; grid_reduce: how they combine their partial results.
    """

    inner: bool
    vector_width: int
    threads_x: int
    threads_y: int
    splits: int
    grid_reduce: str
    wide_index: bool
    free: ClassVar = (
        Field("vector_width", WIDTHS),
        Field("threads_x", THREADS),
        Field("threads_y", THREADS),
        Field("splits", COUNTS),
        Field("grid_reduce", METHODS),
    )

    @property
    def fan(self) -> int:
        """Return of how many blocks one combines the partial results."""
        return fan_of(self.grid_reduce, self.splits)

    @property
    def in_bulk(self) -> bool:
        """Return whether blocks add their partial results in memory."""
        return self.grid_reduce in IN_BULK

    @property
    def turns(self) -> bool:
        """Return whether they do so one after the other."""
        return self.grid_reduce == "serial_tma"

    @property
    def side_by_side(self) -> int:
        """Return how many threads take partial results of one column side by side."""
        return self.threads_x if self.inner else self.threads_y


ReductionPlan = PhasedPlan[RowsProblem, ReductionParameters]


class Reduction(Family[RowsProblem, ReductionParameters, ReductionPlan]):
    """Accepts reductions of one set of axes, none of which is read after another."""

    name = "reduction"

    def problem(self, segment: Fusion) -> RowsProblem | Refusal:
        """Return the segment along the axis that runs along memory in its largest input."""
        fusion = unsupported_nodes(segment, MEMORY_BOUND) or with_columns(segment)
        found = fusion if isinstance(fusion, Refusal) else as_rows(segment, in_one_phase(fusion))
        return found if isinstance(found, Refusal) else _trouble(found) or found

    def general(self, problem: RowsProblem) -> RowsProblem:
        """Return the problem for any number of rows.

        All of a tensor, or its outer axes, are summed in a loop of any length.
        """
        segment, inner = problem.segment, problem.inner

        def made(fusion: Fusion) -> RowsProblem | Refusal:
            found = as_rows(segment, in_one_phase(fusion), inner=inner)
            return found if isinstance(found, Refusal) else _trouble(found) or found

        return with_any_rows(problem, made, any_length=not inner or not problem.rows.kept)

    def likeliest(self, problem: RowsProblem, target: Target) -> ReductionParameters:
        """Return the parameters: threads by row length, splits that fill the SMs."""
        fusion, rows = problem.fusion, problem.rows
        width, wide = problem.vectors[0], problem.wide
        results = max(1, rows.rows.evaluate(fusion.hints))
        length = max(1, rows.columns.evaluate(fusion.hints))
        if problem.inner:
            vectors = -(-length // width)
            threads = threads_of_row(vectors)
            at_once = max(1, 32 // threads, min(256 // threads, power_below(results)))
            most, step = vectors // MIN_VECTORS_PER_SPLIT, threads * width
        else:
            threads = min(32, power_above(-(-results // width)))
            at_once = 256 // threads
            most, step = length // (8 * at_once), at_once + _partial_rows(problem)
        whole = ReductionParameters(problem.inner, width, threads, at_once, 1, "last_block", wide)
        blocks = _blocks(problem, whole).evaluate(fusion.hints)
        busy = THREADS_PER_SM // (threads * at_once)
        if most <= 1 or blocks >= busy * target.sms:
            return whole
        resident = self._resident(self.plan(problem, whole, target), target)
        shape = Sharing(max(1, blocks), busy, resident, target.sms, step / length)
        splits = shape.splits(most)
        method = quickest(splits, whole.side_by_side, _step(problem, whole))
        return replace(whole, splits=splits, grid_reduce=method)

    def _resident(self, plan: ReductionPlan, target: Target) -> int:
        """Return how many blocks of a plan's kernel an SM holds, as far as the plan tells."""
        (kernel,) = plan.kernels
        return max(1, occupancy(kernel, self.pressure(plan, kernel), target).blocks)

    def trouble(
        self, problem: RowsProblem, parameters: ReductionParameters, target: Target
    ) -> Refusal | None:
        """Return why no kernel has some parameters, or None."""
        p = parameters
        if p.grid_reduce == "tree" and p.fan >= p.splits:
            return Refusal("grid_reduce", f"{p.splits} blocks for each result make no tree")
        if p.in_bulk:
            found = _bulk_trouble(problem, p, target)
            if found is not None:
                return found
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
        plan = PhasedPlan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            workspaces,
            (*_not_empty(problem.rows), *problem.index[1], *problem.vectors[1]),
            problem.specialised,
            orders=of_all(problem.segment, order_of(problem.rows, parameters)),
            problem=problem,
            loops=loops,
            lowering=lowering,
            phases=phases,
            staged=(),
        )
        return self._filling(plan, target) if parameters.splits > 1 else plan

    def _filling(self, plan: ReductionPlan, target: Target) -> ReductionPlan:
        """Return a plan whose kernel has the blocks on an SM that its splits were chosen for.

        Where these are likely to make it spill it has what the assembler gives it.
        """
        (kernel,) = plan.kernels
        blocks = kernel.least_blocks or self._resident(plan, target)
        bound = replace(kernel, least_blocks=blocks)
        if occupancy(bound, self.pressure(plan, kernel), target).spills:
            return plan
        return replace(plan, kernels=(bound,))

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
            waits=seconds(
                parameters.grid_reduce,
                parameters.splits,
                parameters.side_by_side,
                _step(problem, parameters),
            ),
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

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        """Return sums of exponentials in one reading with their maximum."""
        return exponentials_online(segment)


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


def _bulk_trouble(problem: RowsProblem, p: ReductionParameters, target: Target) -> Refusal | None:
    """Return why blocks cannot add their partial results by reducing bulk copies, or None."""
    rule = "grid_reduce"
    if target.capability < BULK_CAPABILITY:
        return Refusal(rule, f"{target.arch} has no reducing bulk copies")
    if p.inner or p.splits == 1:
        return Refusal(rule, "bulk copies add columns that several blocks share")
    reduced = [n for n in problem.fusion.nodes if n in problem.domain.reduced]
    if any(n.op.combine is not Combine.SUM or n.output.dtype.compute != F32 for n in reduced):
        return Refusal(rule, "bulk copies add sums of f32 alone")
    if p.threads_x * p.vector_width % 4:
        return Refusal(rule, "bulk copies are of 16 bytes and more: of four columns")
    return None


def _not_empty(rows: Rows) -> tuple[Guard, ...]:
    """Return the guards that keep a sum of any length from being one of nothing."""
    if rows.columns.is_const:
        return ()
    return (Guard(rows.columns * -1, "<=", -1, "nothing would be reduced"),)


def order_of(rows: Rows, p: ReductionParameters) -> PlannedOrder:
    """Return the order of a kernel's sums."""
    if p.inner:
        return along_rows(rows.columns, p.vector_width, p.threads_x, p.splits, p.fan)
    return down_columns(rows.columns, p.threads_y, p.splits, p.fan, turns=p.in_bulk)


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


def _partial_rows(problem: RowsProblem) -> float:
    """Return how many rows of the inputs have the bytes of a partial result, written and read."""
    fusion = problem.fusion
    row = sum(i.value.dtype.size for i in fusion.inputs if i.value.rank)
    words = sum(partial_words(n) for n in fusion.nodes if n in problem.domain.reduced)
    return 8 * words / max(1, row)


def _step(problem: RowsProblem, parameters: ReductionParameters) -> float:
    """Return the seconds in which a thread takes one partial result of each of its columns."""
    states = 1 if parameters.inner else parameters.vector_width
    moments = any(n.op.combine is Combine.MOMENTS for n in problem.fusion.nodes)
    return MOMENTS_STEP * states if moments else STEP


def _variance_elements(fusion: Fusion) -> Iterator[int]:
    """Yield how many elements each variance of a fusion is of."""
    for node in fusion.nodes:
        if node.op.combine is Combine.MOMENTS:
            yield product(node.inputs[0].shape).evaluate(fusion.hints)


def _home(lowering: Lowering, value: Value) -> frozenset[Var]:
    return frozenset[Var]().union(*(c.variables for c in lowering.home(value)[0]))


def _blocks(problem: RowsProblem, parameters: ReductionParameters) -> Dim:
    rows = problem.rows
    if parameters.inner:
        return ceildiv(rows.rows, parameters.threads_y)
    return ceildiv(ceildiv(rows.rows, parameters.vector_width), parameters.threads_x)


def workspaces_of(problem: RowsProblem, parameters: ReductionParameters) -> tuple[Workspace, ...]:
    """Return the buffers of partial results, one per reduction, and the arrival counters."""
    blocks, bulk = _blocks(problem, parameters), parameters.in_bulk
    results = problem.rows.rows
    if not parameters.inner:
        results = blocks * parameters.threads_x * parameters.vector_width
    fusion = problem.fusion
    taken = {*(v.name for v in fusion.values), *(d.name for d in fusion.dims)}
    made = [
        Workspace(
            free_name(f"{node.output.name}_partials", taken),
            node.output.dtype.compute,
            results * (1 if bulk else parameters.splits) * partial_words(node),
            "zeroed once" if bulk else "none",
        )
        for node in fusion.nodes
        if node in problem.domain.reduced
    ]
    groups = parameters.splits if parameters.fan < parameters.splits else 1
    counters = blocks * (2 if parameters.turns else groups)
    return (*made, Workspace(free_name("arrived", taken), U32, counters, "zeroed once"))
