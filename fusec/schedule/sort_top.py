"""Top-k of few elements: a block gathers those that may be among them, and orders only these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fusec.index.access import Facts, access_class
from fusec.index.instances import Lowering
from fusec.ir.dim import ceildiv, dim
from fusec.ir.dtype import U32, U64
from fusec.ir.expression import Index, Var, delinearize, of_var
from fusec.schedule.blocks import access_trouble
from fusec.schedule.common import specialise, tensor_arguments
from fusec.schedule.plan import Guard, Kernel, Plan, Workspace
from fusec.schedule.problem import vector_guards
from fusec.schedule.sort_parts import Parts, free_name, key_bits, runs_along
from fusec.schedule.space import COUNTS, POWERS, WIDTHS, Field, Parameters
from fusec.segment.price import traffic, work
from fusec.segment.protocol import Estimate, Refusal
from fusec.target import Target

THREADS = 256
MIN_ROW = 1024
"""Elements of a row below which ordering all of it is as fast."""
MIN_PART = 16384
"""Elements of a row that are worth a block of their own."""


@dataclass(frozen=True)
class TopParameters(Parameters):
    """The choices of a top-k: a row is read twice, by vectors, and shared by `splits` blocks.

    buffer: entries that a block gathers before it orders them.
    """

    vector_width: int
    threads: int
    buffer: int
    splits: int
    wide_index: bool
    free: ClassVar = (
        Field("vector_width", WIDTHS[:4]),
        Field("threads", POWERS[5:]),
        Field("buffer", (512, 1024, 2048, 4096)),
        Field("splits", COUNTS),
    )


def bind(parts: Parts, width: int) -> tuple[Mapping[Var, Index], tuple[Var, Var]]:
    """Return the operand's axes in loop variables, and those: chunk and lane."""
    length = parts.node.inputs[0].shape[parts.axis]
    chunk, lane = Var("chunk", ceildiv(length, width)), Var("v", dim(width))
    along = parts.operand.axes[parts.axis]
    kept = [a for a in parts.operand.axes if a != along]
    at_row = delinearize(of_var(parts.row), (a.extent for a in kept))
    column = of_var(chunk) * width + of_var(lane)
    return {along: column, **dict(zip(kept, at_row, strict=True))}, (chunk, lane)


def width_of(parts: Parts) -> tuple[int, tuple[Guard, ...]]:
    """Return the widest vector of which all loads are whole accesses, and the guards it needs."""
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


def top_trouble(parts: Parts, p: TopParameters) -> Refusal | None:
    """Return the rule by which no kernel has some parameters, or None."""
    if p.threads < parts.keep:
        return Refusal("block", f"a thread brings at most one of the {parts.keep} results")
    if p.buffer < parts.keep + p.threads * p.vector_width:
        because = f"{p.buffer} entries hold no {parts.keep} results beside a vector of each thread"
        return Refusal("buffer", because)
    return access_trouble(p.vector_width, width_of(parts)[0])


def top_likeliest(parts: Parts, target: Target) -> TopParameters | None:
    """Return the parameters, or None where ordering whole rows is as good."""
    short = parts.length < max(MIN_ROW, 4 * parts.keep)
    if parts.keep > THREADS or short or key_bits(parts.node.inputs[0].dtype) > 32:
        return None
    width, _ = width_of(parts)
    rows = max(1, parts.rows.evaluate(parts.fusion.hints))
    splits = max(1, min(2 * target.sms // rows, parts.length // MIN_PART))
    return TopParameters(width, THREADS, max(2048, 2 * THREADS * width), splits, parts.wide)


def top_estimate(parts: Parts, p: TopParameters, target: Target) -> Estimate:
    """Return the price: the inputs from memory once, and once again from the cache."""
    flops, sfu = work(parts.before)
    rows = parts.rows.evaluate(parts.fusion.hints)
    return Estimate(
        bytes=traffic(parts.segment),
        workspace_bytes=16 * rows * p.splits * parts.keep if p.splits > 1 else 0,
        flops=2 * flops + 20 * rows * parts.length,
        sfu=2 * sfu,
        efficiency=target.reach("topk", "vector" if runs_along(parts) else "strided"),
        ctas=max(1, rows * p.splits),
    )


def top_workspaces(parts: Parts, p: TopParameters) -> tuple[Workspace, ...]:
    """Return the entries that blocks hand over, and the counters of those that have."""
    if p.splits == 1:
        return ()
    entries = parts.rows * (p.splits * parts.keep)
    return (
        Workspace(free_name("entries", parts.fusion), U64, entries),
        Workspace(free_name("arrived", parts.fusion), U32, parts.rows, "zeroed once"),
    )


def top_plan(parts: Parts, p: TopParameters) -> Plan[Parts, TopParameters]:
    """Return a plan of one kernel."""
    workspaces = top_workspaces(parts, p)
    kernel = Kernel(
        name=f"{parts.fusion.name}_topk",
        template="topk",
        grid=(parts.rows * p.splits, dim(1), dim(1)),
        block=(p.threads, 1, 1),
        arguments=tensor_arguments(parts.fusion, workspaces),
    )
    fusion, _ = specialise(parts.segment, (d.name for d in parts.fusion.dims))
    guards = (*parts.index[1], *width_of(parts)[1])
    return Plan("sort", fusion, (kernel,), p, workspaces, guards, parts.specialised, problem=parts)
