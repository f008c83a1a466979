"""A maximum and the sum of exponentials relative to it, computed in one pass over the data.

Plans replace two reductions by it (`fusec.schedule.rows.online`); it is not in the table. The sum
is rescaled whenever the maximum grows: Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.dtype import F32, F64, DType
from fusec.ir.graph import Fusion, Node, Operand, Type, Value
from fusec.ir.op import Cost, OpDef, Param
from fusec.ir.roles import Combine
from fusec.ops.lazy import np
from fusec.ops.shapes import tensor_shape, without_axes

Operands = tuple[Operand, ...]


def _reference(arg: Any, dims: tuple[int, ...]) -> tuple[Any, Any]:
    top = np.max(arg, axis=dims, keepdims=True)
    return np.squeeze(top, dims), np.sum(np.exp(arg - top), axis=dims)


def _infer(operands: Operands, attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    shape = without_axes(tensor_shape("max_exp_sum", operands[0]), attributes["dims"])
    return (Type(operands[0].type.dtype, shape),) * 2


def _compute(operands: Operands, result: DType) -> tuple[DType, ...]:
    return (result.compute,)


MAX_EXP_SUM = OpDef(
    name="max_exp_sum",
    family="reduction",
    params=(Param("arg", "operand"), Param("dims", "dims")),
    results=("top", "total"),
    reference=_reference,
    infer=_infer,
    compute=_compute,
    cuda={"default": "ExpSumMerge"},
    cost=Cost(4, 1),
    combine=Combine.EXPONENTIALS,
    doc="Return the largest value over `dims`, and the sum of the exponentials of all less it.",
)


def shifted_sum(fusion: Fusion, top: Node) -> Node | None:
    """Return the reduction that sums exp(x - top) over the dims that `top` is the maximum of."""
    tensor = top.inputs[0]
    if top.op.combine is not Combine.MAXIMUM or top.op.family != "reduction":
        return None
    if tensor.dtype not in (F32, F64) or top.output.dtype != tensor.dtype:
        return None
    dims = tuple(top.attributes["dims"])
    for spread in _spread(fusion, top.output, dims, tensor):
        for less in fusion.users.get(spread, ()):
            if less.op.name != "sub" or [*less.operands] != [tensor, spread]:
                continue
            for power in _users(fusion, less, "exp", "exp_approx"):
                for total in _users(fusion, power, "sum"):
                    kinds = total.output.dtype, tuple(total.attributes["dims"])
                    if kinds == (tensor.dtype, dims):
                        return total
    return None


def _users(fusion: Fusion, node: Node, *ops: str) -> list[Node]:
    return [n for n in fusion.users.get(node.output, ()) if n.op.name in ops]


def _spread(fusion: Fusion, top: Value, dims: tuple[int, ...], tensor: Value) -> list[Value]:
    """Return the values that are a maximum broadcast to the elements that it was computed from."""
    mask = tuple(k in dims for k in range(tensor.rank))
    found = [
        n.output
        for n in fusion.users.get(top, ())
        if n.op.name == "broadcast" and tuple(n.attributes["is_broadcast_dim"]) == mask
    ]
    wider = [
        n.output
        for value in found
        for n in fusion.users.get(value, ())
        if n.op.name == "expand" and n.output.shape == tensor.shape
    ]
    return found + wider
