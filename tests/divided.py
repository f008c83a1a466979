"""Fusions that one rank runs, made by hand: a file's operations, and exchanges between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fusec.diagnostics import InternalError
from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.ir.op import OpDef
from fusec.ir.sharding import Mesh
from fusec.ir.verify import verify
from fusec.ops.communication import make_node
from fusec.parse import read_text


@dataclass(frozen=True)
class Between:
    """An operation that no file names, on the value called `operand`."""

    op: OpDef
    operand: str
    attributes: Mapping[str, Any]


def between(op: OpDef, operand: str, **attributes: Any) -> Between:
    """Return an operation to put into a fusion."""
    return Between(op, operand, attributes)


def divided(text: str, mesh: Mesh | None = None, **found: Between) -> Fusion:
    """Return the fusion of a file in which some inputs are results of operations between ranks.

    The inputs by these names go. A name that is no input of the file becomes an output; the value
    that the operation takes is none then.
    """
    fusion = read_text(text)
    values = {v.name: v for v in fusion.values}
    inputs = tuple(i for i in fusion.inputs if i.value.name not in found)
    outputs = list(fusion.outputs)
    made: list[Node] = []
    for name, what in found.items():
        node = make_node(what.op, values[what.operand], name, **what.attributes)
        if name in values:
            assert node.output.type == values[name].type, f"{node.output} is not {values[name]}"
            node = replace(node, outputs=(values[name],))
        else:
            outputs = [o for o in outputs if o.value is not values[what.operand]]
            outputs.append(Output(node.output))
            values[name] = node.output
        made.append(node)
    nodes = in_order((*made, *fusion.nodes), (i.value for i in inputs))
    given = replace(fusion, inputs=inputs, outputs=tuple(outputs), nodes=nodes, mesh=mesh)
    verify(given)
    return given


def in_order(nodes: Iterable[Node], given: Iterable[Value]) -> tuple[Node, ...]:
    """Return nodes with operands first, otherwise in the order in which they come."""
    known, left, done = set(given), list(nodes), list[Node]()
    while left:
        node = next((n for n in left if known.issuperset(n.inputs)), None)
        if node is None:
            raise InternalError(f"a cycle: {left}")
        left.remove(node)
        done.append(node)
        known.update(node.outputs)
    return tuple(done)
