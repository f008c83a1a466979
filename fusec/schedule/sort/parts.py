"""A segment around a sort: the operand of the sort, and the consumers of its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Domain, find_domain
from fusec.index.instances import Lowering
from fusec.ir.dim import Dim, product
from fusec.ir.dtype import DType
from fusec.ir.expression import Index, Var, contiguous_strides, delinearize, of_var
from fusec.ir.graph import Fusion, Input, Node, Output, Value, needed_nodes
from fusec.schedule.common import dynamic_symbols, is_empty, specialise
from fusec.schedule.problem import Problem
from fusec.segment.protocol import Refusal


@dataclass(frozen=True, eq=False)
class Parts(Problem):
    """A segment with one node that sorts rows, and the operations before and after it.

    `before` computes the node's operand, `after` reads its results as inputs. axis: the dim of a
    row's elements; length: elements of a row; keep: those that are results.
    """

    node: Node
    axis: int
    before: Fusion
    operand: Domain
    after: Fusion
    results: Domain

    @property
    def length(self) -> int:
        """Return the number of elements of a row."""
        return self.node.inputs[0].shape[self.axis].value

    @property
    def keep(self) -> int:
        """Return the number of results of a row."""
        return self.node.output.shape[self.axis].value

    @property
    def rows(self) -> Dim:
        """Return the number of rows."""
        shape = self.node.inputs[0].shape
        return product(e for k, e in enumerate(shape) if k != self.axis)

    @property
    def reduces(self) -> bool:
        """Return whether rows, or their results, are reduced."""
        return any(n.op.family == "reduction" for n in (*self.before.nodes, *self.after.nodes))

    @property
    def row(self) -> Var:
        """Return the loop variable of rows."""
        return Var("row", self.rows)

    def at(self, place: Var) -> Lowering:
        """Return the lowering of the operand at a position of a row."""
        return Lowering(self.before, self.operand, self._bind(self.operand, place))

    def ordered(self, place: Var) -> Lowering:
        """Return the lowering of the consumers of results at a position of a row.

        The results vary with the position, even if rows have one element.
        """
        lowering = Lowering(self.after, self.results, self._bind(self.results, place))
        for result in read_results(self):
            found = lowering.at_home(result)
            made = replace(found, variables=found.variables | {place})
            lowering.made[(result, *lowering.home(result))] = made
        return lowering

    def _bind(self, domain: Domain, place: Var) -> Mapping[Var, Index]:
        along = domain.axes[self.axis]
        kept = [a for a in domain.axes if a != along]
        at_row = delinearize(of_var(self.row), (a.extent for a in kept))
        return {along: of_var(place), **dict(zip(kept, at_row, strict=True))}


def split(segment: Fusion, family: str) -> Parts | Refusal:
    """Return a segment around its one node of `family`, or why that is impossible."""
    nodes = [n for n in segment.nodes if n.op.family == family]
    if len(nodes) != 1:
        return Refusal("operations", f"expected one sort or top-k, found {len(nodes)}")
    if is_empty(segment):
        return Refusal("empty", "a tensor has no elements")
    axis: int = nodes[0].attributes["dim"]
    fixed = nodes[0].inputs[0].shape[axis].symbols | nodes[0].output.shape[axis].symbols
    fusion, _ = specialise(segment, dynamic_symbols(segment) - fixed)
    # The order of a row is known only after all of it is read: nothing is written in place.
    fusion = replace(fusion, outputs=tuple(replace(o, alias=None) for o in fusion.outputs))
    node = next(n for n in fusion.nodes if n.op.family == family)
    before = needed(fusion, (Output(node.inputs[0]),))
    operand = find_domain(before, node.inputs[0])
    others = tuple(n for n in fusion.nodes if n is not node)
    given = tuple(Input(v, contiguous_strides(v.shape)) for v in node.outputs)
    after = replace(fusion, inputs=(*fusion.inputs, *given), nodes=others)
    after = needed(after, fusion.outputs)
    results = find_domain(after, node.output, node.outputs)
    if isinstance(operand, Refusal):
        return operand
    if isinstance(results, Refusal):
        return results
    parts = Parts(segment, fusion, node, axis, before, operand, after, results)
    return _why_illegal(parts) or parts


def needed(fusion: Fusion, outputs: tuple[Output, ...]) -> Fusion:
    """Return the fusion of the nodes that some outputs depend on."""
    return fusion.with_nodes(needed_nodes(fusion.nodes, (o.value for o in outputs)), outputs)


def _why_illegal(parts: Parts) -> Refusal | None:
    """Return why the consumers cannot be computed where the results are, or None."""
    lowering = parts.ordered(Var("position", parts.node.output.shape[parts.axis]))
    for output in parts.after.outputs:
        lowering.at_home(output.value)
    for value in read_results(parts):
        home = lowering.home(value)
        if any(key[1:] != home for key in lowering.made if key[0] is value):
            return Refusal(
                "store_map", f"`{value.name}` is read at an index map other than its own"
            )
    return None


def read_results(parts: Parts) -> Iterable[Value]:
    """Return the results of the node that have users."""
    read = {v for n in parts.after.nodes for v in n.inputs}
    read |= {o.value for o in parts.after.outputs}
    return [v for v in parts.node.outputs if v in read]


def key_bits(dtype: DType) -> int:
    """Return the bits of the keys that sort values of a type; fp8 is sorted as f16."""
    return 16 if dtype.is_half else dtype.size * 8


def runs_along(parts: Parts) -> bool:
    """Return whether the operand's loads are contiguous along the rows."""
    column = Var("column", parts.node.inputs[0].shape[parts.axis])
    if of_var(column).is_const:
        return True
    lowering = parts.at(column)
    lowering.at_home(parts.node.inputs[0])
    loads = [i.address for i in lowering.made.values() if i.kind == "load" and i.address]
    steps = [a.coefficient(column) for a in loads]
    return all(s is not None and s in (0, 1) for s in steps)
