"""What follows a matrix product in its segment, as a fusion whose input is the sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusec.index.domain import Refusal
from fusec.ir.dim import product
from fusec.ir.dtype import I32, U32, DType
from fusec.ir.graph import Const, Fusion, Input, Node, Type, Value, needed_nodes
from fusec.ops.build import make_node

SUMS = "acc"


@dataclass(frozen=True)
class Epilogue:
    """The rest of a segment: `sums` is the input that stands for the sums of products."""

    fusion: Fusion
    sums: Value


def sums_dtype(operands: DType) -> DType:
    """Return the type in which products are summed: f32 for half types, at least 32 bits."""
    if operands.is_integer and operands.bits < 32:
        return I32 if operands.kind == "int" else U32
    return operands.compute


def find_epilogue(fusion: Fusion, node: Node, name: str = SUMS) -> Epilogue | Refusal:
    """Return the epilogue: the bias of `linear`, the result's rounding, and the other operations.

    The result has its own type before anything else reads it, so that a value does not depend on
    whether its product was fused with what follows. name: of the sums.
    """
    kind = sums_dtype(node.output.dtype)
    first: list[Node] = []
    declared = node.op.product
    has_bias = declared is not None and declared.bias is not None and len(node.operands) > 2
    if kind == node.output.dtype and not has_bias:
        sums = node.output
    else:
        sums = Value(name, Type(kind, node.output.shape))
        first = _finishing(node, sums, kind, has_bias)
    at = fusion.nodes.index(node)
    others = [*fusion.nodes[:at], *first, *fusion.nodes[at + 1 :]]
    nodes = tuple(needed_nodes(others, (o.value for o in fusion.outputs)))
    made = {v for n in nodes for v in n.outputs}
    read = {v for n in nodes for v in n.inputs} | {o.value for o in fusion.outputs}
    if sums not in read:
        return Refusal("outputs", f"no output depends on `{node.output.name}`")
    inputs = fusion.effects.inputs_for(read - made)
    layout = tuple(product(sums.shape[k + 1 :]) for k in range(sums.rank))
    return Epilogue(
        replace(fusion, inputs=(Input(sums, layout), *inputs), nodes=nodes, pins=()), sums
    )


def _finishing(node: Node, sums: Value, kind: DType, has_bias: bool) -> list[Node]:
    """Return the nodes from the sums to the product's result: the bias, then the rounding."""
    result = node.output
    nodes: list[Node] = []
    total = sums
    if has_bias:
        bias = node.operands[2]
        assert not isinstance(bias, Const)
        if bias.dtype != kind:
            nodes.append(make_node("cast", [bias], {"dtype": kind}, [f"{bias.name}_wide"]))
            bias = nodes[-1].output
        places = tuple(range(result.rank - bias.rank, result.rank))
        shape = {"shape": result.shape, "broadcast_dims": places}
        nodes.append(make_node("broadcast_in_dim", [bias], shape, [f"{bias.name}_rows"]))
        names = [result.name if kind == result.dtype else f"{result.name}_sum"]
        nodes.append(make_node("add", [total, nodes[-1].output], {}, names))
        total = nodes[-1].output
    if kind != result.dtype:
        nodes.append(make_node("cast", [total], {"dtype": result.dtype}, [result.name]))
    nodes[-1] = replace(nodes[-1], outputs=(result,))
    return nodes
