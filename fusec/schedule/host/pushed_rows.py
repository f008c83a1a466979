"""Row kernels that sum their rows over ranks themselves, instead of a preceding all-reduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import dim, minimum
from fusec.ir.expression import of_var
from fusec.ir.graph import Node, Value
from fusec.ops.communication import ALL_REDUCE
from fusec.ops.names import fresh_name
from fusec.schedule.host.communication import bytes_sent
from fusec.schedule.host.pushed_sums import (
    MOST_BLOCKS,
    PUSHED_ROWS,
    PUSHED_SLICES,
    RESIDENT_THREADS,
    VECTOR,
    most_turns,
    pushes_rows,
)
from fusec.schedule.plan import KernelPlan, MailboxArgument, PushedKernel, TensorArgument
from fusec.schedule.rows.domain import PhasedPlan, Rows
from fusec.schedule.rows.inner_persistent.choice import InnerPersistentParameters
from fusec.schedule.rows.problem import RowsProblem
from fusec.segment.segmented import Segment, SegmentedFusion, tensor_bytes
from fusec.target import Target


@dataclass(frozen=True)
class RowsTime:
    """Predicted seconds of a kernel that sums rows over ranks, and of all-reduce plus kernel."""

    pushed: float
    separate: float


def with_pushed_rows(
    segmented: SegmentedFusion, plans: Sequence[KernelPlan], target: Target, saved: float
) -> tuple[KernelPlan, ...]:
    """Return plans, with an extra kernel that sums its rows over ranks where that is faster.

    saved: the least fraction of the separate time that it must save.
    """
    found = list(plans)
    for before, number in pairs_of(segmented):
        kernel = pushed_kernel(segmented.segments[before], plans[number], target)
        if kernel is None:
            continue
        times = rows_time(segmented, before, number, kernel, target)
        if times is not None and times.pushed <= (1 - saved) * times.separate:
            found[number] = replace(found[number], kernels=(*found[number].kernels, kernel))
    return tuple(found)


def pairs_of(segmented: SegmentedFusion) -> Iterator[tuple[int, int]]:
    """Yield the indices of all-reduces, each with its sum's only reader, the segment after it."""
    final = {o.value for o in segmented.fusion.outputs}
    for number, (first, second) in enumerate(
        zip(segmented.segments, segmented.segments[1:], strict=False)
    ):
        node = _all_reduce(first)
        if node is None or node.output in final or second.iterations != 1 or first.iterations != 1:
            continue
        if [s for s in segmented.segments if _reads(s, node.output)] == [second]:
            yield number, number + 1


def pushed_kernel(exchange: Segment, plan: KernelPlan, target: Target) -> PushedKernel | None:
    """Return a plan's kernel with rows summed over ranks, or None if it reads no such rows."""
    node = exchange.nodes[0]
    total, ranks = node.output, node.attributes["ranks"]
    rows = _whole_rows(plan, total)
    if rows is None:
        return None
    (kernel,) = plan.kernels
    threads = kernel.block[0]
    columns = rows.columns.value
    size = columns * total.dtype.size
    if size % VECTOR or size // VECTOR < ranks or threads < ranks:
        return None
    if not pushes_rows(node.attributes["reduction"], total.dtype, ranks):
        return None
    per_sm = max(1, RESIDENT_THREADS // threads)
    blocks = min(MOST_BLOCKS, per_sm * target.sms)
    source = TensorArgument(node.inputs[0].name, total.dtype)
    others = [a for a in kernel.arguments if a.name not in (total.name, source.name)]
    taken = {a.name for a in kernel.arguments}
    if source.name in taken:
        return None
    return PushedKernel(
        name=f"{kernel.name}_pushed",
        template="inner_persistent_pushed",
        grid=(minimum(rows.rows, blocks), dim(1), dim(1)),
        block=kernel.block,
        arguments=(source, *others, MailboxArgument(fresh_name(taken, "mailboxes"))),
        least_blocks=per_sm,
        followed=kernel.followed,
        source=source.name,
        target=total.name,
        columns=columns,
        blocks=blocks,
    )


def rows_time(
    segmented: SegmentedFusion, before: int, number: int, kernel: PushedKernel, target: Target
) -> RowsTime | None:
    """Return the predicted seconds; None if there are too many rows for a kernel."""
    node, hints = segmented.segments[before].nodes[0], segmented.fusion.hints
    ranks, given = node.attributes["ranks"], tensor_bytes(node.output, hints)
    rows = given // (kernel.columns * node.output.dtype.size)
    turns = -(-rows // kernel.blocks)
    if not 0 < turns <= most_turns(given, ranks):
        return None
    times = segmented.times(target)
    link = target.links[PUSHED_ROWS]
    sent = bytes_sent(PUSHED_SLICES, ranks, given)
    exchange = link.latency + sent / (link.reach * target.link)
    # Blocks wait for all pushed rows, so no row is computed before the last one has arrived.
    return RowsTime(exchange + times[number], times[before] + times[number])


def _whole_rows(plan: KernelPlan, total: Value) -> Rows | None:
    """Return the rows that a kernel holds in registers, if it reads a tensor only as those."""
    if not isinstance(plan, PhasedPlan):
        return None
    phased = cast("PhasedPlan[object, object]", plan)
    p, problem = phased.parameters, phased.problem
    if not isinstance(p, InnerPersistentParameters) or not isinstance(problem, RowsProblem):
        return None
    if p.storage != "registers" or p.threads_y > 1 or p.tile_rows or p.shifted or p.wide_index:
        return None
    if plan.fusion.effects.overwritten or plan.workspaces or plan.views or len(plan.kernels) != 1:
        return None
    row, chunk, lane = map(of_var, plan.loops)
    columns = problem.rows.columns
    own = row * columns + chunk * p.vector_width + lane
    made = plan.lowering.made.values()
    loads = [i for i in made if i.kind == "load" and i.name == total.name]
    whole = columns.is_const and bool(loads) and all(i.address == own for i in loads)
    return problem.rows if whole else None


def _all_reduce(segment: Segment) -> Node | None:
    nodes = segment.nodes
    return nodes[0] if len(nodes) == 1 and nodes[0].op is ALL_REDUCE else None


def _reads(segment: Segment, value: Value) -> bool:
    return any(i.value.name == value.name for i in segment.fusion.inputs)
