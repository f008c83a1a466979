"""The view of the template of decoding attention."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import identifier, index_type
from fusec.kernel.nodes import Type
from fusec.schedule.attention.decode.choice import DecodeKernel, DecodeParameters
from fusec.schedule.attention.decode.family import DecodePlan
from fusec.schedule.attention.decode.problem import Decode
from fusec.schedule.attention.kernel.decode import DecodeNodes, context_of, nodes_of


@dataclass(frozen=True, kw_only=True)
class AttentionDecodeView(KernelView, DecodeNodes):
    """A kernel of decoding attention.

    partials, arrived: the partial results of blocks that share queries, and how many have stored
    theirs; empty if none do.
    """

    index_type: Type
    partials: str
    arrived: str


def view(plan: DecodePlan, kernel: DecodeKernel) -> AttentionDecodeView:
    """Return the view of a kernel of a decoding attention."""
    context = context_of(plan, kernel)
    nodes, names = nodes_of(context, kernel), context.frame.names
    spaces = [identifier(names[w.name]) for w in plan.workspaces] or ["", ""]
    return AttentionDecodeView(
        **head(plan, kernel, nodes, names),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(context.decode, context.parameters),
        index_type=index_type(wide=context.frame.wide),
        partials=spaces[0],
        arrived=spaces[1],
    )


def _sentence(decode: Decode, p: DecodeParameters) -> str:
    each = f"{decode.rows} queries" if decode.rows > 1 else "one query"
    shared = f", which {p.splits} blocks share" if p.splits > 1 else ""
    return (
        f"Schedule: {decode.batches} times {each}{shared}, {decode.graph.n} keys in tiles of "
        f"{p.tile_keys}, {p.warps} warps with {p.stages} stages each."
    )
