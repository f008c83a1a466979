"""The views of the reduction templates."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.accumulators import Accumulator, accumulate
from fusec.codegen.ctext import dim_text, identifier
from fusec.codegen.emit import Emitter
from fusec.codegen.names import Names
from fusec.codegen.nest import Alias, Scope
from fusec.codegen.phases import Phase, emit_outputs, phase_of, reduction_roots
from fusec.codegen.views import KernelView, head, parameter_names, store_plans
from fusec.index.access import Facts
from fusec.index.instances import Lowering
from fusec.schedule.plan import Kernel
from fusec.schedule.reduction import ReductionParameters, ReductionPlan, bind_outer


@dataclass(frozen=True)
class Partial:
    """A reduction whose partial results pass through a workspace; name: the pointer to them."""

    part: Accumulator
    workspace: str
    name: str


@dataclass(frozen=True, kw_only=True)
class ReductionView(KernelView):
    """One sweep over the reduced axes, then the results.

    rows, columns: extents as C text, of the loop and of the vectors (inner: results x reduced,
    outer: reduced x results); sweep: the accumulation; results: what is computed and stored from
    the results; arrived: the counters of the blocks that have left their partial results.
    """

    index_type: str
    threads_x: int
    threads_y: int
    vector_width: int
    splits: int
    rows: str
    columns: str
    sweep: Phase
    results: Phase
    partials: tuple[Partial, ...]
    arrived: str


def view(plan: ReductionPlan, kernel: Kernel) -> ReductionView:
    """Return the view of a reduction kernel."""
    problem, parameters = plan.problem, plan.parameters
    rows = problem.rows
    if parameters.inner:
        sweep, results, accumulators, names = _inner(plan, kernel)
        extents = rows.rows, rows.columns
    else:
        sweep, results, accumulators, names = _outer(plan, kernel)
        extents = rows.columns, rows.rows
    partials = tuple(
        Partial(a, identifier(w.name), names.fresh(f"{a.name}_parts", "parts"))
        for w, a in zip(plan.workspaces, accumulators, strict=False)
    )
    return ReductionView(
        **head(plan, kernel),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(parameters),
        index_type="fusec::i64" if parameters.wide_index else "int",
        threads_x=parameters.threads_x,
        threads_y=parameters.threads_y,
        vector_width=parameters.vector_width,
        splits=parameters.splits,
        rows=dim_text(extents[0]).text,
        columns=dim_text(extents[1]).text,
        sweep=sweep,
        results=results,
        partials=partials,
        arrived=identifier(plan.workspaces[-1].name) if plan.workspaces else "",
    )


def _sentence(p: ReductionParameters) -> str:
    shared = f"; {p.splits} blocks share a result, the last one combines" if p.splits > 1 else ""
    if p.inner:
        return (
            f"Schedule: {p.threads_x} threads along each row, {p.threads_y} rows per block, "
            f"accesses of {p.vector_width} elements{shared}."
        )
    return (
        f"Schedule: {p.threads_x} vectors of {p.vector_width} columns by {p.threads_y} rows "
        f"at a time{shared}."
    )


Parts = tuple[Phase, Phase, tuple[Accumulator, ...], Names]


def _emitter(plan: ReductionPlan, kernel: Kernel, scopes: tuple[Scope, ...]) -> Emitter:
    return Emitter(
        scopes,
        parameter_names(kernel),
        Facts(plan.fusion.hints),
        written=frozenset(o.alias for o in plan.fusion.outputs if o.alias is not None),
        wide=plan.parameters.wide_index,
        guard="is_row" if plan.parameters.inner else "is_column",
    )


def _inner(plan: ReductionPlan, kernel: Kernel) -> Parts:
    """Return the phases of an inner reduction: results belong to rows."""
    width: int = plan.parameters.vector_width
    row, chunk, lane = plan.problem.rows.variables(width)
    lowering = Lowering(plan.fusion, plan.problem.domain, plan.problem.rows.bind(width))
    scopes = (
        Scope("kernel", frozenset(), per_phase=False),
        Scope("row", frozenset({row}), per_phase=False),
        Scope("vector", frozenset({chunk})),
        Scope("lane", frozenset({lane})),
    )
    emitter = _emitter(plan, kernel, scopes)
    emitter.lane, emitter.width = (lane if width > 1 else None), width
    emitter.aliases = {chunk: Alias("column", width)}
    return _emit(emitter, lowering, plan, frozenset({chunk, lane}), array=False)


def _outer(plan: ReductionPlan, kernel: Kernel) -> Parts:
    """Return the phases of an outer reduction: results belong to the lanes of kept columns."""
    width: int = plan.parameters.vector_width
    binding, (row, chunk, lane) = bind_outer(plan.problem.rows, width)
    lowering = Lowering(plan.fusion, plan.problem.domain, binding)
    scopes = (
        Scope("kernel", frozenset(), per_phase=False),
        Scope("column", frozenset({chunk}), per_phase=False),
        Scope("row", frozenset({row})),
        Scope("lane", frozenset({lane})),
    )
    emitter = _emitter(plan, kernel, scopes)
    emitter.lane, emitter.width = (lane if width > 1 else None), width
    emitter.aliases = {chunk: Alias("column", width)}
    return _emit(emitter, lowering, plan, frozenset({row, chunk, lane}), array=True)


def _emit(
    emitter: Emitter,
    lowering: Lowering,
    plan: ReductionPlan,
    elements: frozenset[object],
    *,
    array: bool,
) -> Parts:
    nodes = tuple(n for n in plan.fusion.nodes if n.op.family == "reduction")
    plans = store_plans(lowering, plan.fusion.outputs)
    emitter.count([*(p.instance for p in plans), *reduction_roots(lowering, nodes)])
    accumulators = tuple(accumulate(emitter, lowering, n, 0, array=array) for n in nodes)
    for number in (0, 1):
        due = tuple(p for p in plans if p.instance.depth == number)
        emit_outputs(emitter, due, number, elements)  # pyright: ignore[reportArgumentType]
    sweep = phase_of(emitter, 0, (), accumulators)
    results = phase_of(emitter, 1, (), ())
    return sweep, results, accumulators, emitter.names
