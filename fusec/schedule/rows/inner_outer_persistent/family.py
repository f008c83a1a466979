"""Row kernels with column accumulators: rows and columns reduced in one pass over the inputs."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import replace
from fusec.ir.dim import ceildiv, dim
from fusec.ir.graph import Fusion, Input, Node, Output
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.ops.names import fresh_name
from fusec.schedule.blocks import check_access, check_column_sums, check_shape
from fusec.schedule.common import (
    access,
    tensor_arguments,
)
from fusec.schedule.compile_time import build_time
from fusec.schedule.orders import PlannedOrder, along_rows_in_turns, in_ranges, is_sum
from fusec.schedule.plan import Kernel, Staged, StepKernel, Workspace, staged_in_turn
from fusec.schedule.pressure import Pressure, of_template
from fusec.schedule.redefinitions import sums_of_few, variances_in_two_passes
from fusec.schedule.registers import MOST_THREAD_REGISTERS, words
from fusec.schedule.requirements import columns_of_rows
from fusec.schedule.rows.domain import PhasedPlan
from fusec.schedule.rows.family import NestFamily
from fusec.schedule.rows.inner_outer_persistent.choice import (
    OVERLAPPING,
    FinishParameters,
    InnerOuterParameters,
    default_parameters,
    finish_of,
    register_limit,
    registers,
    widest,
)
from fusec.schedule.rows.inner_outer_persistent.split import Split, split_of
from fusec.schedule.rows.inner_outer_persistent.work import work_of
from fusec.schedule.rows.one_hot import sums_of_one_hot
from fusec.schedule.rows.pressure import Loops, phased_pressure
from fusec.schedule.rows.two_pass import names_of_sums
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate, Redefinition, Refusal
from fusec.segment.traffic import traffic
from fusec.segment.traffic import work as operations
from fusec.target import Target

ROW_LOOP = 9
"""Registers for the loop over rows: its bounds, the ring's stage, the next row's address."""


InnerOuterPlan = PhasedPlan[Split, InnerOuterParameters]


class InnerOuterPersistent(NestFamily[Split, InnerOuterParameters]):
    """Accepts reductions over rows, with or without reductions along them."""

    name = "inner_outer_persistent"
    templates: ClassVar = {
        "inner_outer_persistent": Template("rows.inner_outer_persistent"),
        "column_finish": Template("rows.column_finish", 18),
    }
    reach = ("inner_outer_persistent",)
    vocabulary = TEMPLATE_NAMES

    def problem(self, segment: Fusion) -> Split | Refusal:
        """Return a split segment: sizes specialized, variances and unit reductions expanded."""
        return columns_of_rows(segment) or split_of(segment)

    def default_parameters(self, problem: Split, target: Target) -> InnerOuterParameters | Refusal:
        """Return the parameters selected by registers and bytes in flight."""
        return default_parameters(problem, target)

    def with_derived(
        self, problem: Split, parameters: InnerOuterParameters
    ) -> InnerOuterParameters:
        """Return parameters with derived vectors per thread, blocks per row, and ranges of rows."""
        p = parameters
        vectors = -(-problem.bands.columns.value // p.vector_width)
        parts = -(-vectors // p.threads_x)
        chunks, tiles = (parts, 1) if problem.row_sums else (1, parts)
        height = problem.bands.height.value
        rows = -(-height // (p.ranges * p.threads_y)) * p.threads_y
        ranges = -(-height // rows)
        return replace(p, chunks=chunks, tiles=tiles, ranges=ranges, range_rows=rows)

    def why_illegal(
        self, problem: Split, parameters: InnerOuterParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        p = parameters
        found = check_access(p.vector_width, widest(problem))
        found = found or check_shape(p)
        if found is not None:
            return found
        if problem.row_sums and p.threads_x > 32 and p.threads_y > 1:
            # Blocks without rows left do not wait for the others.
            return Refusal(
                "block", "rows of several warps are processed one at a time: threads_y must be 1"
            )
        if p.grid_reduce == "overlap" and target.capability < OVERLAPPING:
            return Refusal(
                "grid_reduce", f"{target.arch} does not support programmatic dependent launch"
            )
        threads = p.threads * p.blocks
        if threads > target.threads:
            because = f"{p.blocks} blocks/SM need {threads} threads, the limit is {target.threads}"
            return Refusal("blocks", because)
        work = work_of(problem, p.vector_width)
        needed = registers(problem, work, p)
        most = min(MOST_THREAD_REGISTERS, register_limit(p.threads // 32 * p.blocks, target))
        if needed > most:
            return Refusal(
                "registers", f"a thread needs about {needed} registers, the limit is {most}"
            )
        slots = p.stages * p.threads * p.elements * sum(i.dtype.size for i in work.ring)
        if slots * p.blocks > target.shared:
            because = (
                f"the shared-memory ring of {p.blocks} blocks needs {slots * p.blocks} bytes, the "
                f"limit is {target.shared}"
            )
            return Refusal("shared memory", because)
        if (p.stages > 0 or p.row == "ring") and not slots:
            return Refusal("stages", "no row is loaded by bulk copies: the ring has no stages")
        return check_column_sums(problem.column_nodes, p)

    def plan(
        self, problem: Split, parameters: InnerOuterParameters, target: Target
    ) -> InnerOuterPlan:
        """Return a plan of the row kernel and the finish of its column sets."""
        p, bands, ring = parameters, problem.bands, _ring(problem, parameters)
        partials = partials_of(problem, p.ranges)
        rows = replace(
            self.kernel(problem.main, p, bands.groups * p.ranges, partials.values()),
            grid=(bands.groups * p.ranges, dim(p.tiles), dim(1)),
            shared_bytes=sum(s.bytes for s in ring),
            least_blocks=p.blocks,
            followed=p.grid_reduce == "overlap",
        )
        return self.planned(
            problem,
            p,
            problem.loops(p.vector_width),
            (rows, _finish(problem, p, partials)),
            _orders(problem, p),
            staged=ring,
            workspaces=tuple(partials.values()),
        )

    def estimate(self, plan: InnerOuterPlan, target: Target) -> Estimate:
        """Return the estimate: one pass over the inputs, and partial sums written and read."""
        split, parameters = plan.problem, plan.parameters
        phases = split.loops(1)[1]
        flops, sfu = operations(split.main)
        partials = sum(w.size.value * w.dtype.size for w in plan.workspaces)
        return Estimate(
            bytes=traffic(split.segment),
            workspace_bytes=2 * partials,
            flops=flops,
            sfu=sfu,
            efficiency=target.reach(self.name, access(parameters.vector_width)),
            ctas=parameters.ranges * split.bands.groups.value * parameters.tiles,
            kernels=2,
            waits=finish_of(split, parameters.ranges).seconds(target),
            build=build_time(phases, parameters.elements, target),
        )

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        """Return two-pass variances, unrolled sums, and scatters if rows have one element each."""
        two = variances_in_two_passes(segment)
        return (*two, *sums_of_few(segment), *sums_of_one_hot(segment))

    def pressure(self, plan: InnerOuterPlan, kernel: Kernel) -> Pressure:
        """Return the pressure of a thread: its part of a row, of column sums and of constants."""
        if kernel.template != "inner_outer_persistent":
            return of_template(kernel.template)
        p = plan.parameters
        work = work_of(plan.problem, p.vector_width)
        rows = work.kept if p.row == "ring" else (*work.ring, *work.kept)
        fixed = {"values": work.constants, "vectors": work.vectors}.get(p.constants, ())
        types = [i.dtype.compute if p.constants == "values" else i.dtype for i in fixed]
        types += [i.dtype for i in rows]
        types += [n.output.dtype.compute for n in plan.problem.column_nodes]
        held = phased_pressure(plan, Loops(p.vector_width, 1))
        staged = p.chunks * sum(words(t, p.vector_width) for t in types)
        return replace(held, own=ROW_LOOP, staged=staged, flight=0)


def _orders(split: Split, p: InnerOuterParameters) -> dict[str, PlannedOrder]:
    """Return the summation orders of a segment's rows and of each column set."""
    along = along_rows_in_turns(split.bands.columns, p.vector_width, p.threads_x)
    known = {n.output.name: along for n in split.row_sums}
    for shape in finish_of(split, p.ranges).shapes:
        cut = split.bands.height.value if shape.ranges > p.ranges else 0
        down = in_ranges(p.range_rows, p.threads_y, shape.ranges, shape.threads_y, cut)
        known |= {n.output.name: down for n in split.sets[shape.column_set].nodes}
    names = [n.output.name for n in split.segment.nodes if is_sum(n)]
    sums = names_of_sums(split.segment)
    found = {name: known.get(name, known.get(sums.get(name, ""))) for name in names}
    return {name: order for name, order in found.items() if order is not None}


def partials_of(split: Split, ranges: int) -> dict[Node, Workspace]:
    """Return the partial sums of each column reduction: one row per range of rows."""
    taken = split.fusion.names
    found: dict[Node, Workspace] = {}
    for each in split.sets:
        for node, total in each.sums.items():
            name = fresh_name(taken, f"{node.output.name}_partials")
            size = split.bands.columns * ranges * split.bands.groups
            found[node] = Workspace(name, total.dtype, size)
    return found


def _ring(split: Split, p: InnerOuterParameters) -> tuple[Staged, ...]:
    """Return the rows that are copied asynchronously, with one slot per stage for each."""
    slots, rows = p.stages * p.threads * p.elements, work_of(split, p.vector_width).ring
    return staged_in_turn((i, slots * i.dtype.size) for i in rows) if p.stages else ()


def _finish(
    split: Split, parameters: InnerOuterParameters, partials: dict[Node, Workspace]
) -> StepKernel[FinishParameters]:
    chosen = finish_of(split, parameters.ranges)
    inputs: dict[Input, None] = {}
    outputs: list[Output] = []
    workspaces: list[Workspace] = []
    blocks = dim(0)
    for shape in chosen.shapes:
        each = split.sets[shape.column_set]
        sums = set(each.sums.values())
        inputs |= dict.fromkeys(i for i in each.finish.inputs if i.value not in sums)
        outputs += each.finish.outputs
        workspaces += [partials[n] for n in each.nodes]
        blocks = blocks + each.bands.groups * ceildiv(each.bands.columns, shape.threads_x)
    fusion = replace(split.fusion, inputs=tuple(inputs), outputs=tuple(outputs))
    return StepKernel(
        name=f"{fusion.name}_column_finish",
        template="column_finish",
        step=chosen,
        grid=(blocks, dim(1), dim(1)),
        block=(chosen.threads, 1, 1),
        arguments=tensor_arguments(fusion, workspaces),
        overlapped=parameters.grid_reduce == "overlap",
    )
