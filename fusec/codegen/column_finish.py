"""The view of the column_finish template."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.ctext import Text, compute_type
from fusec.codegen.emit import Alias, Emitter, Scope
from fusec.codegen.accumulators import accumulator_type, combiner, update
from fusec.codegen.views import (
    KernelView,
    emit_store,
    equations,
    head,
    parameter_names,
    store_plans,
)
from fusec.index.access import Facts
from fusec.index.instances import Lowering
from fusec.ir.graph import Fusion
from fusec.schedule.inner_outer_persistent import partials_of
from fusec.schedule.inner_outer_persistent_choice import FinishParameters, InnerOuterParameters
from fusec.schedule.inner_outer_persistent_split import ColumnSet, Split, instances_under
from fusec.schedule.plan import Kernel, KernelPlan

@dataclass(frozen=True)
class Total:
    """A column sum: its name, that of a thread's part, type and combiner in C, how a partial is taken."""

    name: str
    part: str
    type: str
    combiner: str
    take: str


@dataclass(frozen=True, kw_only=True)
class FinishView(KernelView):
    """Columns by partial rows; then, once per column, what follows from the sums."""

    index_type: str
    threads_x: int
    threads_y: int
    columns: int
    groups: int
    ranges: int
    tiles: int
    totals: tuple[Total, ...]
    kernel: tuple[str, ...]
    lines: tuple[str, ...]


def finish_view(plan: KernelPlan, kernel: Kernel, split: Split) -> FinishView:
    """Return the view of the finish of a column set."""
    main, chosen = plan.parameters, kernel.parameters
    assert isinstance(main, InnerOuterParameters)
    assert isinstance(chosen, FinishParameters)
    each = split.sets[chosen.column_set]
    bands = each.bands
    _, chunk, _ = bands.variables(1)
    lowering: Lowering = each.lowering(split.domain)
    names = parameter_names(kernel)
    emitter = Emitter(
        (
            Scope("kernel", frozenset({bands.group}), per_phase=False),
            Scope("column", frozenset({chunk})),
        ),
        names,
        Facts(split.whole.hints),
        aliases={chunk: Alias("column")},
        written=frozenset(o.alias for o in each.finish.outputs if o.alias is not None),
        wide=main.wide_index,
    )
    plans = store_plans(lowering, each.finish.outputs)
    roots = [p.instance for p in plans]
    sums = {
        i.value: i for i in instances_under(roots) if i.value in set(each.sums.values())
    }
    totals: list[Total] = []
    workspaces = partials_of(split, main.ranges)
    for node, value in each.sums.items():
        if value not in sums:
            continue  # nothing follows from this sum
        dtype = accumulator_type(node)
        name = names.fresh(value.name)
        part = names.fresh(f"{value.name}_part", "part")
        partial = Text(f"{workspaces[node].name}[place]")
        take = update(node.op.name, part, partial, dtype)
        kind = combiner(node.op.name, dtype)
        totals.append(Total(name, part, compute_type(dtype), kind, take))
        emitter.given[sums[value]] = Text(name)
    emitter.count(roots)
    for store in plans:
        emit_store(emitter, store, 0)
    return FinishView(
        **{**head(plan, kernel), "equations": equations(_shown(each))},  # pyright: ignore[reportArgumentType]
        schedule=f"Schedule: {chosen.threads_x} columns per block, {chosen.threads_y} partial rows side "
        "by side, added in a fixed order.",
        index_type="fusec::i64" if main.wide_index else "int",
        threads_x=chosen.threads_x,
        threads_y=chosen.threads_y,
        columns=bands.columns.value,
        groups=bands.groups.value,
        ranges=chosen.ranges,
        tiles=-(-bands.columns.value // chosen.threads_x),
        totals=tuple(totals),
        kernel=emitter.take(0, "kernel"),
        lines=emitter.take(0, "column"),
    )


def _shown(each: ColumnSet) -> Fusion:
    """Return the set's reductions and what follows from them, for the banner."""
    results = {n.output for n in each.nodes}
    rest = [n for n in each.finish.nodes if n.output not in results]
    return each.finish.with_nodes([*each.nodes, *rest])
