"""The view of the inner_persistent_pushed template."""

from __future__ import annotations

from fusec.codegen.rows.inner_persistent import InnerPersistentView
from fusec.codegen.views import view_of
from fusec.dataclasses import dataclass, replace
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.facts import uses
from fusec.kernel.nodes import Statement, Type
from fusec.schedule.plan import Kernel, MailboxArgument, PushedKernel, TensorArgument
from fusec.schedule.rows.inner_persistent.family import InnerPersistentPlan
from fusec.schedule.rows.kernel.inner_persistent import nodes_of


@dataclass(frozen=True, kw_only=True)
class InnerPersistentPushedView(InnerPersistentView):
    """Rows of columns, in phases, of a sum over ranks.

    early: loads of a row into registers before its sum is complete. element: of the sum; of, total,
    mailboxes: C names of its operand, of the sum and of the last parameter.
    """

    early: tuple[Statement, ...]
    element: Type
    of: str
    total: str
    mailboxes: str


def view(plan: InnerPersistentPlan, kernel: Kernel) -> InnerPersistentPushedView:
    """Return the view of a row-persistent kernel that adds its rows over ranks."""
    assert isinstance(kernel, PushedKernel)
    p = plan.parameters
    source, (mailboxes,) = (
        next(a for a in kernel.arguments if a.name == kernel.source),
        [a for a in kernel.arguments if isinstance(a, MailboxArgument)],
    )
    assert isinstance(source, TensorArgument)
    total = replace(source, name=kernel.target)
    named = replace(kernel, arguments=(*kernel.arguments, total))
    nodes = nodes_of(plan, named, frozenset({kernel.target}))
    total_name = identifier(kernel.target)
    first, *others = nodes.phases
    early = tuple(s for s in first.loads if total_name not in uses([s]).names)
    late = replace(first, loads=tuple(s for s in first.loads if s not in early))
    nodes = replace(nodes, phases=(late, *others))
    return view_of(
        InnerPersistentPushedView,
        plan,
        kernel,
        nodes,
        f"{p.threads_x} threads per row, accesses of {p.vector_width} elements; rows "
        f"are added over ranks as they arrive, and stay in registers",
        columns=plan.problem.rows.columns.value,
        early=early,
        element=storage_type(source.dtype),
        of=identifier(kernel.source),
        total=total_name,
        mailboxes=identifier(mailboxes.name),
    )
