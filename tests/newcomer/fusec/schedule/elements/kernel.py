"""The statements of elements kernels."""

from __future__ import annotations

from fusec.schedule.elements.family import ElementsPlan

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Lowering
from fusec.ir.expression import Var, delinearize, of_var
from fusec.kernel.ctext import dim_text
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Scope
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import Expression, Statement
from fusec.schedule.plan import Kernel


@dataclass(frozen=True, kw_only=True)
class ElementsNodes:
    """count: the number of elements; setup: statements once per thread; body: for an element."""

    count: Expression
    setup: tuple[Statement, ...]
    body: tuple[Statement, ...]


def nodes_of(plan: ElementsPlan, kernel: Kernel) -> ElementsNodes:
    """Return the statements of a kernel."""
    fusion, domain = plan.fusion, plan.problem.domain
    element = Var("element", plan.problem.count)
    axes = delinearize(of_var(element), (a.extent for a in domain.axes))
    lowering = Lowering(fusion, domain, dict(zip(domain.axes, axes, strict=True)))
    scopes = (
        Scope("kernel", frozenset(), per_phase=False),
        Scope("element", frozenset({element})),
        Scope("lane", frozenset()),
    )
    emitter = Emitter(
        scopes,
        parameter_names(kernel.argument_names),
        Facts(fusion.hints),
        written=fusion.effects.overwritten,
        wide=plan.parameters.wide_index,
    )
    stores = plan_stores(lowering, fusion.outputs, emitter.store_kind)
    emitter.count(s.instance for s in stores)
    for store in stores:
        emit_store(emitter, store, 0)
    body = emitter.statements(0)
    return ElementsNodes(
        count=dim_text(plan.problem.count), setup=emitter.take(0, "kernel"), body=body
    )
