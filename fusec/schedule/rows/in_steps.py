"""Reductions over several axes in two steps: over some of them first, then over the rest.

Axes outside the kept ones in memory are reduced first if those inside, like the channels of a
group, are too short to be read separately; so are axes that another reduction of the same tensors
also reduces, so that one pass serves both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from fusec.index.domain import Domain, find_domain
from fusec.index.instances import Instance
from fusec.ir.dim import product
from fusec.ir.dtype import F32, F64
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ir.roles import Combine
from fusec.passes.rewrite import Rewriter, Rule
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.strides import axis_lowering, reach_by_lines
from fusec.segment.protocol import Redefinition, Refusal
from fusec.segment.segmented import extract
from fusec.segment.traffic import LINE
from fusec.target import Target

AGAIN = frozenset(
    {
        Combine.SUM,
        Combine.PRODUCT,
        Combine.MAXIMUM,
        Combine.MINIMUM,
        Combine.SOME,
        Combine.EVERY,
    }
)
"""Reductions that combine partial results like elements."""
MOST_REACHED = 64
"""Most values computed from a segment's inputs that are searched for other reductions of these."""


def short_piece(
    fusion: Fusion, domain: Domain, reduced: Collection[Var]
) -> tuple[frozenset[Var], int]:
    """Return the reduced axes inside the kept ones, and the bytes that they span in memory.

    For the largest load; none if they span at least a cache line, or if nothing is reduced outside.
    """
    load = _largest(fusion, domain)
    strides: list[tuple[int, Var]] = []
    for axis in domain.axes if load is not None else ():
        step = None if load is None or load.address is None else load.address.coefficient(axis)
        if step is None:
            return frozenset(), 0
        if step != 0 and axis.extent != 1:
            strides.append((step.evaluate(fusion.hints), axis))
    inside: list[Var] = []
    elements = 1
    for step, axis in sorted(strides, key=lambda each: each[0]):
        if axis not in reduced or step != elements:
            break
        elements *= axis.extent.evaluate(fusion.hints)
        inside.append(axis)
    outside = any(a.extent != 1 and a not in inside for a in reduced)
    short = 0 if load is None else elements * load.dtype.size
    if not inside or not outside or len(strides) == len(inside) or short >= LINE:
        return frozenset(), 0
    return frozenset(inside), short


def reach_of_pieces(problem: RowsProblem, along: float, target: Target) -> float:
    """Return the fraction of the bandwidth for rows in short segments; `along` if contiguous.

    Each segment is on its own line. For [32, 4096, 32, 10] 16-bit floats, in segments of 20 bytes,
    an H200 reached 0.21 and 0.23.
    """
    _, piece = short_piece(problem.fusion, problem.domain, problem.domain.reduced_axes)
    strided = target.reach("inner_persistent", "strided")
    return along if not piece else reach_by_lines(along, strided, -(-LINE // piece), 1)


def outside_first(segment: Fusion, fusion: Fusion) -> tuple[Redefinition, ...]:
    """Return the redefinition that reduces the axes outside the kept ones first, if rows are short.

    It covers all reductions of the same axes of a segment's inputs.
    """
    names = {v.name for v in segment.values}
    found = _with_others(segment, fusion) or (segment, find_domain(segment))
    together, domain = found
    if isinstance(domain, Refusal):
        return ()
    for node, axes in domain.reduced.items():
        if node.output.name not in names:
            continue
        inside, piece = short_piece(together, domain, axes)
        if piece:
            alike = [n for n, others in domain.reduced.items() if others == axes]
            steps = {n.output.name: _dims(n, domain, axes - inside) for n in alike}
            because = (
                f"rows are contiguous in chunks of {piece} bytes; the outer dims are reduced first"
            )
            return _redefinition(alike, steps, because)
    return ()


def shared_first(segment: Fusion, fusion: Fusion) -> tuple[Redefinition, ...]:
    """Return the redefinition that first reduces the axes that other reductions reduce, too."""
    found = _with_others(segment, fusion)
    if found is None:
        return ()
    domain, names = found[1], {v.name for v in segment.values}
    own = {n: axes for n, axes in domain.reduced.items() if n.output.name in names}
    for node, axes in domain.reduced.items():
        for common in {axes & sums for sums in own.values() if axes & sums != sums}:
            steps = {n.output.name: _dims(n, domain, common) for n in own}
            because = f"`{node.output.name}` reduces some of the axes that its input reduces"
            redefinition = _redefinition(own, steps, because)
            if redefinition:
                return redefinition
    return ()


def _with_others(segment: Fusion, fusion: Fusion) -> tuple[Fusion, Domain] | None:
    """Return a segment's reductions with others of the same large tensors, and their domain."""
    names = {n.output.name for n in segment.nodes if n.op.family == "reduction"}
    own = [n for n in fusion.nodes if n.output.name in names]

    def size(value: Value) -> int:
        return product(value.shape).evaluate(fusion.hints) * value.dtype.size

    made = _with_producers(fusion, own)
    inside = {v for n in made for v in n.outputs}
    sources = [v for v in dict.fromkeys(v for n in made for v in n.inputs) if v not in inside]
    largest = max(map(size, sources), default=0)
    stack = [v for v in sources if 4 * size(v) >= largest]
    reached, others = dict.fromkeys(stack), list[Node]()
    while stack and len(reached) < MOST_REACHED:
        for node in fusion.users.get(stack.pop(), ()):
            if node.op.family == "reduction":
                others.append(node)
            elif node.output not in reached and node.op.family in ("pointwise", "movement"):
                reached[node.output] = None
                stack.append(node.output)
    if set(others) <= set(own):
        return None
    together = extract(fusion, _with_producers(fusion, [*own, *others]), fusion.name)
    domain = find_domain(together)
    return None if isinstance(domain, Refusal) else (together, domain)


def _with_producers(fusion: Fusion, nodes: Iterable[Node]) -> list[Node]:
    """Return nodes with their producers, through movement and elementwise operations only."""
    found: dict[Node, None] = {}
    stack = list(nodes)
    while stack and len(found) < MOST_REACHED:
        node = stack.pop()
        if node in found:
            continue
        found[node] = None
        makers = (fusion.producer.get(v) for v in node.inputs)
        stack += (m for m in makers if m is not None and m.op.family in ("pointwise", "movement"))
    return list(found)


def _largest(fusion: Fusion, domain: Domain) -> Instance | None:
    """Return the largest load that is reduced."""
    loads = (i for i in axis_lowering(fusion, domain).made.values() if i.kind == "load")

    def size(load: Instance) -> int:
        assert load.value is not None
        return product(load.value.shape).evaluate(fusion.hints) * load.dtype.size

    return max((i for i in loads if i.value is not None), key=size, default=None)


def _dims(node: Node, domain: Domain, first: Collection[Var]) -> tuple[int, ...]:
    """Return the reduced dims of a node that run over axes, () if some do so only in part."""
    at = domain.homes[node.inputs[0]].coordinates
    found, dims = list[int](), tuple[int, ...](node.attributes["dims"])
    for k in dims:
        axes = at[k].variables
        if axes and axes <= set(first):
            found.append(k)
        elif axes & set(first):
            return ()
    return tuple(found)


def _redefinition(
    nodes: Iterable[Node], steps: Mapping[str, Sequence[int]], because: str
) -> tuple[Redefinition, ...]:
    """Return the redefinition of some reductions together, none if one has no two steps."""
    for node in nodes:
        first = steps[node.output.name]
        if not first or len(first) == len(node.attributes["dims"]) or not _has_steps(node):
            return ()
    name = next(iter(steps), "")
    return (Redefinition("in_steps", name, because, _rule(steps)),) if name else ()


def _has_steps(node: Node) -> bool:
    """Return whether a reduction equals one of partial results, without rounding in between.

    A variance equals one of its parts' variances and means only without a correction.
    """
    kinds = {v.dtype for v in (node.inputs[0], *node.outputs)}
    if node.op.combine is Combine.MOMENTS:
        plain = node.op.name.startswith("var")
        return plain and node.attributes["correction"] == 0 and kinds in ({F32}, {F64})
    if node.op.combine not in AGAIN or node.attributes.get("dtype") is not None:
        return False
    return len(kinds) == 1 and not node.output.dtype.is_half


def _rule(steps: Mapping[str, Sequence[int]]) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        first = steps.get(node.output.name)
        dims: tuple[int, ...] = node.attributes.get("dims", ())
        if first is None or node.op.family != "reduction" or not set(first) < set(dims):
            return None
        rest = tuple(d - sum(f < d for f in first) for d in dims if d not in first)
        if node.op.combine is Combine.MOMENTS:
            return _moments(node, work, tuple(first), rest)
        part = work.add(node, node.op.name, node.operands, {"dims": tuple(first)})
        return work.become(node, node.op.name, [part], {"dims": rest})

    return rule


def _moments(
    node: Node, work: Rewriter, first: tuple[int, ...], rest: tuple[int, ...]
) -> Sequence[Operand]:
    """Return variance and mean from equal parts: the mean of variances plus the means' variance."""
    attributes = {"dims": first, "correction": 0}
    spread, center = work.add_all(node, "var_mean", node.operands, attributes)
    count: Value | None = None
    for k in rest:
        one = work.add(node, "size", [center], {"dim": k})
        count = one if count is None else work.add(node, "mul", [count, one])
    assert count is not None
    mean = work.add(node, "div", [work.add(node, "sum", [center], {"dims": rest}), count])
    kept = tuple(k in rest for k in range(center.rank))
    middle = work.add(node, "broadcast", [mean], {"is_broadcast_dim": kept})
    away = work.add(node, "sub", [center, middle])
    squares = work.add(node, "add", [spread, work.add(node, "mul", [away, away])])
    var = work.add(node, "div", [work.add(node, "sum", [squares], {"dims": rest}), count])
    return (var, mean)[: len(node.outputs)]
