"""Recognizes attention: two GEMMs with a softmax of the first one's results between them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from fusec.dataclasses import dataclass, fields, replace
from fusec.index.domain import Refusal
from fusec.index.instances import Instance, Lowering
from fusec.ir.access import Coordinates
from fusec.ir.dim import Dim, product
from fusec.ir.dtype import BF16, F16, F32, F64, DType
from fusec.ir.expression import (
    Var,
    of_var,
)
from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.ir.identity_cache import IdentityCache
from fusec.ir.roles import Combine
from fusec.ops.acts import Act
from fusec.properties import cached_property
from fusec.schedule.attention.masks import Bound, does, masks_of
from fusec.schedule.attention.part import Part, dependents, find_part
from fusec.schedule.matmul.operands.addresses import coordinates_of, resolve_address
from fusec.schedule.matmul.operands.operand import Operand, operand_of


@dataclass(frozen=True)
class Softmax:
    """The instances of a softmax along keys.

    scores: its input, in f32. top, total: the reductions. factor: what the exponentials are
    multiplied by, or divided by if `divides`; constant in a row, None if it is 1. is_safe: whether
    0 is subtracted from scores instead of a maximum of minus infinity; if not, the exponentials of
    such a row are NaN.
    """

    scores: Instance
    top: Node
    total: Node
    factor: Instance | None
    divides: bool
    is_safe: bool


@dataclass(frozen=True)
class Source:
    """An operand of a GEMM: its element in the axes of the GEMM's result.

    own: its axis that is neither a batch nor K; along: the axis that the GEMM sums over.
    """

    value: Value
    at: Coordinates
    own: Var
    along: Var


@dataclass(frozen=True)
class AttentionGraph:
    """softmax(graph(queries keys^T)) values, over batches, with operands in memory or computed.

    weights: the value that the second GEMM reads. rows: outputs with one element per query. scores:
    the graph that computes weights and rows; outputs: the graph on the second GEMM. total: the sum
    of exponentials. bounds: limits of the keys that a query sees.
    """

    first: Node
    second: Node
    weights: Value
    rows: tuple[Output, ...]
    scores: Part
    outputs: Part
    total: Node
    bounds: tuple[Bound, ...]

    @property
    def batches(self) -> Dim:
        """Return the number of batches times heads."""
        return product(a.extent for a in self.scores.domain.axes[:-2])

    @property
    def m(self) -> Dim:
        """Return the number of queries."""
        return self.scores.domain.axes[-2].extent

    @property
    def n(self) -> Dim:
        """Return the number of keys."""
        return self.scores.domain.axes[-1].extent

    @property
    def features(self) -> Dim:
        """Return the features of a query, and of a key."""
        return self.first.operands[0].shape[-1]

    @property
    def value_features(self) -> Dim:
        """Return the features of a value."""
        return self.outputs.domain.axes[-1].extent

    @cached_property
    def sources(self) -> tuple[Source, Source, Source]:
        """Return the queries, keys and values in the axes of scores and of features."""
        scores = self.scores.domain.axes
        depth, feature = Var("k", self.features), Var("feature", self.value_features)
        left, right, _ = coordinates_of(self.first, scores, depth)
        # The second GEMM sums over keys; its batches and rows are those of the first.
        _, values, _ = coordinates_of(self.second, (*scores[:-1], feature), scores[-1])
        return (
            Source(self.first.inputs[0], left, scores[-2], depth),
            Source(self.first.inputs[1], right, scores[-1], depth),
            Source(self.second.inputs[1], values, feature, scores[-1]),
        )


@dataclass(frozen=True)
class Attention(AttentionGraph):
    """An attention whose operands are rows in memory."""

    queries: Operand
    keys: Operand
    values: Operand

    @property
    def dtype(self) -> DType:
        """Return the type of queries, keys and values in memory."""
        return self.queries.buffer.dtype


def find_attention(fusion: Fusion) -> Attention | Refusal:
    """Return the attention over operands in memory that a segment is, or why it is not one."""
    graph = find_graph(fusion)
    if isinstance(graph, Refusal):
        return graph
    operands = _operands(fusion, graph)
    if isinstance(operands, Refusal):
        return operands
    return Attention(
        **{f.name: getattr(graph, f.name) for f in fields(graph)},
        **dict(zip(("queries", "keys", "values"), operands, strict=True)),
    )


def find_graph(fusion: Fusion) -> AttentionGraph | Refusal:
    """Return the attention that a segment is, with any operands, or why it is not one."""
    return _GRAPHS.of(fusion, None, lambda: _found_graph(fusion))


_GRAPHS = IdentityCache[AttentionGraph | Refusal]()


def _found_graph(fusion: Fusion) -> AttentionGraph | Refusal:
    products = [n for n in fusion.nodes if n.op.family == "contraction"]
    if len(products) != 2:
        because = f"the pattern needs two GEMMs, found {len(products)}"
        return Refusal("contraction", because)
    first, second = products
    for node in products:
        if node.op.product is None or node.op.lookup is not None or len(node.operands) > 2:
            return Refusal("operation", f"`{node.op.name}` with a bias or groups is not attention")
    weights = second.operands[0]
    if not isinstance(weights, Value) or weights in fusion.input_of:
        return Refusal(
            "contraction", f"`{second.output.name}` is not a GEMM on the result of the first"
        )
    later = dependents(fusion, second)
    rows = tuple(o for o in fusion.outputs if o.value not in later)
    scores = find_part(replace(fusion, outputs=(Output(weights), *rows)), first, reduces=True)
    if isinstance(scores, Refusal):
        return scores
    outputs = find_part(
        replace(fusion, outputs=tuple(o for o in fusion.outputs if o not in rows)), second
    )
    if isinstance(outputs, Refusal):
        return outputs
    why_illegal = _not_rows(scores, rows) or _not_aligned(scores, outputs, weights)
    if why_illegal is not None:
        return why_illegal
    if any(o.rank < 2 for n in products for o in n.inputs):
        return Refusal("operation", "a matrix-vector product is not attention")
    softmax = find_softmax(scores, weights, scores.lowering(1))
    if isinstance(softmax, Refusal):
        return softmax
    bounds = tuple(b for b, _ in masks_of(softmax.scores, scores.axes(1)))
    return AttentionGraph(first, second, weights, rows, scores, outputs, softmax.total, bounds)


def _not_rows(scores: Part, rows: Sequence[Output]) -> Refusal | None:
    """Return why an output with an element for each key is unsupported, or None."""
    key = scores.domain.axes[-1]
    for output in rows:
        if output.value.is_scalar:
            return Refusal("outputs", f"`{output.value.name}` is a scalar")
        if key in scores.domain.homes[output.value].variables:
            return Refusal("outputs", f"`{output.value.name}` has an element for each key")
    return None


def _not_aligned(scores: Part, outputs: Part, weights: Value) -> Refusal | None:
    """Return why weights are not a query x key matrix in the order of the second GEMM, or None."""
    home, axes = scores.domain.homes[weights], scores.domain.axes
    same = len(weights.shape) == len(axes) and all(
        at == of_var(axis) or axis.extent == 1
        for at, axis in zip(home.coordinates, axes, strict=True)
    )
    extents = [a.extent for a in axes[:-1]]
    if not same or extents != [a.extent for a in outputs.domain.axes[:-1]]:
        return Refusal("domain", f"`{weights.name}` is rearranged between the GEMMs")
    return None


def _operands(fusion: Fusion, graph: AttentionGraph) -> tuple[Operand, Operand, Operand] | Refusal:
    """Return queries, keys and values as operands in memory."""
    *batch, _, _ = graph.scores.domain.axes
    found: list[Operand] = []
    for source in graph.sources:
        where = resolve_address(fusion, source.value, source.at)
        if isinstance(where, Refusal):
            return where
        operand = operand_of(where, tuple(batch), (source.own,), source.along)
        if isinstance(operand, Refusal):
            return operand
        found.append(operand)
    queries, keys, values = found
    kinds = {o.buffer.dtype for o in found}
    if len(kinds) != 1 or not kinds <= {BF16, F16}:
        return Refusal("dtype", "queries, keys and values are not all bf16, or all f16")
    if graph.weights.dtype not in kinds:
        because = f"`{graph.weights.name}` is {graph.weights.dtype}, not {queries.buffer.dtype}"
        return Refusal("dtype", because)
    return queries, keys, values


def find_softmax(scores: Part, weights: Value, lowering: Lowering) -> Softmax | Refusal:
    """Return the softmax that computes the weights, in instances of a lowering of the scores."""
    shares = unrounded(lowering.at_home(weights))
    for powers, factor, divides in _factors(shares):
        found = _softmax(scores, lowering, powers, factor, divides)
        if found is not None:
            return found
    wide = next((n.output for n in scores.epilogue.fusion.nodes if n.output.dtype == F64), None)
    if wide is not None and shares.dtype == F64:
        because = (
            f"`{wide.name}` is f64, and so is the softmax; the kernels compute it in f32 (`where` "
            "of two literals is f64: cast it to f32)"
        )
        return Refusal("softmax", because)
    because = f"`{weights.name}` is not a softmax along the keys of the result of the first GEMM"
    return Refusal("softmax", because)


def unrounded(weights: Instance) -> Instance:
    """Return the value that casts round to the weights."""
    while weights.kind == "op" and weights.node is not None and weights.node.op.converts:
        (weights,) = weights.operands
    return weights


def _factors(shares: Instance) -> list[tuple[Instance, Instance | None, bool]]:
    """Return candidate factorizations of shares: exponentials and the factor that scales them."""
    found: list[tuple[Instance, Instance | None, bool]] = [(shares, None, False)]
    if does(shares, Act.MULTIPLY):
        left, right = shares.operands
        found += [(left, right, False), (right, left, False)]
    if does(shares, Act.DIVIDE):
        left, right = shares.operands
        found.append((left, right, True))
    return found


def _softmax(
    scores: Part, lowering: Lowering, powers: Instance, factor: Instance | None, divides: bool
) -> Softmax | None:
    """Return the softmax whose exponentials are `powers`, or None."""
    along = lowering.binding[scores.domain.axes[-1]].variables
    if factor is not None and factor.variables.intersection(along):
        return None
    if not does(powers, Act.EXPONENTIATE):
        return None
    (less,) = powers.operands
    top = _maximum(less.operands[1]) if does(less, Act.SUBTRACT) else None
    if top is None or top.operands[0] is not less.operands[0]:
        return None
    domain = scores.domain
    reductions = [n for n in scores.epilogue.fusion.nodes if n.op.family == "reduction"]
    others = [n for n in reductions if n is not top.node]
    if len(others) != 1 or any(
        domain.reduced[n] != frozenset({domain.axes[-1]}) for n in reductions
    ):
        return None
    (total,) = others
    summed = lowering.at_home(total.inputs[0])
    assert top.node is not None
    kinds = top.node.op.combine, total.op.combine
    if kinds != (Combine.MAXIMUM, Combine.SUM) or summed is not powers:
        return None
    if {less.operands[0].dtype, powers.dtype, total.output.dtype} != {F32}:
        return None
    is_safe = less.operands[1] is not top
    return Softmax(less.operands[0], top.node, total, factor, divides, is_safe)


def _maximum(shift: Instance) -> Instance | None:
    """Return the maximum that is subtracted, also if it is replaced by 0 where it is -inf."""
    if does(shift, Act.SELECT):
        empty, zero, shift = shift.operands
        if not (does(empty, Act.EQUAL) and _holds(empty.operands[1], -inf) and _holds(zero, 0)):
            return None
        if empty.operands[0] is not shift:
            return None
    return shift if shift.kind == "reduced" else None


def _holds(instance: Instance, value: float) -> bool:
    return instance.kind == "constant" and instance.constant == value
