"""The elements of a GEMM's rows that its kernel computes."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.index.access import Facts
from fusec.ir.expression import Var
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope
from fusec.kernel.names import Names
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.kernel.names import COMPUTED, RESERVED
from fusec.schedule.matmul.kernel.records import ComputedNodes
from fusec.schedule.matmul.operands.computed import WIDTH, computed_rows
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.staged import ROW


def computed_nodes(
    problem: Product, p: MatmulParameters, facts: Facts, taken: Iterable[str]
) -> ComputedNodes | None:
    """Return the computation of A's elements, if they are computed; taken: names in use."""
    computed = problem.computed
    if computed is None:
        return None
    _, root, chunk, lane = computed_rows(problem)
    scopes = (
        Scope("row", frozenset({Var(ROW, problem.m)})),
        Scope("vector", frozenset({chunk})),
        Scope("lane", frozenset({lane})),
    )
    emitter = Emitter(
        scopes,
        Names([*taken, *RESERVED, *COMPUTED]),
        facts,
        lane=lane,
        width=WIDTH,
        aliases={chunk: Alias("k", WIDTH)},
        written=computed.fusion.effects.overwritten,
        wide=p.wide_index,
        width_name="fusec::kComputed",
    )
    emitter.count([root])
    value = emitter.to_storage(root, computed.value.dtype, 0)
    loads = [line for s in ("row", "vector") for line in emitter.take(0, s)]
    return ComputedNodes(computed.value.name, tuple(loads), emitter.take(0, "lane"), value)
