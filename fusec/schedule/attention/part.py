"""The graph on the results of a GEMM in attention: of scores, of outputs, or of gradients."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.diagnostics import Unsupported
from fusec.index.domain import Domain, Refusal, find_domain
from fusec.index.instances import Lowering
from fusec.ir.dim import dim, product
from fusec.ir.expression import (
    Index,
    Var,
    contiguous_strides,
    delinearize,
    linearize,
    of_var,
)
from fusec.ir.graph import Fusion, Node, Value
from fusec.schedule.attention.masks import Axes
from fusec.schedule.matmul.epilogue import Epilogue, find_epilogue
from fusec.schedule.matmul.operands.operand import BATCH

ON_CHIP = ("pointwise", "movement", "factory", "scalar", "reduction")


@dataclass(frozen=True)
class Part:
    """A graph on the results of a GEMM: of scores, or of outputs.

    domain: over the batch axes, the query, and the last axis, which is the keys or the features of
    values.
    """

    epilogue: Epilogue
    domain: Domain

    def bind(self, width: int) -> tuple[Mapping[Var, Index], Var, Var]:
        """Return the axes in loop variables: batch, m, and column n = chunk * width + lane."""
        *batch, row, last = self.domain.axes
        chunks = last.extent.divide(width)
        assert chunks is not None
        chunk, lane = Var("chunk", chunks), Var("i", dim(width))
        extents = [a.extent for a in batch]
        number = of_var(Var(BATCH, product(extents)))
        binding = dict(zip(batch, delinearize(number, extents), strict=True))
        binding[row] = of_var(Var("m", row.extent))
        binding[last] = of_var(chunk) * width + of_var(lane)
        return binding, chunk, lane

    def axes(self, width: int) -> Axes:
        """Return the loop variables of a row and its columns."""
        _, chunk, lane = self.bind(width)
        return Axes(Var("m", self.domain.axes[-2].extent), chunk, lane, width)

    def lowering(self, width: int) -> Lowering:
        """Return the lowering in these loop variables."""
        return Lowering(self.epilogue.fusion, self.domain, self.bind(width)[0])


def dependents(fusion: Fusion, node: Node) -> set[Value]:
    """Return the values that depend on the results of a node."""
    found = set(node.outputs)
    for other in fusion.nodes:
        if found.intersection(other.inputs):
            found.update(other.outputs)
    return found


def find_part(fusion: Fusion, node: Node, *, reduces: bool = False) -> Part | Refusal:
    """Return the graph on the results of a GEMM, which must have no other use.

    reduces: whether it may contain reductions, as scores contain those of their softmax.
    """
    if not fusion.outputs:
        return Refusal("outputs", f"no output depends on `{node.output.name}`")
    epilogue = find_epilogue(fusion, node)
    if isinstance(epilogue, Refusal):
        return epilogue
    for other in epilogue.fusion.nodes:
        if other.op.family not in ON_CHIP:
            return Refusal("operation", f"`{other.op.name}` is not computed between the GEMMs")
        if other.op.family == "reduction" and not reduces:
            because = f"`{other.op.name}` reduces what follows `{node.output.name}`"
            return Refusal("operation", because)
    domain = find_domain(epilogue.fusion, epilogue.sums)
    if isinstance(domain, Refusal):
        return domain
    if len(domain.axes) < 2:
        return Refusal("domain", f"`{node.output.name}` is not a matrix")
    part = Part(epilogue, domain)
    return _read_elsewhere(part, node.output.name) or part


def _read_elsewhere(part: Part, name: str) -> Refusal | None:
    """Return why an output needs results of the GEMM, or of a reduction, at other positions."""
    lowering, sums = part.lowering(1), part.epilogue.sums
    at = tuple(of_var(a).substitute(lowering.binding) for a in part.domain.axes)
    home = linearize(at, contiguous_strides(sums.shape))
    for output in part.epilogue.fusion.outputs:
        try:
            lowering.at_home(output.value)
        except Unsupported as error:
            return Refusal("outputs", error.diagnostic.message)
        loads = (i for i in lowering.made.values() if i.kind == "load" and i.value is sums)
        if any(i.address != home for i in loads):
            because = f"`{output.value.name}` reads several elements of `{name}`"
            return Refusal("outputs", because)
    return None
