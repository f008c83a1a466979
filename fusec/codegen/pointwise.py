"""The view of the pointwise template."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusec.codegen.ctext import dim_text
from fusec.codegen.emit import Emitter
from fusec.codegen.nest import Alias, Scope, named
from fusec.codegen.parts import emit_stores, parts_of, without_second
from fusec.codegen.views import Body, KernelView, head, parameter_names, store_plans
from fusec.index.access import Facts
from fusec.index.domain import stored_once
from fusec.ir.dim import Dim, floordiv, product
from fusec.ir.expression import Var
from fusec.schedule.plan import Kernel
from fusec.schedule.pointwise import PointwisePlan
from fusec.schedule.pointwise_choice import PointwiseParameters, bind, lowered_flat


@dataclass(frozen=True, kw_only=True)
class PointwiseView(KernelView):
    """A loop nest over rows and vectors of columns (or vectors alone).

    rows, columns: extents as C text (rows is empty for a flat loop); chunks: vectors of a row;
    tail: the elements after the last whole vector of a flat loop, one per thread, or None.
    """

    index_type: str
    threads_x: int
    threads_y: int
    vector_width: int
    unroll: int
    rows: str
    chunks: str
    columns: str
    body: Body
    tail: Body | None


def view(plan: PointwisePlan, kernel: Kernel) -> PointwiseView:
    """Return the view of a pointwise kernel."""
    kernel = without_second(plan.fusion, kernel)
    parameters, domain = plan.parameters, plan.problem.domain
    outer = domain.axes[: parameters.break_point]
    columns = _columns(plan)
    width = parameters.vector_width
    # Of a flat loop no guard keeps the size: what is no multiple at any size has a tail.
    whole = bool(outer) or Facts.proven(columns, width)
    body = _body(plan, kernel, width)
    tail = None if whole else _body(plan, kernel, 1)
    if tail is not None and tail.kernel == body.kernel:
        tail = replace(tail, kernel=())  # what the loop has, by the same names
    chunks = floordiv(columns, width)
    return PointwiseView(
        **head(plan, kernel),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(parameters, bool(outer)),
        index_type="fusec::i64" if parameters.wide_index else "int",
        threads_x=parameters.threads_x,
        threads_y=parameters.threads_y,
        vector_width=width,
        unroll=parameters.unroll,
        rows=dim_text(product(a.extent for a in outer)).text if outer else "",
        chunks=dim_text(chunks).text,
        columns=dim_text(columns).text,
        body=body,
        tail=tail,
    )


def _columns(plan: PointwisePlan) -> Dim:
    return product(a.extent for a in plan.problem.domain.axes[plan.parameters.break_point :])


def _sentence(parameters: PointwiseParameters, rows: bool) -> str:
    access = (
        f"accesses of {parameters.vector_width} elements"
        if parameters.vector_width > 1
        else "single elements"
    )
    if rows:
        shape = f"{parameters.threads_y} x {parameters.threads_x} threads (rows x vectors)"
        each = f"{parameters.unroll} rows per thread"
        return f"Schedule: rows by vectors of columns, {shape}, {each}, {access}."
    each = f"{parameters.unroll} vectors per thread"
    return f"Schedule: one flat loop, {parameters.threads_x} threads, {each}, {access}."


def _body(plan: PointwisePlan, kernel: Kernel, width: int) -> Body:
    fusion, parameters, domain = plan.fusion, plan.parameters, plan.problem.domain
    binding, (row, chunk, lane) = bind(domain, parameters.break_point, width)
    lowering = lowered_flat(fusion, domain, parameters.break_point, width)
    flat = frozenset({chunk})
    scopes = (
        Scope("kernel", frozenset(), per_phase=False),
        Scope("row", frozenset({row}), per_phase=False),
        Scope("vector", flat),
        Scope("lane", frozenset({lane})),
    )
    if width == 1:
        # Var equality includes the extent; a width of 1 has one chunk per element and no lane.
        scopes = (
            *scopes[:2],
            Scope("vector", frozenset({Var("chunk", chunk.extent)})),
            Scope("lane", frozenset()),
        )
    emitter = Emitter(
        scopes,
        parameter_names(kernel),
        Facts(fusion.hints),
        lane=lane if width > 1 else None,
        width=width,
        aliases={chunk: Alias("column", width)},
        written=fusion.effects.overwritten,
        wide=parameters.wide_index,
        symbols=named(columns=_columns(plan)) if parameters.break_point else {},
        parts=parts_of(fusion),
    )
    once = {
        value: [replace(c, position=c.position.substitute(binding)) for c in points.values() if c]
        for value, points in stored_once(fusion, domain).items()
    }
    plans = tuple(
        replace(p, conditions=(*p.conditions, *once[p.output.value]))
        for p in store_plans(lowering, fusion.outputs)
    )
    emitter.count(p.instance for p in plans)
    emit_stores(emitter, plans, 0)
    return Body(emitter.take(0, "kernel"), emitter.take(0, "row"), emitter.statements(0))


__all__ = ["PointwiseView", "view"]
