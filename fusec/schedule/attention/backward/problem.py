"""Recognizes the backward of an attention: five GEMMs around one graph of weights.

shares = graph(queries keys^T) and pulls = graph(shares, gradients values^T); the results are pulls
keys (of queries), pulls^T queries (of keys) and shares^T gradients (of values).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Domain, Refusal, find_domain
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.dim import Dim, product
from fusec.ir.dtype import BF16, F16, F32, DType
from fusec.ir.expression import Index, Var, contiguous_strides, linearize, of_var
from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.ops.acts import Act
from fusec.schedule.attention.forward.problem import unrounded
from fusec.schedule.attention.masks import Bound, does, masks_of
from fusec.schedule.attention.part import ON_CHIP, Part, dependents, find_part
from fusec.schedule.matmul.epilogue import find_epilogue
from fusec.schedule.matmul.operands.addresses import coordinates_of, resolve_address
from fusec.schedule.matmul.operands.operand import Operand, operand_of
from fusec.schedule.requirements import BACKWARD_GEMMS

MOVED = "moved"
"""The name of the result of the GEMM of gradients and values."""


@dataclass(frozen=True)
class Weights:
    """The instances of both weights before rounding.

    shares: computed from queries keys^T alone; pulls: from shares and gradients values^T.
    """

    shares: Instance
    pulls: Instance


@dataclass(frozen=True)
class Between:
    """The graph from the first two GEMMs to both weights.

    part: its fusion, whose `sums` are those of queries and keys, and its domain: batches, query,
    key. moved: the input that stands for the result of gradients values^T. shares, pulls: the left
    operands of the GEMMs of values and of keys, with keys as rows.
    """

    part: Part
    moved: Value
    shares: Value
    pulls: Value

    def weights(self, lowering: Lowering) -> Weights:
        """Return the weights in the instances of a lowering."""
        shares, pulls = (
            unrounded(_at(lowering, self.part.domain, v, of_keys=True))
            for v in (self.shares, self.pulls)
        )
        return Weights(shares, pulls)


@dataclass(frozen=True)
class Backward:
    """The backward of an attention, over batches.

    first: queries keys^T; second: gradients values^T. of_queries, of_keys, of_values: the other
    GEMMs, each with the graph on its results, over batches, rows and features. bounds: limits of
    the keys that a query sees, if every query sees at least one; others are ordinary masks.
    """

    first: Node
    second: Node
    queries: Operand
    keys: Operand
    values: Operand
    gradients: Operand
    between: Between
    of_queries: tuple[Node, Part]
    of_keys: tuple[Node, Part]
    of_values: tuple[Node, Part]
    bounds: tuple[Bound, ...] = ()

    @property
    def batches(self) -> Dim:
        """Return the number of batches times heads."""
        return product(a.extent for a in self.between.part.domain.axes[:-2])

    @property
    def m(self) -> Dim:
        """Return the number of queries."""
        return self.between.part.domain.axes[-2].extent

    @property
    def n(self) -> Dim:
        """Return the number of keys."""
        return self.between.part.domain.axes[-1].extent

    @property
    def features(self) -> Dim:
        """Return the features of a query, and of a key."""
        return self.first.operands[0].shape[-1]

    @property
    def value_features(self) -> Dim:
        """Return the features of a value, and of a gradient."""
        return self.second.operands[0].shape[-1]

    @property
    def dtype(self) -> DType:
        """Return the type of all operands in memory."""
        return self.queries.buffer.dtype


def find_backward(fusion: Fusion) -> Backward | Refusal:
    """Return the attention backward that a segment is, or why it is not one."""
    products = [n for n in fusion.nodes if n.op.family == "contraction"]
    for node in products:
        if node.op.product is None or node.op.lookup is not None or len(node.operands) > 2:
            return Refusal("operation", f"`{node.op.name}` with a bias or groups is not attention")
    later = {
        n for p in products for n in products if n is not p and n.output in dependents(fusion, p)
    }
    inner = [n for n in products if n not in later]
    if len(products) != BACKWARD_GEMMS or len(inner) != 2:
        because = (
            f"the pattern needs 5 GEMMs, 3 of them dependent; found {len(products)} and "
            f"{len(later)}"
        )
        return Refusal("contraction", because)
    outer = [n for n in products if n in later]
    lefts = [n.operands[0] for n in outer]
    if not all(isinstance(v, Value) and v not in fusion.input_of for v in lefts):
        return Refusal(
            "contraction", "a GEMM on the result of another must take it as its left operand"
        )
    # Shares depend on the first GEMM alone, pulls on both.
    second, first = sorted(
        inner, key=lambda n: sum(o.output in dependents(fusion, n) for o in outer)
    )
    between = _between(fusion, first, second, outer)
    if isinstance(between, Refusal):
        return between
    return _backward(fusion, first, second, *between)


def _between(
    fusion: Fusion, first: Node, second: Node, outer: Sequence[Node]
) -> tuple[Between, dict[str, Node]] | Refusal:
    """Return the graph of weights, and the GEMM of each gradient by name."""
    outputs = dict.fromkeys(v for n in outer if isinstance(v := n.operands[0], Value))
    graph = replace(fusion, outputs=tuple(Output(v) for v in outputs))
    moved = find_epilogue(graph, second, name=MOVED)
    if isinstance(moved, Refusal):
        return moved
    epilogue = find_epilogue(moved.fusion, first)
    if isinstance(epilogue, Refusal):
        return epilogue
    for node in epilogue.fusion.nodes:
        if node.op.family not in ON_CHIP or node.op.family == "reduction":
            return Refusal("operation", f"`{node.op.name}` is not computed between the GEMMs")
    domain = find_domain(epilogue.fusion, epilogue.sums)
    if isinstance(domain, Refusal):
        return domain
    if len(domain.axes) < 2 or moved.sums.shape != epilogue.sums.shape:
        return Refusal("domain", f"`{second.output.name}` is not a matrix of queries and keys")
    part = Part(epilogue, domain)
    lowering = part.lowering(1)
    roles: dict[str, tuple[Node, Value, Instance]] = {}
    for node in outer:
        value = node.operands[0]
        assert isinstance(value, Value)
        for of_keys in (False, True):
            if value.shape != _extents(domain, of_keys=of_keys):
                continue
            weights = _at(lowering, domain, value, of_keys=of_keys)
            read = _read_at_home(lowering, part, moved.sums, weights)
            if read is not None:
                name = "queries" if not of_keys else "keys" if moved.sums in read else "values"
                roles[name] = node, value, weights
    if set(roles) != {"queries", "keys", "values"}:
        because = "its weights do not match the queries' (once) and the keys' (twice)"
        return Refusal("contraction", because)
    if roles["queries"][2] is not roles["keys"][2]:
        return Refusal("contraction", "gradients of queries and keys use different weights")
    between = Between(part, moved.sums, roles["values"][1], roles["keys"][1])
    weights = between.weights(lowering)
    if {weights.shares.dtype, weights.pulls.dtype} != {F32}:
        return Refusal("dtype", "weights are not computed in f32")
    others = _producers_until(weights.pulls, weights.shares)
    if any(i.kind == "load" and i.value is epilogue.sums for i in others):
        because = f"`{first.output.name}` is read again where `{second.output.name}` is weighted"
        return Refusal("softmax", because)
    return between, {name: node for name, (node, _, _) in roles.items()}


def _extents(domain: Domain, *, of_keys: bool) -> tuple[Dim, ...]:
    *batch, query, key = (a.extent for a in domain.axes)
    return (*batch, key, query) if of_keys else (*batch, query, key)


def _at(lowering: Lowering, domain: Domain, value: Value, *, of_keys: bool) -> Instance:
    """Return the left operand of a GEMM at its row and depth, one of them the key."""
    *batch, query, key = (of_var(a).substitute(lowering.binding) for a in domain.axes)
    at = (*batch, key, query) if of_keys else (*batch, query, key)
    return lowering.at(value, at, ())


def _read_at_home(
    lowering: Lowering, part: Part, moved: Value, weights: Instance
) -> frozenset[Value] | None:
    """Return the GEMM results that weights read; None if those are of another query or key."""
    at = tuple(of_var(a).substitute(lowering.binding) for a in part.domain.axes)
    sums = part.epilogue.sums
    home: Index = linearize(at, contiguous_strides(sums.shape))
    found: set[Value] = set()
    for instance in instances_under([weights]):
        if instance.kind == "load" and instance.value in (sums, moved):
            if instance.address != home or instance.conditions:
                return None
            assert instance.value is not None
            found.add(instance.value)
    return frozenset(found) if sums in found else None


def _producers_until(root: Instance, end: Instance) -> Iterable[Instance]:
    """Yield an instance and its producers, without `end` and the producers of `end`."""
    seen, stack = {end}, [root]
    while stack:
        instance = stack.pop()
        if instance not in seen:
            seen.add(instance)
            yield instance
            stack.extend(instance.operands)


def _backward(
    fusion: Fusion, first: Node, second: Node, between: Between, nodes: dict[str, Node]
) -> Backward | Refusal:
    """Return the attention backward around an already recognized graph of weights."""
    operands = _operands(fusion, first, second, between.part.domain)
    if isinstance(operands, Refusal):
        return operands
    queries, keys, values, gradients = operands
    parts: dict[str, tuple[Node, Part]] = {}
    for name, right in (("queries", keys), ("keys", queries), ("values", gradients)):
        found = _result(fusion, nodes[name], between.part.domain, right, of_keys=name != "queries")
        if isinstance(found, Refusal):
            return found
        parts[name] = nodes[name], found
    written = sum(len(part.epilogue.fusion.outputs) for _, part in parts.values())
    if written != len(fusion.outputs):
        return Refusal("outputs", "an output depends on several results, or on weights")
    for value in (between.shares, between.pulls):
        if value.dtype != queries.buffer.dtype:
            because = f"`{value.name}` is {value.dtype}, not {queries.buffer.dtype}"
            return Refusal("dtype", because)
    return Backward(
        first, second, queries, keys, values, gradients, between,
        parts["queries"], parts["keys"], parts["values"], _bounds(between),
    )  # fmt: skip


def _operands(
    fusion: Fusion, first: Node, second: Node, domain: Domain
) -> tuple[Operand, Operand, Operand, Operand] | Refusal:
    """Return queries, keys, values and gradients as operands in memory."""
    *batch, query, key = domain.axes
    found: dict[tuple[Node, int], Operand] = {}
    for node in (first, second):
        depth = Var("k", node.operands[0].shape[-1])
        left, right, columns = coordinates_of(node, domain.axes, depth)
        if columns != 1:
            return Refusal("operation", "a matrix-vector product is not attention")
        for place, at, own in ((0, left, query), (1, right, key)):
            where = resolve_address(fusion, node.inputs[place], at)
            if isinstance(where, Refusal):
                return where
            operand = operand_of(where, tuple(batch), (own,), depth)
            if isinstance(operand, Refusal):
                return operand
            found[node, place] = operand
    kinds = {o.buffer.dtype for o in found.values()}
    if len(kinds) != 1 or not kinds <= {BF16, F16}:
        return Refusal("dtype", "queries, keys, values and gradients are not all bf16, or all f16")
    return found[first, 0], found[first, 1], found[second, 1], found[second, 0]


def _result(
    fusion: Fusion, node: Node, domain: Domain, right: Operand, *, of_keys: bool
) -> Part | Refusal:
    """Return the graph on a GEMM of weights whose right operand is already loaded."""
    *batch, query, key = domain.axes
    row, depth = (key, query) if of_keys else (query, key)
    feature = Var("feature", node.output.shape[-1])
    _, at, columns = coordinates_of(node, (*batch, row, feature), depth)
    where = resolve_address(fusion, node.inputs[1], at)
    if isinstance(where, Refusal):
        return where
    operand = operand_of(where, tuple(batch), (feature,), depth)
    if isinstance(operand, Refusal):
        return operand
    same = (operand.buffer, operand.batch, operand.row, operand.depth)
    if columns != 1 or same != (right.buffer, right.batch, right.depth, right.row):
        because = f"`{node.output.name}` is not a GEMM with `{right.buffer.name}`"
        return Refusal("operand", because)
    outputs = tuple(o for o in fusion.outputs if o.value in dependents(fusion, node))
    part = find_part(replace(fusion, outputs=outputs), node)
    if isinstance(part, Refusal):
        return part
    extents = [a.extent for a in part.domain.axes]
    if extents != [*(a.extent for a in (*batch, row)), feature.extent]:
        return Refusal("domain", f"`{node.output.name}` does not have dims of rows and features")
    return part


def _bounds(between: Between) -> tuple[Bound, ...]:
    """Return the limits beyond which all weights are zero, if every query sees some key.

    A query that sees no key has no finite sum of exponentials, and its weights must not be skipped.
    """
    part = between.part
    weights = between.weights(part.lowering(1))
    if not does(weights.shares, Act.EXPONENTIATE) or not _scales(weights):
        return ()
    (less,) = weights.shares.operands
    if not does(less, Act.SUBTRACT):
        return ()
    found = [b for b, _ in masks_of(less.operands[0], part.axes(1))]
    own = all(b.by_row and _reaches_itself(b) for b in found)
    square = part.domain.axes[-2].extent == part.domain.axes[-1].extent
    return tuple(found) if own and (square or all(b.is_end for b in found)) else ()


def _reaches_itself(bound: Bound) -> bool:
    """Return whether a limit lets each query see the key with its own index."""
    return bound.offset.at_least(0) if bound.is_end else (0 - bound.offset).at_least(0)


def _scales(weights: Weights) -> bool:
    """Return whether pulls are shares multiplied by a factor."""
    stack = [weights.pulls]
    while stack:
        instance = stack.pop()
        if instance is weights.shares:
            return True
        if does(instance, Act.MULTIPLY):
            stack.extend(instance.operands)
    return False
