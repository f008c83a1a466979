"""Redefines variances as two passes over data on chip: the mean, then the squared distances.

Fewer instructions than Welford's update and no division per element (Fuser#1243 proposes the same).
"""

from __future__ import annotations

import math

from fusec.ir.dim import product
from fusec.ir.dtype import F32, F64, DType
from fusec.ir.graph import Const, Fusion, Node, Operand, Type, Value
from fusec.ir.recent import Recent
from fusec.ir.roles import Combine
from fusec.ops import TABLE

_RECENT: Recent[Fusion] = Recent()


def name_of_sum(name: str) -> str:
    """Return the name of the sum that replaces the variance called `name`."""
    return f"{name}_sum"


def two_pass(fusion: Fusion) -> Fusion:
    """Return the fusion with var, var_mean and welford as sums; counts must be constants."""
    return _RECENT.of(fusion, None, lambda: _written_out(fusion))


def _written_out(fusion: Fusion) -> Fusion:
    nodes: list[Node] = []
    for node in fusion.nodes:
        if node.op.combine is Combine.MOMENTS:
            nodes += _Rewrite(node).nodes
        else:
            nodes.append(node)
    return fusion if len(nodes) == len(fusion.nodes) else fusion.with_nodes(nodes)


class _Rewrite:
    """The nodes that replace one variance; the results keep their values."""

    def __init__(self, node: Node) -> None:
        self.nodes: list[Node] = []
        self.node = node
        tensor = node.inputs[0]
        dims: tuple[int, ...] = node.attributes["dims"]
        name = node.output.name
        wide = F64 if tensor.dtype == F64 else F32
        count = product(tensor.shape[d] for d in dims).value
        if tensor.dtype != wide:
            tensor = self.call("cast", f"{name}_in", wide, tensor.type.shape, tensor, dtype=wide)
        kept = tuple(e for i, e in enumerate(tensor.shape) if i not in dims)
        once = tuple(e if i not in dims else product(()) for i, e in enumerate(tensor.shape))
        mask = tuple(i in dims for i in range(tensor.rank))
        scale = Const(1.0 / count if count else math.nan, F64)
        total = self.call("sum", name_of_sum(name), wide, kept, tensor, dims=dims, dtype=None)
        by_name = dict(zip(node.op.results, node.outputs, strict=True))
        mean_value = by_name.get("mean") or by_name.get("avg")
        mean = self.finish("mul", mean_value, f"{name}_mean", wide, kept, total, scale)
        spread = self.call("broadcast", f"{name}_center", wide, once, mean, is_broadcast_dim=mask)
        away = self.call("sub", f"{name}_away", wide, tensor.type.shape, tensor, spread)
        squares = self.call("mul", f"{name}_squares", wide, tensor.type.shape, away, away)
        square_value = by_name.get("var_sum")
        if square_value is not None:
            self.finish(
                "sum", square_value, f"{name}_m2", wide, kept, squares, dims=dims, dtype=None
            )
            self.full(node.outputs[2], count)
            return
        m2 = self.call("sum", f"{name}_m2", wide, kept, squares, dims=dims, dtype=None)
        free = count - float(node.attributes["correction"])
        unbias = Const(1.0 / free if free > 0 else math.inf, F64)
        self.finish("mul", node.outputs[0], name, wide, kept, m2, unbias)

    def call(
        self,
        op: str,
        name: str,
        of: DType,
        shape: object,
        /,
        *operands: Operand,
        **attributes: object,
    ) -> Value:
        assert shape is None or isinstance(shape, tuple)
        out = Value(name, Type(of, shape))  # pyright: ignore[reportUnknownArgumentType]
        self.nodes.append(Node(TABLE[op], operands, attributes, (out,), self.node.span))
        return out

    def finish(
        self,
        op: str,
        result: Value | None,
        name: str,
        wide: DType,
        shape: object,
        /,
        *operands: Operand,
        **attributes: object,
    ) -> Value:
        """Make a result: into its own value, through a cast where that is narrower."""
        if result is not None and result.dtype == wide:
            self.nodes.append(Node(TABLE[op], operands, attributes, (result,), self.node.span))
            return result
        out = self.call(op, f"{name}_wide", wide, shape, *operands, **attributes)
        if result is not None:
            cast = Node(TABLE["cast"], (out,), {"dtype": result.dtype}, (result,), self.node.span)
            self.nodes.append(cast)
        return out

    def full(self, result: Value, count: int) -> None:
        number = Const(count, result.dtype) if result.dtype.is_integer else Const(float(count), F64)
        attributes = {"shape": result.shape, "dtype": result.dtype}
        self.nodes.append(Node(TABLE["full"], (number,), attributes, (result,), self.node.span))
