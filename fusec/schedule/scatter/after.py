"""Elementwise operations on a scattered tensor, computed by the kernels that write it."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Domain
from fusec.index.instances import Instance, Lowering
from fusec.ir.access import Coordinates
from fusec.ir.expression import Index, Var, contiguous_strides, linearize, of_var
from fusec.ir.graph import Fusion, Input, Node, Output, Type, Value
from fusec.ops.builder.build import make_node
from fusec.ops.names import fresh_name
from fusec.schedule.requirements import flat
from fusec.schedule.sort.parts import needed
from fusec.segment.protocol import Refusal

TOO_EARLY = Refusal("outputs", "the scattered tensor is read after all of it is written")


@dataclass(frozen=True, eq=False)
class After:
    """The elementwise operations on a scattered tensor.

    fusion: computes the outputs from the tensor before the scatter and from `sums`, the input that
    stands for the values added to its elements, in the compute type; untouched: computes them where
    nothing is added.
    """

    fusion: Fusion
    sums: Value
    untouched: Fusion

    def at(self, coordinates: Coordinates, place: Var) -> tuple[Lowering, tuple[Instance, ...]]:
        """Return the outputs at coordinates of the scattered tensor, and their lowering.

        place: the coordinate at which sums are known, even if its extent is 1.
        """
        lowering = Lowering(self.fusion, Domain(self.sums, (), {}, {}), {})
        lowering.inside[self.sums.name] = frozenset({place})
        outputs = (lowering.at(o.value, coordinates, ()) for o in self.fusion.outputs)
        return lowering, tuple(outputs)

    def address(self, output: Output, coordinates: Coordinates) -> Index:
        """Return the address at which an output's element is stored."""
        return linearize(coordinates, self.fusion.effects.strides(output.value))

    def loads(self, lowering: Lowering) -> list[Instance]:
        """Return the loads from memory."""
        loads = (i for i in lowering.made.values() if i.kind == "load")
        return [i for i in loads if i.value is not self.sums]


def find_after(fusion: Fusion, node: Node) -> After | Refusal:
    """Return the operations after a fusion's only scatter, or why its kernels cannot compute them.

    Each element of the result must be known to the thread that adds to it, and must not be stored
    where it is still read.
    """
    base, result = node.operands[0], node.output
    if node.op.combine is None or not result.dtype.is_float or not isinstance(base, Value):
        return TOO_EARLY
    if any(o.value.shape != result.shape for o in fusion.outputs):
        return TOO_EARLY
    sums, finishing = _finishing(node, base, fusion.names)
    at = fusion.nodes.index(node)
    before, behind = fusion.nodes[:at], fusion.nodes[at + 1 :]
    copied = replace(make_node("set", [base], {}, ["copied"]), outputs=(result,))
    untouched = _whole(fusion, (*before, copied, *behind))
    after = _whole(fusion, (*before, *finishing, *behind), sums)
    refusal = flat(untouched)
    if refusal is not None:
        return refusal
    found = After(after, sums, untouched)
    return _read_elsewhere(found) or found


def _whole(fusion: Fusion, nodes: tuple[Node, ...], *more: Value) -> Fusion:
    """Return a fusion that computes the outputs with some nodes, which read further inputs."""
    found = needed(fusion.with_nodes(nodes), fusion.outputs)
    read = {v for n in found.nodes for v in n.inputs} | {o.value for o in fusion.outputs}
    own = tuple(Input(v, contiguous_strides(v.shape)) for v in more)
    return replace(found, inputs=(*own, *fusion.effects.inputs_for(read)))


def _finishing(node: Node, base: Value, taken: set[str]) -> tuple[Value, list[Node]]:
    """Return the input that stands for the sums of sources, and the nodes from it to the result."""
    result = node.output
    kind = result.dtype.compute
    sums = Value(fresh_name(taken, "sums"), Type(kind, result.shape))
    nodes: list[Node] = []
    if base.dtype != kind:
        name = fresh_name(taken, f"{base.name}_wide")
        nodes.append(make_node("cast", [base], {"dtype": kind}, [name]))
        base = nodes[-1].output
    name = result.name if kind == result.dtype else fresh_name(taken, f"{result.name}_sum")
    nodes.append(make_node("add", [base, sums], {}, [name]))
    if kind != result.dtype:
        total = nodes[-1].output
        nodes.append(make_node("cast", [total], {"dtype": result.dtype}, [result.name]))
    nodes[-1] = replace(nodes[-1], outputs=(result,))
    return sums, nodes


def _read_elsewhere(after: After) -> Refusal | None:
    """Return the output that reads another element of the scattered tensor, or none of it."""
    shape = after.sums.shape
    at = tuple(of_var(Var(f"axis{k}", extent)) for k, extent in enumerate(shape))
    home = linearize(at, contiguous_strides(shape))
    for output in after.fusion.outputs:
        lowering = Lowering(after.fusion, Domain(after.sums, (), {}, {}), {})
        lowering.at(output.value, at, ())
        read = [i for i in lowering.made.values() if i.value is after.sums]
        if not read or any(i.address != home or i.conditions for i in read):
            because = f"`{output.value.name}` is not computed element by element of what is added"
            return Refusal("outputs", because)
    return None
