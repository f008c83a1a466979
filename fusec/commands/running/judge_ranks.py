"""Expected values and errors of outputs that ranks have computed together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from fusec.hostir.instructions import Collective
from fusec.ops.communication import communicates
from fusec.run.transports.carriers import NCCL

if TYPE_CHECKING:
    from fusec.driver import Compilation
    from fusec.ir.graph import Fusion
    from fusec.reference.errors.nodes import Model
    from fusec.run.transports.protocol import Exchange

Names = Mapping[str, str]


def expected_of_ranks(
    program: Compilation, local: Model, nccl: Collection[str]
) -> tuple[Fusion, Model]:
    """Return the fusion that outputs are compared with, and the model of their errors.

    local: the model of one rank's program. nccl: the targets of the collectives that NCCL reduces.
    """
    from fusec.lowering import division
    from fusec.shard.partials import with_partials

    divided = division(program.original, program.options).partition
    spelled = with_partials(program.original, divided)
    added = added_on_the_way(program, nccl)
    hops = (name for name in spelled.combined if spelled.local[name] in added)
    return spelled.fusion, renamed(local, spelled.local, frozenset(hops))


def renamed(model: Model, local: Names, hops: frozenset[str]) -> Model:
    """Return a rank's model with the names of the whole fusion; local: the rank's names."""
    from fusec.reference.errors.nodes import Model

    def named(names: frozenset[str]) -> frozenset[str]:
        return frozenset(name for name, own in local.items() if own in names)

    return Model(
        {name: model.orders[own] for name, own in local.items() if own in model.orders},
        approximated=named(model.approximated),
        inside=named(model.inside),
        early={name: model.early[own] for name, own in local.items() if own in model.early},
        unrounded=named(model.unrounded),
        hops=hops,
        ranks=True,
    )


def added_by_nccl(carried: Iterable[tuple[Exchange, str]]) -> frozenset[str]:
    """Return the targets of the collectives of a run that NCCL reduces, rounding after each rank.

    carried: every collective with the name of its transport. Pushed sums are rounded once.
    """
    return frozenset(
        exchange.target
        for exchange, carrier in carried
        if isinstance(exchange, Collective) and exchange.reduction and carrier == NCCL
    )


def added_on_the_way(program: Compilation, nccl: Collection[str]) -> frozenset[str]:
    """Return the names of the sums and products that NCCL computes, given its targets.

    A copy may have the name, if the collective cannot write directly into the result.
    """
    nodes = [node for segment in program.segmented.segments for node in segment.nodes]
    producer = {value.name: node for node in nodes for value in node.outputs}
    names = (n.output.name for n in nodes if communicates(n) and "reduction" in n.attributes)
    found = {name for name in names if name in nccl}
    copies = (
        name for name, node in producer.items()
        if node.op.family == "movement" and any(v.name in found for v in node.inputs)
    )  # fmt: skip
    return frozenset((*found, *copies))
