"""The view of the template of attention's backward."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.attention.backward.choice import WalkKernel
from fusec.schedule.attention.backward.family import BackwardPlan
from fusec.schedule.attention.kernel.backward import Context, WalkNodes, context_of, nodes_of


@dataclass(frozen=True, kw_only=True)
class WalkView(KernelView, WalkNodes):
    """A pass over tiles of attention's backward."""

    index_type: Type


def view(plan: BackwardPlan, kernel: WalkKernel) -> WalkView:
    """Return the view of such a kernel."""
    context = context_of(plan, kernel)
    nodes, names = nodes_of(context), context.frame.names
    return WalkView(
        **head(plan, kernel, nodes, names),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(context),
        index_type=index_type(wide=context.frame.wide),
    )


def _sentence(context: Context) -> str:
    backward, p, of_keys = context.backward, context.parameters, context.kernel.walk.of_keys
    batch = "" if backward.batches == 1 else f"{backward.batches} times "
    own, others = (backward.n, backward.m) if of_keys else (backward.m, backward.n)
    names = ("keys", "queries") if of_keys else ("queries", "keys")
    groups = "one warpgroup" if p.warpgroups == 1 else f"{p.warpgroups} warpgroups"
    return (
        f"Schedule: {batch}{own} {names[0]} in tiles of {p.rows}, looping over {others} {names[1]} "
        f"in tiles of {p.others(of_keys=of_keys)}, one CTA per SM over all tiles, {groups}."
    )
