"""Reductions whose input is read once: over inner axes, outer axes, a mixture, or all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from fusec.dataclasses import replace
from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import dim, product
from fusec.ir.expression import Var, index
from fusec.ir.graph import Fusion, Value
from fusec.ir.roles import Combine
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.schedule.common import (
    is_empty,
)
from fusec.schedule.compile_time import build_time
from fusec.schedule.former import Former
from fusec.schedule.orders import of_all
from fusec.schedule.plan import Guard, Kernel
from fusec.schedule.pressure import Pressure, occupancy
from fusec.schedule.redefinitions import exponentials_online, sums_of_few, variances_read_twice
from fusec.schedule.registers import blocks_with_doubles
from fusec.schedule.rows.domain import PhasedPlan, Rows, in_place_hazard, lowered
from fusec.schedule.rows.family import RowsFamily
from fusec.schedule.rows.in_steps import outside_first, shared_first
from fusec.schedule.rows.one_hot import sums_of_one_hot
from fusec.schedule.rows.online import in_one_phase
from fusec.schedule.rows.pressure import Loops, phased_pressure
from fusec.schedule.rows.problem import RowsProblem, as_rows
from fusec.schedule.rows.reduction.choice import (
    FEW_ROWS,
    STREAMED,
    ReductionParameters,
    by_rows,
    by_tiles,
    step_of,
)
from fusec.schedule.rows.reduction.grid import seconds
from fusec.schedule.rows.reduction.rows import UNROLLED, is_unrolled, unrolled_rows
from fusec.schedule.rows.reduction.shared import check_method, order_of, workspaces_of
from fusec.schedule.rows.tiles import check_tile
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate, Redefinition, Refusal
from fusec.segment.traffic import SECTOR, traffic, work
from fusec.target import Target

TURN_REGISTERS = 7
"""Registers of a block's ticket, which it takes before its loop.

For the layer norms of examples/grid_reduce (NVRTC 13.0, sm_90a): limited to 32 registers they spill
16 and 20 bytes, and without launch bounds none.
"""
ReductionPlan = PhasedPlan[RowsProblem, ReductionParameters]


class Reduction(RowsFamily[ReductionParameters]):
    """Accepts reductions over the same axes that do not depend on one another."""

    name = "reduction"
    templates: ClassVar = {
        "reduction_inner": Template("rows.reduction"),
        "reduction_outer": Template("rows.reduction"),
    }
    reach = ("reduction", "inner_persistent")
    vocabulary = TEMPLATE_NAMES
    former: ClassVar = {"partials": Former(("workspace_dtype",))}

    def rows(
        self, segment: Fusion, fusion: Fusion, inner: bool | None = None
    ) -> RowsProblem | Refusal:
        """Return a segment as rows along the contiguous axis of its largest input."""
        found = as_rows(segment, in_one_phase(fusion), inner=inner)
        return found if isinstance(found, Refusal) else _why_illegal(found) or found

    def takes_any_length(self, problem: RowsProblem) -> bool:
        """Return whether the reduced size may be dynamic: all of a tensor, or its outer axes."""
        few = not problem.inner and problem.rows.columns.evaluate(problem.hints) <= FEW_ROWS
        return not (problem.inner or few) or not problem.rows.kept

    def default_parameters(self, problem: RowsProblem, target: Target) -> ReductionParameters:
        """Return the parameters: tiles if rows benefit from them, else by the length of a row."""
        tiles = by_tiles(problem, target, shifted=problem.inner and problem.takes_shifted())
        read, most = traffic(problem.segment), STREAMED * target.l2
        streaming = target.l2 < read <= most
        return tiles or replace(self.by_rows(problem, target), streaming=streaming)

    def by_rows(self, problem: RowsProblem, target: Target) -> ReductionParameters:
        """Return the parameters with which threads process each row, or column, separately."""

        def resident(p: ReductionParameters) -> int:
            return self._resident(self.plan(problem, p, target), target)

        return by_rows(problem, target, resident)

    def by_tiles(self, problem: RowsProblem, target: Target) -> ReductionParameters | None:
        """Return the parameters with which blocks stage several rows, None if unsupported."""
        return by_tiles(problem, target)

    def _resident(self, plan: ReductionPlan, target: Target) -> int:
        """Return how many blocks of a plan's kernel fit on an SM, as predicted from the plan."""
        (kernel,) = plan.kernels
        return max(1, occupancy(kernel, self.pressure(plan, kernel), target).blocks)

    def why_illegal(
        self, problem: RowsProblem, parameters: ReductionParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        p = parameters
        if p.inner and p.unrolled != UNROLLED:
            return Refusal("unrolled", "rows_at_once applies to column reductions only")
        found = check_method(problem, p, target)
        if found is not None:
            return found
        found = problem.check_block(p)
        if found is not None or not p.tile_rows:
            return found
        if p.splits > 1 or p.shifted:
            return Refusal("tile_rows", "tiled rows do not support splits or unaligned vectors")
        if p.streaming:
            return Refusal("streaming", "tiled rows use bulk copies, not loads")
        return check_tile(problem, p, target.shared)

    def plan(
        self, problem: RowsProblem, parameters: ReductionParameters, target: Target
    ) -> ReductionPlan:
        """Return a plan of one kernel."""
        fusion, p = problem.fusion, parameters
        workspaces = workspaces_of(problem, p) if p.splits > 1 else ()
        about = fusion, problem.domain, problem.rows.reduced
        kernel = replace(
            self.rows_kernel(problem, p, workspaces),
            template="reduction_inner" if p.inner else "reduction_outer",
            grid=(problem.blocks(p), dim(p.splits), dim(1)),
            least_blocks=blocks_with_doubles(*about, p.vector_width, p.threads),
        )
        plan = self.planned(
            problem,
            p,
            problem.loops(p.vector_width, p.shifted),
            (kernel,),
            of_all(problem.segment, order_of(problem, p)),
            workspaces=workspaces,
            guards=(*_not_empty(problem.rows), *problem.guards),
        )
        across = p.shifted and not p.inner
        return self._filling(plan, target) if p.splits > 1 or across else plan

    def _filling(self, plan: ReductionPlan, target: Target) -> ReductionPlan:
        """Return a plan whose launch bounds keep the occupancy that its splits were chosen for.

        If these are likely to make it spill, ptxas chooses the registers.
        """
        (kernel,) = plan.kernels
        blocks = kernel.least_blocks or self._resident(plan, target)
        bound = replace(kernel, least_blocks=blocks)
        if occupancy(bound, self.pressure(plan, kernel), target).spills:
            return plan
        return replace(plan, kernels=(bound,))

    def estimate(self, plan: ReductionPlan, target: Target) -> Estimate:
        """Return the estimate: the inputs once, and partial results if blocks share a result."""
        problem, parameters = plan.problem, plan.parameters
        fusion, rows = problem.fusion, problem.rows
        _, phases = lowered(fusion, problem.domain, rows, 1)
        results = rows.rows.evaluate(fusion.hints) * len(fusion.outputs)
        blocks = plan.kernels[0].grid[0].evaluate(fusion.hints) * parameters.splits
        flops, sfu = work(fusion)
        flops += target.cost.rows.moments_operations * sum(_variance_elements(fusion))
        return Estimate(
            bytes=traffic(problem.segment) + _split_sectors(plan),
            workspace_bytes=0 if parameters.splits == 1 else 8 * results * parameters.splits,
            flops=flops,
            sfu=sfu,
            efficiency=self.efficiency(plan, target),
            ctas=max(1, blocks),
            waits=seconds(
                parameters.grid_reduce,
                parameters.splits,
                parameters.side_by_side,
                step_of(problem, parameters, target),
                target.cost.grid_reduce,
            ),
            build=build_time(
                phases,
                parameters.unrolled * parameters.vector_width,
                target,
                1 if parameters.inner else parameters.vector_width,
            ),
            kernels=0 if is_empty(fusion) and not results else 1,
        )

    def pressure(self, plan: ReductionPlan, kernel: Kernel) -> Pressure:
        """Return the register pressure of the vectors that a thread's loop processes at a time."""
        p = plan.parameters
        together = max(p.unrolled, unrolled_vectors(plan))
        loops = Loops(p.vector_width, together, outer=not p.inner, shifted=p.shifted)
        found = phased_pressure(plan, loops)
        return replace(found, own=found.own + TURN_REGISTERS) if p.turns else found

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        """Return the alternative definitions that a reduction kernel supports.

        Online sums of exponentials, two-step reductions, two-pass variances, unrolled sums, and
        scatters if rows have one element each.
        """
        online, outside = exponentials_online(segment), outside_first(segment, fusion)
        added = (*sums_of_few(segment), *sums_of_one_hot(segment))
        two = variances_read_twice(segment)
        return (*online, *two, *added, *(outside or shared_first(segment, fusion)))


def _split_sectors(plan: ReductionPlan) -> int:
    """Return the bytes of partially written sectors, whose other results are stored separately."""
    row, chunk, lane = plan.loops
    inner = plan.parameters.inner
    neighbour = row if inner else lane if plan.parameters.vector_width > 1 else chunk
    first, found = {v: index(0) for v in plan.loops}, 0
    for output in plan.fusion.outputs:
        address = plan.lowering.address(output.value, plan.fusion.effects.strides(output.value))
        if address.variables & ({chunk, lane} if inner else {row}):
            continue  # an elementwise output, not a result
        places = (address.substitute({**first, neighbour: index(k)}) for k in (0, 1))
        low, high = (place.constant.evaluate(plan.fusion.hints) for place in places)
        size = output.value.dtype.size
        reach = min(SECTOR, max(1, abs(high - low)) * size)
        found += product(output.value.shape).evaluate(plan.fusion.hints) * (reach - size)
    return found


def loaded_once(plan: ReductionPlan) -> frozenset[Instance]:
    """Return the loads whose elements are each read by one thread only."""
    row, chunk, _ = plan.loops
    written = plan.fusion.effects.overwritten
    return frozenset(
        i
        for i in plan.phases.loads[0]
        if {row, chunk} <= i.variables and not i.gathered and i.name not in written
    )


def unrolled_vectors(plan: ReductionPlan) -> int:
    """Return how many vectors a thread without a loop loads at once, 0 if it has a loop."""
    p, rows = plan.parameters, plan.problem.rows
    if p.splits > 1 or (p.shifted and not p.inner):
        return 0
    if not p.inner:
        size = sum(i.dtype.size * p.vector_width for i in plan.phases.loads[0])
        return unrolled_rows(rows, p.threads_y, size)
    step = p.vector_width * p.threads_x
    return -(-rows.columns.value // step) if p.tile_rows or is_unrolled(rows, step) else 0


def _why_illegal(problem: RowsProblem) -> Refusal | None:
    """Return why one sweep over the columns is not enough, or None."""
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
        return Refusal("empty", f"there is no reduction besides elements of `{unwritten.name}`")
    if any(lowering.home(n.inputs[0])[1] for n in phases.reductions[0]):
        return Refusal("conditions", "a reduction reads only a part of the domain")
    return in_place_hazard(fusion, lowering, on_chip=False)


def _not_empty(rows: Rows) -> tuple[Guard, ...]:
    """Return the guards that keep a reduction of dynamic length from being empty."""
    if rows.columns.is_const:
        return ()
    return (Guard(rows.columns * -1, "<=", -1, "nothing would be reduced"),)


def _without_loop(fusion: Fusion, lowering: Lowering, rows: Rows) -> Value | None:
    """Return an output whose elements a loop without iterations would have to write, if any."""
    hints = fusion.hints
    if rows.rows.evaluate(hints) and rows.columns.evaluate(hints):
        return None
    for output in fusion.outputs:
        turns = rows.rows if lowering.at_home(output.value).depth else rows.rows * rows.columns
        if not turns.evaluate(hints) and product(output.value.shape).evaluate(hints):
            return output.value
    return None


def _variance_elements(fusion: Fusion) -> Iterator[int]:
    """Yield the number of elements of each variance of a fusion."""
    for node in fusion.nodes:
        if node.op.combine is Combine.MOMENTS:
            yield product(node.inputs[0].shape).evaluate(fusion.hints)


def _home(lowering: Lowering, value: Value) -> frozenset[Var]:
    return frozenset[Var]().union(*(c.variables for c in lowering.home(value)[0]))
