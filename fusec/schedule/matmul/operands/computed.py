"""Rows of a GEMM's operand that are computed on their way to the tensor cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Unsupported
from fusec.index.access import Facts, access_class
from fusec.index.domain import Domain, Refusal, find_domain
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.dim import dim, product
from fusec.ir.expression import Var, delinearize, of_var
from fusec.ir.graph import Fusion, Node, Output, Value, needed_nodes

if TYPE_CHECKING:
    from fusec.schedule.matmul.problem import Product

WIDTH = 8
"""Neighbouring elements of a row that a thread computes: 16 bytes (matmul_computed.cuh)."""
MOST_ROWS = 32
"""Most rows that are computed: each tile of columns recomputes them."""
WRITERS = 3
"""Warps of `split_k` that compute rows; another one issues the copies of B."""
FAMILIES = ("pointwise", "movement", "factory", "scalar")


@dataclass(frozen=True)
class Computed:
    """The computation of the rows of A: a fusion whose only output is A, and its domain.

    maker: the node that a kernel would otherwise have to run before.
    """

    fusion: Fusion
    domain: Domain
    maker: Node

    @property
    def value(self) -> Value:
        """Return A."""
        return self.fusion.outputs[0].value

    @property
    def buffers(self) -> frozenset[Value]:
        """Return the buffers that the computation of A reads."""
        return frozenset(i.value for i in self.fusion.inputs)


def find_computed(fusion: Fusion, value: Value) -> Computed | Refusal | None:
    """Return the elementwise computation of a 16-bit operand with a small M, or None.

    A Refusal says that it has too many rows.
    """
    nodes = tuple(needed_nodes(fusion.nodes, (value,)))
    plain = all(n.op.family in FAMILIES and len(n.outputs) == 1 for n in nodes)
    if not nodes or not plain or not value.dtype.is_half or fusion.effects.updates:
        return None
    maker, rows = fusion.producer[value], product(value.shape[:-1]).evaluate(fusion.hints)
    if rows > MOST_ROWS:
        because = (
            f"`{value.name}` is computed by `{maker.op.name}`: with more than {MOST_ROWS} rows "
            f"(here {rows}) it is stored once instead of recomputed for each tile of columns"
        )
        return Refusal("operand", because)
    read = {v for n in nodes for v in n.inputs}
    inputs = tuple(i for i in fusion.inputs if i.value in read)
    whole = replace(fusion, inputs=inputs, nodes=nodes, outputs=(Output(value),), pins=())
    domain = find_domain(whole, value)
    if isinstance(domain, Refusal):
        return None
    return Computed(whole, domain, maker)


def computed_rows(problem: Product) -> tuple[Lowering, Instance, Var, Var]:
    """Return an element of A in loop variables: row m, column k = chunk * WIDTH + lane."""
    from fusec.schedule.matmul.staged import ROW

    computed = problem.computed
    assert computed is not None
    chunk, lane = Var("chunk", problem.k // WIDTH), Var("i", dim(WIDTH))
    extents = computed.value.shape[:-1]
    rows = delinearize(of_var(Var(ROW, problem.m)), extents)
    lowering = Lowering(computed.fusion, computed.domain, {})
    column = of_var(chunk) * WIDTH + of_var(lane)
    return lowering, lowering.at(computed.value, (*rows, column), ()), chunk, lane


def no_computing(problem: Product, facts: Facts) -> str:
    """Return why rows of A cannot be computed before the tensor cores, or an empty string."""
    computed = problem.computed
    if computed is None:
        return ""
    name = f"`{computed.value.name}` is computed by `{computed.maker.op.name}`"
    if problem.dtype != computed.value.dtype or problem.is_converted:
        return f"{name}, and the other operand has a different type"
    if not facts.multiple(problem.k, WIDTH):
        return f"{name}, whose {problem.k} columns are not a multiple of {WIDTH}"
    try:
        _, root, _, lane = computed_rows(problem)
    except Unsupported as error:
        return f"{name}: {error.diagnostic.message}"
    for each in instances_under([root]):
        if each.gathered or each.branches or each.conditions:
            return f"{name}, with element positions that depend on conditions or other elements"
        if each.kind != "load":
            continue
        assert each.address is not None
        if access_class(each.address, (), lane, WIDTH, facts) == "scalar":
            return (
                f"{name}, and `{each.name}` is not contiguous along K in chunks of {WIDTH} elements"
            )
    return ""
