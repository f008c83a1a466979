"""Recognizes attention with so few queries that reading keys dominates, and finds shared heads."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts, lane_zero
from fusec.index.domain import Refusal
from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import Dim, dim, product
from fusec.ir.dtype import BF16, F16, DType
from fusec.ir.expression import Index, Var, delinearize, index, of_var
from fusec.ir.graph import Fusion, Node, Value
from fusec.properties import cached_property
from fusec.schedule.attention.forward.problem import (
    AttentionGraph,
    Softmax,
    Source,
    find_graph,
    find_softmax,
)
from fusec.schedule.attention.masks import Axes, Limit, limits_of
from fusec.schedule.attention.part import Part
from fusec.schedule.attention.sums import as_products
from fusec.schedule.matmul.operands.operand import BATCH

MOST_SHARED = 128
"""Most heads for which sharing of keys is tried."""
MOST_ROWS = 16
"""Queries of one tensor core tile (PTX mma.m16n8k16)."""
CHUNK = 8
"""16-bit elements per cp.async copy."""
HEAD, QUERY, KEY = "g", "m", "n"


@dataclass(frozen=True)
class Decode:
    """An attention whose queries are rows of one tensor core tile.

    fusion: with sums that are GEMMs rewritten as such; group: neighbouring query heads, in the last
    batch axis, that share keys and values.
    """

    fusion: Fusion
    graph: AttentionGraph
    group: int

    @cached_property
    def rounded(self) -> Value | None:
        """Return the 16-bit weights that the second GEMM reads, or None without rounding."""
        weights = self.lowering(self.graph.scores, 1).at_home(self.graph.weights)
        while not weights.dtype.is_half:
            if weights.node is None or not weights.node.op.converts:
                return None
            (weights,) = weights.operands
        return weights.value

    @property
    def queries(self) -> int:
        """Return the queries per head."""
        return self.graph.m.value

    @property
    def rows(self) -> int:
        """Return the queries that share keys and values."""
        return self.group * self.queries

    @property
    def shares_more(self) -> bool:
        """Return whether more heads read the same keys, as rows of other tiles."""
        batch = self.graph.scores.domain.axes[:-2]
        heads = batch[-1].extent if batch else dim(1)
        more = range(2 * self.group, MOST_SHARED + 1, self.group)
        groups = (g for g in more if heads.divide(g) is not None)
        return any(_shared(replace(self, group=g)) is None for g in groups)

    @property
    def batches(self) -> Dim:
        """Return the number of batches times heads of keys."""
        shared = product(a.extent for a in self.graph.scores.domain.axes[:-2]).divide(self.group)
        assert shared is not None
        return shared

    @property
    def batch(self) -> Var:
        """Return the loop variable of the batch and the key head."""
        return Var(BATCH, self.batches)

    @property
    def row_variables(self) -> frozenset[Var]:
        """Return the loop variables of a query: its head in the group, and its index."""
        return frozenset({Var(HEAD, dim(self.group)), Var(QUERY, self.graph.m)})

    def row_axes(self, part: Part) -> dict[Var, Index]:
        """Return the batch axes and query axis of a part in loop variables."""
        *batch, row, _ = part.domain.axes
        binding = {row: _number(QUERY, self.queries)}
        if batch:
            *outer, inner = batch
            shared = inner.extent.divide(self.group)
            assert shared is not None
            places = delinearize(of_var(self.batch), [*(a.extent for a in outer), shared])
            places = (*places[:-1], places[-1] * self.group + _number(HEAD, self.group))
            binding |= dict(zip(batch, places, strict=True))
        return binding

    def axes(self, part: Part, width: int) -> Axes:
        """Return the loop variables of a row and its columns."""
        chunks = part.domain.axes[-1].extent.divide(width)
        assert chunks is not None
        lane = Var("i", dim(width))
        return Axes(Var(QUERY, self.graph.m), Var("chunk", chunks), lane, width)

    def lowering(self, part: Part, width: int) -> Lowering:
        """Return the lowering of a part in loop variables."""
        axes = self.axes(part, width)
        column = of_var(axes.chunk) * width + of_var(axes.lane)
        binding = {**self.row_axes(part), part.domain.axes[-1]: column}
        return Lowering(part.epilogue.fusion, part.domain, binding)

    def softmax(self, width: int) -> Softmax:
        """Return the softmax in loop variables."""
        scores = self.graph.scores
        found = find_softmax(scores, self.graph.weights, self.lowering(scores, width))
        assert isinstance(found, Softmax)
        return found

    def limits(self, scores: Instance, width: int) -> list[Limit]:
        """Return the limits of visible keys that are data of each batch."""
        axes = self.axes(self.graph.scores, width)
        return limits_of(scores, axes, frozenset({self.batch}))

    def operand(self, number: int) -> Instance | Refusal:
        """Return the load of the queries, keys or values in loop variables, or why it is
        unsupported.
        """
        if number not in self._operands:
            self._operands[number] = self._operand(self.graph.sources[number])
        return self._operands[number]

    @cached_property
    def _operands(self) -> dict[int, Instance | Refusal]:
        return {}

    def _operand(self, source: Source) -> Instance | Refusal:
        key = self.graph.scores.domain.axes[-1]
        binding = {**self.row_axes(self.graph.scores), key: of_var(Var(KEY, self.graph.n))}
        for axis in (source.own, source.along):
            binding.setdefault(axis, of_var(feature(axis.extent)))
        other = _not_lowered(self.fusion, source.value)
        if other is not None:
            because = f"`{source.value.name}` is computed by `{other.op.name}`"
            return Refusal("operand", f"{because}; it must be in memory")
        at = tuple(c.substitute(binding) for c in source.at)
        found = Lowering(self.fusion, self.graph.scores.domain, binding).at(source.value, at, ())
        while found.kind == "op" and found.node is not None and found.node.op.converts:
            (wide,), kept = found.operands, found.dtype
            if not (wide.dtype.is_half and not kept.is_half and kept.is_float):
                break
            found = wide
        if found.kind != "load" or found.conditions:
            return Refusal("operand", f"`{source.value.name}` is computed; it must be in memory")
        return found


def _not_lowered(fusion: Fusion, value: Value) -> Node | None:
    """Return an operation that a value depends on and that cannot be lowered to scores' axes."""
    seen: set[Value] = set()
    stack = [value]
    while stack:
        node = fusion.producer.get(stack.pop())
        if node is None or seen.issuperset(node.outputs):
            continue
        if node.op.access is None and node.op.family not in ("pointwise", "random", "factory"):
            return node
        seen.update(node.outputs)
        stack.extend(v for v in node.inputs if v.dim is None)
    return None


def feature(extent: Dim) -> Var:
    """Return the loop variable of the features of an operand."""
    return Var("feature", extent)


def start_of(operand: Instance, facts: Facts) -> Index | None:
    """Return the address of an operand's first feature; None if cp.async cannot copy its rows."""
    assert operand.address is not None
    features = [v for v in operand.address.variables if v.name == "feature"]
    if len(features) != 1 or operand.address.coefficient(features[0]) != 1:
        return None
    return lane_zero(operand.address, features[0], CHUNK, facts)


def find_decode(fusion: Fusion) -> Decode | Refusal:
    """Return the decode attention that a segment is, or why it is not one."""
    fusion = as_products(fusion)
    graph = find_graph(fusion)
    if isinstance(graph, Refusal):
        return graph
    extents = unsupported_extents(graph)
    if extents is not None:
        return extents
    for group in groups_of(graph):
        decode = Decode(fusion, graph, group)
        refusal = _shared(decode)
        if refusal is None:
            return _check_half_operands(decode) or decode
        if refusal.rule != "heads":
            return refusal
    return Refusal("heads", "no query heads share keys")


def unsupported_extents(graph: AttentionGraph) -> Refusal | None:
    """Return why a tile does not support the queries or features of an attention, or None."""
    if not graph.m.is_const or not 0 < graph.m.value <= MOST_ROWS:
        return Refusal("queries", f"{graph.m} queries per head; a tensor-core tile has {MOST_ROWS}")
    for extent in (graph.features, graph.value_features):
        if not extent.is_const or extent.value % 16 or not 0 < extent.value <= 256:
            because = f"{extent} features per head; must be a multiple of 16, at most 256"
            return Refusal("features", because)
    return None


def groups_of(graph: AttentionGraph) -> Iterator[int]:
    """Yield how many heads may be rows of one tile, largest first."""
    batch = graph.scores.domain.axes[:-2]
    heads = batch[-1].extent if batch else dim(1)
    for group in range(MOST_ROWS // graph.m.value, 1, -1):
        if heads.divide(group) is not None:
            yield group
    yield 1


def _shared(decode: Decode) -> Refusal | None:
    """Return why keys and values are not shared by all rows, or are not in memory."""
    head = Var(HEAD, dim(decode.group))
    for number in (1, 2):
        operand = decode.operand(number)
        if isinstance(operand, Refusal):
            return operand
        if head in operand.variables:
            return Refusal("heads", f"`{operand.name}` has separate keys for each head")
    return None


def _check_half_operands(decode: Decode) -> Refusal | None:
    """Return why operands are not 16-bit rows that cp.async can copy."""
    kinds: set[DType] = set()
    for number in range(3):
        operand = decode.operand(number)
        if isinstance(operand, Refusal):
            return operand
        kinds.add(operand.dtype)
        if start_of(operand, Facts(decode.fusion.hints)) is None:
            because = f"the rows of `{operand.name}` are not aligned to 16 bytes"
            return Refusal("operand", because)
    if len(kinds) != 1 or not kinds <= {BF16, F16}:
        return Refusal("dtype", "queries, keys and values are not all bf16, or all f16")
    if decode.rounded is None or decode.rounded.dtype not in kinds:
        because = f"`{decode.graph.weights.name}` is not rounded to {kinds.pop()}"
        return Refusal("dtype", because)
    return None


def _number(name: str, extent: int) -> Index:
    return of_var(Var(name, dim(extent))) if extent > 1 else index(0)
