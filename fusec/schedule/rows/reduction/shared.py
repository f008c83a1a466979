"""How blocks combine the results that they share: legality, order, and workspaces."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.ir.dtype import U32, U64, DType
from fusec.ir.graph import Node
from fusec.ir.roles import Combine
from fusec.ops.names import fresh_name
from fusec.schedule.grid_methods import (
    REDUCTION_METHODS,
    CombineOrder,
    GridMethod,
    HalfPartials,
)
from fusec.schedule.orders import PlannedOrder, along_rows, down_columns, serial
from fusec.schedule.plan import Workspace
from fusec.schedule.registers import partial_words
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.rows.reduction.choice import FIRST_METHOD, ReductionParameters
from fusec.segment.protocol import Refusal
from fusec.target import Target

BULK_BYTES = 16
"""Alignment of the addresses and sizes of bulk copies."""


def check_method(problem: RowsProblem, p: ReductionParameters, target: Target) -> Refusal | None:
    """Return why blocks cannot combine their partial results with the given method, or None."""
    rule, method = "grid_reduce", p.method
    if p.splits == 1 and p.grid_reduce != FIRST_METHOD:
        return Refusal(rule, "with one block per result there is nothing to combine")
    if p.grid_reduce == "tree" and p.fan >= p.splits:
        return Refusal(rule, f"{p.splits} blocks per result are too few for a tree")
    if target.capability < method.capability:
        return Refusal(rule, f"{target.arch} has no {method.instruction}")
    for node in reduced_nodes(problem):
        if not _combines(method, node):
            because = (
                f"{method.instruction} cannot combine {_kind(node)} of "
                f"{node.output.dtype.compute} (`{node.output.name}`); {_others(problem)} can"
            )
            return Refusal(rule, because)
    return _no_half_partials(problem, p) if p.workspace_dtype == "half" else None


def _combines(method: GridMethod, node: Node) -> bool:
    """Return whether a method combines the partial results of a reduction."""
    return method.combines(node.op.combine, node.output.dtype.compute)


def _kind(node: Node) -> str:
    """Return what a reduction combines, in the words of messages."""
    combine = node.op.combine
    return f"`{node.op.name}`" if combine is None else f"the {combine.value}"


def _others(problem: RowsProblem) -> str:
    """Return the methods that combine all reductions of a segment."""
    nodes = reduced_nodes(problem)
    found = [
        f"`{name}`"
        for name, method in REDUCTION_METHODS.items()
        if all(_combines(method, node) for node in nodes)
    ]
    return f"{', '.join(found[:-1])} and {found[-1]}"


def reduced_nodes(problem: RowsProblem) -> list[Node]:
    """Return the reductions of a segment."""
    return [n for n in problem.fusion.nodes if n in problem.domain.reduced]


def _no_half_partials(problem: RowsProblem, p: ReductionParameters) -> Refusal | None:
    """Return why partial results cannot be 16 bits wide, or None."""
    rule = "workspace_dtype"
    if p.splits == 1:
        return Refusal(rule, "with one block per result there are no partial results")
    if p.method.halves is HalfPartials.NEVER:
        having = [
            f"`{name}`"
            for name, method in REDUCTION_METHODS.items()
            if method.halves is not HalfPartials.NEVER
        ]
        because = f"`{p.grid_reduce}` has no 16-bit partial results; {' and '.join(having)} have"
        return Refusal(rule, because)
    for node in reduced_nodes(problem):
        dtype = node.output.dtype
        if node.op.combine is not Combine.SUM:
            return Refusal(rule, f"`{node.output.name}` is not a sum")
        if not (dtype.is_half and dtype.bits == 16):
            return Refusal(rule, f"`{node.output.name}` is {dtype}, not f16 or bf16")
    if len({node.output.dtype for node in reduced_nodes(problem)}) > 1:
        return Refusal(rule, "one kernel has both f16 and bf16 sums")
    return None


def order_of(problem: RowsProblem, p: ReductionParameters) -> PlannedOrder:
    """Return the order of a kernel's sums; with 16-bit partial results they all have one type."""
    rows, half = problem.rows, ""
    if p.workspace_dtype == "half":
        half = stored_dtype(reduced_nodes(problem)[0], p).name
    arrives = p.method.order is CombineOrder.ARRIVAL
    in_memory = None
    if p.shares_memory:
        kept = half if arrives else ""  # the last block to arrive has rounded its part, too
        in_memory = replace(serial(p.splits), rounded=half, kept=kept, arrives=arrives)
    if p.inner:
        about = rows.columns, p.vector_width, p.threads_x, p.splits, p.fan
        order = along_rows(*about, shifted=p.shifted, in_memory=in_memory)
    else:
        order = down_columns(rows.columns, p.threads_y, p.splits, p.fan, in_memory=in_memory)
    if half and arrives:
        *first, parts, last = order.stages
        order = replace(order, stages=(*first, replace(parts, kept=half), last))
    return order


def stored_dtype(node: Node, p: ReductionParameters) -> DType:
    """Return the type in which memory holds the words of a reduction's partial results.

    Maxima and minima that an instruction combines are unsigned integers in the order of the values.
    """
    dtype = node.output.dtype
    if p.workspace_dtype == "half":
        return dtype
    if p.in_bulk and node.op.combine is not None and node.op.combine.is_extremum:
        return {4: U32, 8: U64}[dtype.compute.size]
    return dtype.compute


def padded_results(dtype: DType, p: ReductionParameters) -> int:
    """Return how many results of a block one bulk copy combines: whole 16-byte units."""
    unit = BULK_BYTES // dtype.size
    return -(-p.block_results // unit) * unit


def workspaces_of(problem: RowsProblem, parameters: ReductionParameters) -> tuple[Workspace, ...]:
    """Return the buffers of partial results, one per reduction, and the arrival counters."""
    p, blocks = parameters, problem.blocks(parameters)
    results = problem.rows.rows if p.inner else blocks * p.block_results
    taken = problem.fusion.names
    made: list[Workspace] = []
    for node in reduced_nodes(problem):
        name, dtype = fresh_name(taken, f"{node.output.name}_partials"), stored_dtype(node, p)
        if p.in_bulk:
            made.append(Workspace(name, dtype, blocks * padded_results(dtype, p), "zeroed once"))
        else:
            words = results * (1 if p.shares_memory else p.splits) * partial_words(node)
            made.append(Workspace(name, dtype, words, "none"))
    groups = p.splits if p.fan < p.splits else 1
    counters = blocks * (2 if p.turns else groups)
    return (*made, Workspace(fresh_name(taken, "arrived"), U32, counters, "zeroed once"))
