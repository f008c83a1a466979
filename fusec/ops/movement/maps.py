"""Maps of movements and indexing operations, checked on small samples when they are declared."""

from __future__ import annotations

from itertools import product

from fusec.diagnostics import InternalError
from fusec.ir.access import Branch, Coordinates, Sample
from fusec.ir.dim import dim
from fusec.ir.dtype import F64, find
from fusec.ir.expression import Var, index, of_var
from fusec.ir.graph import Const, Node, Operand, Type, Value
from fusec.ir.op import OpDef


def check_map(op: OpDef) -> None:
    """Check an operation's map on its samples.

    Raises InternalError if the map reads outside of an operand, or if there is no sample.
    """
    if op.access is None:
        return
    if not op.samples:
        raise InternalError(f"operation `{op.name}` has a map, and no samples to try it on")
    for sample in op.samples:
        node = sample_node(op, sample)
        if _is_inside(node):
            continue
        for place in product(*(range(d.value) for d in node.output.shape)):
            trouble = _outside(node, tuple(index(i) for i in place))
            if trouble:
                raise InternalError(
                    f"the map of `{op.name}` has element {list(place)} of the result read {trouble}"
                )


def sample_node(op: OpDef, sample: Sample) -> Node:
    """Return an operation's node on the operands of a sample."""
    operands = tuple(_operand(text, k) for k, text in enumerate(sample.operands))
    types = op.infer(operands, sample.attributes)
    outputs = tuple(Value(f"y{k}", each) for k, each in enumerate(types))
    return Node(op, operands, sample.attributes, outputs)


def _operand(text: str | float, number: int) -> Operand:
    if not isinstance(text, str):
        return Const(text, F64)
    name, bracket, extents = text.rstrip("]").partition("[")
    shape = tuple(dim(int(e)) for e in extents.split(",")) if bracket else None
    return Value(f"x{number}", Type(find(name), shape))


def _is_inside(node: Node) -> bool:
    """Return whether interval arithmetic proves that all elements read are inside of operands."""
    axes = (of_var(Var(f"i{k}", extent)) for k, extent in enumerate(node.output.shape))
    branches = _pulled(node, tuple(axes))
    return not any(b.conditions for b in branches) and not any(map(_wrong, branches))


def _outside(node: Node, at: Coordinates) -> str:
    """Return what an element of the result reads outside of an operand; empty if nothing."""
    found = (b for b in _pulled(node, at) if all(c.is_true for c in b.conditions))
    first = next(found, None)
    return "" if first is None else _wrong(first)


def _pulled(node: Node, at: Coordinates) -> tuple[Branch, ...]:
    assert node.op.access is not None
    return node.op.access.pull(node, at).branches


def _wrong(branch: Branch) -> str:
    """Return where a branch may read outside of its operand, or of an index's."""
    loaded = [each for c in branch.coordinates for each in c.loaded]
    reads = [(branch.operand, branch.coordinates), *((e.tensor, e.coordinates) for e in loaded)]
    for operand, coordinates in reads:
        if len(coordinates) != len(operand.shape):
            return f"{len(coordinates)} coordinates of `{operand}`"
        for axis, (position, extent) in enumerate(zip(coordinates, operand.shape, strict=True)):
            if not position.within(0, extent):
                return f"`{operand}` at {position} of its dim {axis}"
    return ""
