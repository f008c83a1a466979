"""The statements of the finish kernels of column sums."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Instance, instances_under
from fusec.ir.graph import Value
from fusec.kernel.ctext import compute_type, identifier
from fusec.kernel.lowering.accumulators import accumulator_type, combiner, update
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.names import Names, parameter_names
from fusec.kernel.nodes import (
    I64,
    Binary,
    Cast,
    Declare,
    Element,
    Expression,
    Let,
    Name,
    Statement,
    Static,
    call,
)
from fusec.schedule.plan import StepKernel
from fusec.schedule.rows.inner_outer_persistent.choice import (
    FinishParameters,
    FinishShape,
    InnerOuterParameters,
)
from fusec.schedule.rows.inner_outer_persistent.family import InnerOuterPlan, partials_of
from fusec.schedule.rows.inner_outer_persistent.split import ColumnSet, Split


@dataclass(frozen=True)
class Total:
    """A column sum.

    start: declares a thread's part; take: adds a partial; sum: declares the total of all parts.
    """

    start: Statement
    take: Statement
    sum: Statement


@dataclass(frozen=True)
class FinishSet:
    """The finish of one column set.

    purpose: which sums; blocks: its blocks, `tiles` for each group; first_range: a partial row, if
    there is one group; starts, takes, sums: lines of its sums; lines: once per column, the
    consumers of the sums.
    """

    purpose: str
    threads_x: int
    threads_y: int
    ranges: int
    groups: int
    tiles: int
    blocks: int
    first_range: Expression
    starts: tuple[Statement, ...]
    takes: tuple[Statement, ...]
    sums: tuple[Statement, ...]
    lines: tuple[Statement, ...]


@dataclass(frozen=True, kw_only=True)
class FinishNodes:
    """Columns by partial rows, set by set."""

    sets: tuple[FinishSet, ...]


def nodes_of(plan: InnerOuterPlan, kernel: StepKernel[FinishParameters]) -> FinishNodes:
    """Return the statements of the finish of all column sets."""
    split, main, names = plan.problem, plan.parameters, parameter_names(kernel.argument_names)
    return FinishNodes(
        sets=tuple(_finish_set(split, main, shape, names) for shape in kernel.step.shapes)
    )


def _finish_set(
    split: Split, main: InnerOuterParameters, shape: FinishShape, names: Names
) -> FinishSet:
    each = split.sets[shape.column_set]
    bands = each.bands
    _, chunk, _ = bands.variables(1)
    lowering = each.lowering(split.domain)
    emitter = Emitter(
        (
            Scope("kernel", frozenset({bands.group}), per_phase=False),
            Scope("column", frozenset({chunk})),
        ),
        names,
        Facts(split.fusion.hints),
        aliases={chunk: Alias("column")},
        written=frozenset(n for s in split.sets for n in s.finish.effects.overwritten),
        wide=main.wide_index,
        symbols=named(kColumns=bands.columns),
        stored_under=Binary(">=", Name("column_of_thread"), Name("kColumns")),
    )
    plans = plan_stores(lowering, each.finish.outputs, emitter.store_kind)
    roots = [p.instance for p in plans]
    read: dict[Value | None, list[Instance]] = {}
    for instance in instances_under(roots):
        read.setdefault(instance.value, []).append(instance)
    totals = _totals(split, main, each, emitter, read)
    emitter.count(roots)
    for store in plans:
        emit_store(emitter, store, 0)
    groups, own = bands.groups.value, Name("range")
    axes = ", ".join(a.name for a in bands.inner)
    tiles = -(-bands.columns.value // shape.threads_x)
    return FinishSet(
        purpose=f"The sums over {axes}{' of each group' if groups > 1 else ''}.",
        threads_x=shape.threads_x,
        threads_y=shape.threads_y,
        ranges=shape.ranges,
        groups=groups,
        tiles=tiles,
        blocks=groups * tiles,
        first_range=Cast(I64, own) if main.wide_index else own,
        starts=tuple(t.start for t in totals),
        takes=tuple(t.take for t in totals),
        sums=tuple(t.sum for t in totals),
        lines=(*emitter.take(0, "kernel"), *emitter.take(0, "column")),
    )


def _totals(
    split: Split,
    main: InnerOuterParameters,
    each: ColumnSet,
    emitter: Emitter,
    read: dict[Value | None, list[Instance]],
) -> tuple[Total, ...]:
    """Return the sums that have users, and define them in the emitter.

    A sum is read only at its own column, by some users under conditions: it is available without
    them.
    """
    workspaces = partials_of(split, main.ranges)
    totals: list[Total] = []
    for node in each.nodes:
        value = each.sums[node]
        if value not in read:
            continue
        dtype = accumulator_type(node)
        name = emitter.names.fresh(value.name)
        part = emitter.names.fresh(f"{value.name}_part", "part")
        partial = Element(Name(identifier(workspaces[node].name)), Name("place"))
        take = update(node.op, Name(part), partial, dtype)
        kind, combine = compute_type(dtype), combiner(node.op, dtype)
        about = combine, "kThreadsX", "kThreadsY"
        whole = call("fusec::block_reduce_strided", part, about=about)
        start = Declare(kind, part, (), Static(combine, "identity"))
        totals.append(Total(start, take, Let(kind, name, whole)))
        emitter.given.update(dict.fromkeys(read[value], Name(name)))
    return tuple(totals)
