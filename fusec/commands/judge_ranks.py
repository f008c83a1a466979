"""What is expected of the outputs that ranks have computed together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fusec.ops.communication import communicates

if TYPE_CHECKING:
    from fusec.driver import Compilation
    from fusec.ir.graph import Fusion
    from fusec.reference.nodes import Model

Names = Mapping[str, str]


def expected_of_ranks(program: Compilation, local: Model, *, nccl: bool) -> tuple[Fusion, Model]:
    """Return the fusion that outputs are compared with, and the model of their errors.

    local: the model of one rank's program. nccl: whether NCCL carries exchanges that add numbers.
    """
    from fusec.lowering import division
    from fusec.shard.partials import with_partials

    divided = division(program.original, program.options).partition
    spelled = with_partials(program.original, divided)
    added = added_on_the_way(program) if nccl else frozenset[str]()
    hops = (name for name in spelled.combined if spelled.local[name] in added)
    return spelled.fusion, renamed(local, spelled.local, frozenset(hops))


def renamed(model: Model, local: Names, hops: frozenset[str]) -> Model:
    """Return a rank's model by the names of the whole fusion; local: what a rank calls them."""
    from fusec.reference.nodes import Model

    def named(names: frozenset[str]) -> frozenset[str]:
        return frozenset(name for name, own in local.items() if own in names)

    return Model(
        {name: model.orders[own] for name, own in local.items() if own in model.orders},
        approximated=named(model.approximated),
        inside=named(model.inside),
        early=named(model.early),
        unrounded=named(model.unrounded),
        hops=hops,
    )


def added_on_the_way(program: Compilation) -> frozenset[str]:
    """Return the names of the sums and products that exchanges take, each rank its own to the rest.

    A copy may have the name, where the exchange cannot write to the place of the result.
    """
    nodes = [node for segment in program.segmented.segments for node in segment.nodes]
    producer = {value.name: node for node in nodes for value in node.outputs}
    found = {n.output.name for n in nodes if communicates(n) and "reduction" in n.attributes}
    copies = (
        name for name, node in producer.items()
        if node.op.family == "movement" and any(v.name in found for v in node.inputs)
    )  # fmt: skip
    return frozenset((*found, *copies))
