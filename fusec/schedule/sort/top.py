"""Top-k with small k: a block, or lanes of a warp, hold a row and sort the candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.index.access import Facts, access_class
from fusec.index.instances import Lowering
from fusec.ir.dim import ceildiv, dim
from fusec.ir.dtype import U32, U64
from fusec.ir.expression import Index, Var, delinearize, of_var
from fusec.ops.names import fresh_name
from fusec.schedule.blocks import check_access
from fusec.schedule.common import specialise, tensor_arguments
from fusec.schedule.orders import PlannedOrder, along_rows, of_all
from fusec.schedule.plan import Guard, Kernel, Plan, Workspace
from fusec.schedule.problem import vector_guards
from fusec.schedule.sort.parts import Parts, key_bits, runs_along
from fusec.schedule.space import COUNTS, POWERS, WIDTHS, Field, Parameters, power_above
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.traffic import traffic, work
from fusec.target import Target

THREADS = 128
"""Threads per block: with fewer, they agree on a threshold sooner, and more blocks fit on an SM."""
OWN = 32
"""Elements of a row that a thread keeps in registers."""
MOST_KEPT = 256
"""Most results of a row that a block selects."""
RESIDENT = 640
"""Threads per SM that have enough registers for their elements."""
BLOCKS = 5
"""Blocks per SM up to which a row is split over several."""
MIN_ROW = 1024
"""Least elements of a row that is given a block."""
MOST_SORTED = 16
"""Most elements that a thread sorts by comparing neighbours."""
MOST_ENTRIES = 1 << 16
"""Most entries of a row among which one block finally selects."""


@dataclass(frozen=True)
class TopParameters(Parameters):
    """The schedule parameters of a top-k: a row is read once, in vectors, by `splits` blocks."""

    vector_width: int
    threads: int
    lanes: int
    items: int
    buffer: int
    splits: int
    wide_index: bool
    free: ClassVar = (
        Field("vector_width", WIDTHS[:4], "elements per load and store of a thread"),
        Field("threads", POWERS[5:], "threads of a block"),
        Field("lanes", (0, 4, 8, 16, 32), "threads of a warp that share a row; 0: a block per row"),
        Field("items", POWERS[:6], "vectors that a thread holds at a time"),
        Field(
            "buffer", (512, 1024, 2048, 4096), "entries that a block collects before it sorts them"
        ),
        Field("splits", COUNTS, "blocks that share a row"),
    )


def bind(parts: Parts, width: int) -> tuple[Mapping[Var, Index], tuple[Var, Var]]:
    """Return the operand's axes in loop variables, and the variables: chunk and lane."""
    length = parts.node.inputs[0].shape[parts.axis]
    chunk, lane = Var("chunk", ceildiv(length, width)), Var("v", dim(width))
    along = parts.operand.axes[parts.axis]
    kept = [a for a in parts.operand.axes if a != along]
    at_row = delinearize(of_var(parts.row), (a.extent for a in kept))
    column = of_var(chunk) * width + of_var(lane)
    return {along: column, **dict(zip(kept, at_row, strict=True))}, (chunk, lane)


def width_of(parts: Parts) -> tuple[int, tuple[Guard, ...]]:
    """Return the widest vector with which all loads are whole accesses, and the guards it needs."""
    size, facts = parts.node.inputs[0].dtype.size, Facts(parts.hints)
    for width in (8, 4, 2):
        if width * size > 16 or parts.length % width:
            continue
        binding, (_, lane) = bind(parts, width)
        lowering = Lowering(parts.before, parts.operand, binding)
        lowering.at_home(parts.node.inputs[0])
        kinds = [
            access_class(i.address, i.conditions, lane, width, facts)
            for i in lowering.made.values()
            if i.kind == "load" and i.address is not None
        ]
        if "scalar" not in kinds:
            return width, vector_guards(facts)
    return 1, vector_guards(facts)


def check_reduction(parts: Parts) -> Refusal | None:
    """Return why rows that are also reduced have no kernel, or None."""
    for fusion, domain in ((parts.before, parts.operand), (parts.after, parts.results)):
        along = frozenset({domain.axes[parts.axis]})
        for node in fusion.nodes:
            if node.op.family == "reduction" and domain.reduced.get(node) != along:
                return Refusal(
                    "reduction_axes", f"`{node.op.name}` reduces other axes than the sort"
                )
    if key_bits(parts.node.inputs[0].dtype) > 32 or _lanes(parts, width_of(parts)[0]) is None:
        return Refusal("lanes", "the rows do not fit in the registers of a warp")
    return None


def check_top(parts: Parts, p: TopParameters) -> Refusal | None:
    """Return the rule that the parameters violate, or None if they are legal."""
    own = p.items * p.vector_width
    if p.lanes:
        if p.lanes < parts.keep:
            return Refusal("lanes", f"more threads than {parts.keep} results are needed")
        if p.lanes * own < parts.length:
            return Refusal("items", f"{p.lanes} threads cannot hold {parts.length} elements")
        if p.splits > 1:
            return Refusal("splits", "a row must fit in the lanes of a warp")
        if own > MOST_SORTED:
            return Refusal("items", f"a thread sorts at most {MOST_SORTED} elements")
    else:
        if parts.reduces:
            return Refusal("lanes", "a fused sum needs all of a row in the lanes of a warp")
        if p.threads < parts.keep:
            return Refusal("block", f"a thread contributes at most one of the {parts.keep} results")
        if p.buffer < parts.keep + p.threads:
            because = (
                f"a buffer of {p.buffer} entries is too small for {parts.keep} results and one "
                "per thread"
            )
            return Refusal("buffer", because)
        if own > 2 * OWN:
            return Refusal("items", f"a thread holds at most {2 * OWN} elements")
    return check_access(p.vector_width, width_of(parts)[0])


def default_top_parameters(parts: Parts, target: Target) -> TopParameters | None:
    """Return the parameters, or None if sorting whole rows is as good."""
    if parts.keep > MOST_KEPT or key_bits(parts.node.inputs[0].dtype) > 32:
        return None
    width, _ = width_of(parts)
    if parts.reduces or parts.length < max(MIN_ROW, 4 * parts.keep):
        return _lanes(parts, width)
    rows = max(1, parts.rows.evaluate(parts.fusion.hints))
    threads = max(THREADS, power_above(parts.keep))
    splits = min(BLOCKS * target.sms // rows, parts.length // (threads * OWN))
    splits = max(1, min(splits, MOST_ENTRIES // parts.keep))
    tile = threads * OWN
    part = -(-parts.length // splits)
    splits = -(-parts.length // (-(-part // tile) * tile))  # whole tiles
    items = max(1, min(OWN // width, power_above(-(-part // (threads * width)))))
    return TopParameters(width, threads, 0, items, 2048, splits, parts.wide)


def _lanes(parts: Parts, width: int) -> TopParameters | None:
    """Return the parameters for rows shared by the lanes of a warp, or None for long ones."""
    for lanes in (4, 8, 16, 32):
        items = power_above(-(-parts.length // (lanes * width)))
        few = 8 if lanes < 32 else MOST_SORTED
        if parts.keep <= lanes and items * width <= few:
            return TopParameters(width, 128, lanes, items, 512, 1, parts.wide)
    return None


def top_estimate(parts: Parts, p: TopParameters, target: Target) -> Estimate:
    """Return the estimate: the inputs once, and the instructions for keys and sorting."""
    flops, sfu = work(parts.before)
    rows = parts.rows.evaluate(parts.fusion.hints)
    own = p.items * p.vector_width
    each = 10 * parts.length + 4 * p.threads * p.splits
    if p.lanes:
        each = p.lanes * (5 * own * (own - 1) // 2 + parts.keep * (15 + 2 * own) + 20)
    return Estimate(
        bytes=traffic(parts.segment),
        workspace_bytes=16 * rows * p.splits * parts.keep if p.splits > 1 else 0,
        flops=flops + rows * each,
        sfu=sfu,
        efficiency=target.reach("topk", "vector" if runs_along(parts) else "strided"),
        ctas=max(1, rows * p.splits if not p.lanes else rows * p.lanes // p.threads),
    )


def top_workspaces(parts: Parts, p: TopParameters) -> tuple[Workspace, ...]:
    """Return the workspaces: the blocks' candidates, and the counters of finished blocks."""
    if p.splits == 1:
        return ()
    entries, taken = parts.rows * (p.splits * parts.keep), parts.fusion.names
    return (
        Workspace(fresh_name(taken, "entries"), U64, entries),
        Workspace(fresh_name(taken, "arrived"), U32, parts.rows, "zeroed once"),
    )


def top_plan(parts: Parts, p: TopParameters) -> Plan[Parts, TopParameters]:
    """Return a plan of one kernel."""
    workspaces = top_workspaces(parts, p)
    blocks = ceildiv(parts.rows * p.lanes, p.threads) if p.lanes else parts.rows * p.splits
    kernel = Kernel(
        name=f"{parts.fusion.name}_topk",
        template="topk_lanes" if p.lanes else "topk",
        grid=(blocks, dim(1), dim(1)),
        block=(p.threads, 1, 1),
        arguments=tensor_arguments(parts.fusion, workspaces),
        least_blocks=0 if p.lanes else max(1, RESIDENT // p.threads),
    )
    fusion, _ = specialise(parts.segment, (d.name for d in parts.fusion.dims))
    guards = (*parts.index[1], *width_of(parts)[1])
    about = fusion, (kernel,), p, workspaces, guards, parts.specialised
    return Plan("sort", *about, problem=parts, orders=_orders(parts, p))


def _orders(parts: Parts, p: TopParameters) -> dict[str, PlannedOrder]:
    """Return the orders of sums over the rows, and over their results, that lanes share."""
    if not p.lanes:
        return {}
    before = along_rows(dim(parts.length), p.items * p.vector_width, p.lanes)
    after = along_rows(dim(parts.keep), 1, p.lanes)
    return {**of_all(parts.before, before), **of_all(parts.after, after)}
