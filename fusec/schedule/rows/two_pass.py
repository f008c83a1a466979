"""Redefines variances as two passes over data on chip: the mean, then the squared distances.

Fewer instructions than Welford's update and no division per element (Fuser#1243 proposes the same).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fusec.ir.dim import product
from fusec.ir.dtype import F32, F64, DType
from fusec.ir.graph import Const, Fusion, Node, Operand, Type, Value
from fusec.ir.identity_cache import IdentityCache
from fusec.ir.roles import Combine
from fusec.ops import TABLE
from fusec.ops.names import fresh_name
from fusec.options import TWO_PASS
from fusec.passes.rewrite import Rewriter, Rule

_CACHE: IdentityCache[Fusion] = IdentityCache()


_MADE = ("in", "sum", "mean", "mean_wide", "center", "away", "squares", "m2", "m2_wide", "wide")
"""Suffixes of the names of values that replace a variance."""


def names_of_sums(fusion: Fusion) -> Mapping[str, str]:
    """Return the names of the sums that replace variances, by the variances' names."""
    if TWO_PASS in fusion.as_defined:
        return {}
    return {node.output.name: names["sum"] for node, names in _names(fusion).items()}


def variances(fusion: Fusion) -> Iterable[Node]:
    """Return the nodes that compute variances, in order."""
    return (n for n in fusion.nodes if n.op.combine is Combine.MOMENTS)


def two_pass_rule(name: str) -> Rule:
    """Return the rule that computes the variance called `name` in two passes."""

    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.output.name != name or node.op.combine is not Combine.MOMENTS:
            return None
        names = {word: work.fresh(f"{name}_{word}") for word in _MADE}
        return work.put(node, _Rewrite(node, names).nodes)

    return rule


def _names(fusion: Fusion) -> dict[Node, dict[str, str]]:
    """Return the names of the values that replace each variance, by the words of _MADE."""
    taken = fusion.names
    return {
        node: {word: fresh_name(taken, f"{node.output.name}_{word}") for word in _MADE}
        for node in variances(fusion)
    }


def two_pass(fusion: Fusion) -> Fusion:
    """Return the fusion with var, var_mean and welford as sums; counts must be constants.

    A fusion that keeps its variances as defined is returned unchanged.
    """
    if TWO_PASS in fusion.as_defined:
        return fusion
    return _CACHE.of(fusion, None, lambda: _written_out(fusion))


def _written_out(fusion: Fusion) -> Fusion:
    nodes: list[Node] = []
    names = _names(fusion)
    for node in fusion.nodes:
        nodes += _Rewrite(node, names[node]).nodes if node in names else [node]
    return fusion if len(nodes) == len(fusion.nodes) else fusion.with_nodes(nodes)


class _Rewrite:
    """The nodes that replace one variance; the results keep their values."""

    def __init__(self, node: Node, names: Mapping[str, str]) -> None:
        self.nodes: list[Node] = []
        self.node, self.names = node, names
        tensor = node.inputs[0]
        dims: tuple[int, ...] = node.attributes["dims"]
        wide = F64 if tensor.dtype == F64 else F32
        count = product(tensor.shape[d] for d in dims).value
        if tensor.dtype != wide:
            tensor = self.call("cast", "in", wide, tensor.type.shape, tensor, dtype=wide)
        kept = tuple(e for i, e in enumerate(tensor.shape) if i not in dims)
        once = tuple(e if i not in dims else product(()) for i, e in enumerate(tensor.shape))
        mask = tuple(i in dims for i in range(tensor.rank))
        scale = Const(1.0 / count if count else math.nan, F64)
        total = self.call("sum", "sum", wide, kept, tensor, dims=dims, dtype=None)
        by_name = dict(zip(node.op.results, node.outputs, strict=True))
        mean_value = by_name.get("mean") or by_name.get("avg")
        mean = self.finish("mul", mean_value, "mean", wide, kept, total, scale)
        spread = self.call("broadcast", "center", wide, once, mean, is_broadcast_dim=mask)
        away = self.call("sub", "away", wide, tensor.type.shape, tensor, spread)
        squares = self.call("mul", "squares", wide, tensor.type.shape, away, away)
        square_value = by_name.get("var_sum")
        if square_value is not None:
            self.finish("sum", square_value, "m2", wide, kept, squares, dims=dims, dtype=None)
            self.full(node.outputs[2], count)
            return
        m2 = self.call("sum", "m2", wide, kept, squares, dims=dims, dtype=None)
        free = count - float(node.attributes["correction"])
        unbias = Const(1.0 / free if free > 0 else math.inf, F64)
        self.finish("mul", node.outputs[0], "", wide, kept, m2, unbias)

    def call(
        self,
        op: str,
        word: str,
        of: DType,
        shape: object,
        /,
        *operands: Operand,
        **attributes: object,
    ) -> Value:
        assert shape is None or isinstance(shape, tuple)
        out = Value(self.names[word], Type(of, shape))  # pyright: ignore[reportUnknownArgumentType]
        self.nodes.append(Node(TABLE[op], operands, attributes, (out,), self.node.span))
        return out

    def finish(
        self,
        op: str,
        result: Value | None,
        word: str,
        wide: DType,
        shape: object,
        /,
        *operands: Operand,
        **attributes: object,
    ) -> Value:
        """Compute a result as its own value, through a cast if that is narrower."""
        if result is not None and result.dtype == wide:
            self.nodes.append(Node(TABLE[op], operands, attributes, (result,), self.node.span))
            return result
        out = self.call(op, f"{word}_wide".lstrip("_"), wide, shape, *operands, **attributes)
        if result is not None:
            cast = Node(TABLE["cast"], (out,), {"dtype": result.dtype}, (result,), self.node.span)
            self.nodes.append(cast)
        return out

    def full(self, result: Value, count: int) -> None:
        number = Const(count, result.dtype) if result.dtype.is_integer else Const(float(count), F64)
        attributes = {"shape": result.shape, "dtype": result.dtype}
        self.nodes.append(Node(TABLE["full"], (number,), attributes, (result,), self.node.span))
