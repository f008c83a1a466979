"""The view of the attention template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.attention.forward.choice import AttentionKernel, AttentionParameters
from fusec.schedule.attention.forward.family import AttentionPlan
from fusec.schedule.attention.forward.problem import Attention
from fusec.schedule.attention.kernel.forward import AttentionNodes, context_of, nodes_of


@dataclass(frozen=True, kw_only=True)
class AttentionView(KernelView, AttentionNodes):
    """An attention kernel."""

    index_type: Type


def view(plan: AttentionPlan, kernel: AttentionKernel) -> AttentionView:
    """Return the view of an attention kernel."""
    context = context_of(plan, kernel)
    nodes = nodes_of(context, kernel)
    return AttentionView(
        **head(plan, kernel, nodes, context.frame.names),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(context.attention, context.parameters),
        index_type=index_type(wide=context.frame.wide),
    )


def _sentence(attention: Attention, p: AttentionParameters) -> str:
    batch = "" if attention.batches == 1 else f"{attention.batches} times "
    groups = "one warpgroup" if p.warpgroups == 1 else f"{p.warpgroups} warpgroups"
    turns = " in ping-pong" if p.ping_pong else ""
    return (
        f"Schedule: {batch}{attention.m} queries in tiles of {p.rows}, {attention.n} keys in tiles "
        f"of {p.tile_keys}, one CTA per SM over all tiles, {groups}{turns}."
    )
