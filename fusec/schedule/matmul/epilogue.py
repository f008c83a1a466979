"""The epilogue of a GEMM in its segment, as a fusion whose input is the accumulators."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Refusal
from fusec.ir.dim import product
from fusec.ir.dtype import I32, U32, DType
from fusec.ir.graph import Const, Fusion, Input, Node, Type, Value, needed_nodes
from fusec.ops.builder.build import make_node
from fusec.ops.names import fresh_name

SUMS, SECOND_SUMS = "acc", "acc2"


@dataclass(frozen=True)
class Epilogue:
    """The rest of a segment after its GEMM: `sums` is the input that stands for the accumulators.

    second: that of the second GEMM of a dual GEMM.
    """

    fusion: Fusion
    sums: Value
    second: Value | None = None

    @property
    def all_sums(self) -> tuple[Value, ...]:
        """Return the accumulators of all GEMMs."""
        return (self.sums,) if self.second is None else (self.sums, self.second)


def sums_dtype(operands: DType) -> DType:
    """Return the accumulator type of a GEMM: f32 for 16-bit floats, at least 32 bits."""
    if operands.is_integer and operands.bits < 32:
        return I32 if operands.kind == "int" else U32
    return operands.compute


def find_epilogue(
    fusion: Fusion, node: Node, second: Node | None = None, *, name: str = SUMS
) -> Epilogue | Refusal:
    """Return the epilogue: the bias of `linear`, the result's rounding, and the other operations.

    The result is rounded to its own type before anything else reads it, so that a value does not
    depend on whether its GEMM was fused with its consumers. second: another GEMM of the same shape;
    name: of the accumulators.
    """
    others, found, taken = list(fusion.nodes), list[Value](), fusion.names
    for each, called in zip((node, second), (name, SECOND_SUMS), strict=True):
        if each is None:
            continue
        sums, finishing = _sums(each, called, taken)
        at = others.index(each)
        others[at : at + 1] = finishing
        found.append(sums)
    nodes = tuple(needed_nodes(others, (o.value for o in fusion.outputs)))
    made = {v for n in nodes for v in n.outputs}
    read = {v for n in nodes for v in n.inputs} | {o.value for o in fusion.outputs}
    for each, sums in zip((node, second), found, strict=False):
        if each is not None and sums not in read:
            return Refusal("outputs", f"no output depends on `{each.output.name}`")
    inputs = fusion.effects.inputs_for(read - made)
    shape = node.output.shape
    layout = tuple(product(shape[k + 1 :]) for k in range(len(shape)))
    own = tuple(Input(sums, layout) for sums in found)
    whole = replace(fusion, inputs=(*own, *inputs), nodes=nodes, pins=())
    return Epilogue(whole, *found)


def _sums(node: Node, name: str, taken: set[str]) -> tuple[Value, list[Node]]:
    """Return the input that stands for the accumulators, and the nodes from it to the result."""
    kind, declared = sums_dtype(node.output.dtype), node.op.product
    has_bias = declared is not None and declared.bias is not None and len(node.operands) > 2
    if kind == node.output.dtype and not has_bias:
        return node.output, []
    sums = Value(fresh_name(taken, name), Type(kind, node.output.shape))
    return sums, _finishing(node, sums, taken, has_bias=has_bias)


def _finishing(node: Node, sums: Value, taken: set[str], *, has_bias: bool) -> list[Node]:
    """Return the nodes from the accumulators to the GEMM's result: the bias, then the rounding."""
    result, kind = node.output, sums.dtype
    nodes: list[Node] = []
    total = sums
    if has_bias:
        bias = node.operands[2]
        assert not isinstance(bias, Const)
        if bias.dtype != kind:
            nodes.append(
                make_node("cast", [bias], {"dtype": kind}, [fresh_name(taken, f"{bias.name}_wide")])
            )
            bias = nodes[-1].output
        places = tuple(range(result.rank - bias.rank, result.rank))
        shape = {"shape": result.shape, "broadcast_dims": places}
        nodes.append(
            make_node("broadcast_in_dim", [bias], shape, [fresh_name(taken, f"{bias.name}_rows")])
        )
        names = [result.name if kind == result.dtype else fresh_name(taken, f"{result.name}_sum")]
        nodes.append(make_node("add", [total, nodes[-1].output], {}, names))
        total = nodes[-1].output
    if kind != result.dtype:
        nodes.append(make_node("cast", [total], {"dtype": result.dtype}, [result.name]))
    nodes[-1] = replace(nodes[-1], outputs=(result,))
    return nodes
