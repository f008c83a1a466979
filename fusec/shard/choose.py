"""Choose the sharding of a node's results during its computation, and that of its operands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.ir.dim import product
from fusec.ir.dtype import BOOL
from fusec.ir.graph import Node, Value
from fusec.ir.roles import Combine
from fusec.ir.sharding import STREAM, Parts, Sharding
from fusec.shard.axes import Axes, is_reshape, pieces_of, reshaped
from fusec.shard.slices import has_blocks

REDUCTIONS = {
    Combine.SUM: "sum",
    Combine.PRODUCT: "prod",
    Combine.MAXIMUM: "max",
    Combine.MINIMUM: "min",
}
"""How ranks combine partial results of each reduction."""


@dataclass(frozen=True)
class Choice:
    """How a node is computed.

    operands: the sharding required of each, None for a scalar. result: the sharding of its results,
    without the axes of `partial`, over which ranks still have to combine them by `reduction`.
    wanted: their final sharding. sent: the axis of `partial` whose ranks receive the slices of the
    loop.
    """

    operands: tuple[Sharding | None, ...]
    result: Sharding
    wanted: Sharding
    partial: tuple[str, ...] = ()
    reduction: str = ""
    sent: str | None = None

    @property
    def outside(self) -> Choice:
        """Return how the node is computed outside of loops if none of its operands has slices."""
        operands = (None if own is None else own.without(STREAM) for own in self.operands)
        result = self.result.without(STREAM)
        return replace(self, operands=tuple(operands), result=result, sent=None)


Given = Sequence[Sharding | None]
"""The shardings of a node's operands, None for scalars."""


def choose(
    node: Node, axes: Axes, given: Given, said: Sharding | None, sizes: Mapping[str, int]
) -> Choice:
    """Return how a node is computed from operands with given shardings.

    said: the sharding of its results in the file. sizes: by symbol; if operands disagree, the
    largest one decides, so that less is communicated.
    """
    if is_reshape(node):
        return _reshape(node, given, said)
    rank = node.output.rank
    joined = _joined(axes, given, rank, _weightiest_first(node, given, sizes))
    reduction = _reduction(node)
    summed = _summed(node, axes, given, joined)
    partial = tuple(dict.fromkeys(a for parts in summed.values() for a in _named(parts)))
    sent = None
    if said is None:
        result = wanted = joined
    else:
        wanted = said
        result, sent = _computed(axes, joined, said, partial)
    operands = tuple(
        None if own is None else _needed(k, own, axes, result, summed)
        for k, own in enumerate(given)
    )
    return Choice(operands, result, wanted, partial, reduction, sent)


def part_of(node: Node, axes: Axes, given: Given, wanted: Sharding) -> Choice:
    """Return how a node without reductions is computed in a wanted sharding, as far as possible."""
    legal = (parts if k in axes.open else () for k, parts in enumerate(wanted.dims))
    result = Sharding(tuple(legal))
    operands = (
        None if own is None else _needed(k, own, axes, result, {}) for k, own in enumerate(given)
    )
    return Choice(tuple(operands), result, result)


def _reduction(node: Node) -> str:
    if node.op.family == "contraction":
        return "sum"
    if node.op.family != "reduction" or node.op.combine is None or node.output.dtype == BOOL:
        return ""
    return REDUCTIONS.get(node.op.combine, "")


def _named(parts: Parts) -> Iterable[str]:
    return (p.axis for p in parts if p.axis is not None)


def _without(parts: Parts, axes: Collection[str]) -> Parts:
    return Sharding((parts,)).without(*axes).dims[0]


def _weightiest_first(node: Node, given: Given, sizes: Mapping[str, int]) -> Sequence[int]:
    """Return the indices of a node's tensor operands: those with slices first, then the largest."""

    def weight(k: int) -> tuple[int, int]:
        own, value = given[k], node.operands[k]
        assert own is not None
        assert isinstance(value, Value)
        size = product(value.shape).evaluate(sizes) * value.dtype.size
        return len(own.streamed), size

    return sorted((k for k, own in enumerate(given) if own is not None), key=weight, reverse=True)


def _joined(axes: Axes, given: Given, rank: int, order: Sequence[int]) -> Sharding:
    """Return the results' sharding implied by the operands; the first in order takes precedence."""
    dims: list[Parts] = [()] * rank
    used, streamed = dict[str, int](), set[int]()
    for k in order:
        own = given[k]
        if own is None:
            continue
        slices = {axes.same.get((k, a)) for a in own.streamed}
        if None in slices or (streamed and not slices <= streamed):
            own = own.without(STREAM)  # its slices are not those of the results
        for a, parts in enumerate(own.dims):
            at = axes.same.get((k, a))
            if at is None:
                continue
            free = _without(parts, [x for x in _named(parts) if used.get(x, at) != at])
            if len(free) > len(dims[at]) and free[: len(dims[at])] == dims[at]:
                dims[at] = free
                used |= {x: at for x in _named(free) if x != STREAM}
        streamed = {at for at, parts in enumerate(dims) if STREAM in _named(parts)}
    return _in_blocks_of(Sharding(tuple(dims)).normal, given)


def _in_blocks_of(found: Sharding, others: Given) -> Sharding:
    """Return a sharding without slices of blocks unless an operand has blocks too.

    Such blocks come from a mesh axis; extents are not known to be multiples of them.
    """
    said = any(own is not None and has_blocks(own) for own in others)
    return found if said or not has_blocks(found) else found.without(STREAM)


def _summed(
    node: Node, axes: Axes, given: Given, joined: Sharding
) -> Mapping[tuple[int, int], Parts]:
    """Return how the dims that a node reduces are divided over ranks, which combine results.

    An axis that divides a dim of the results divides no other. The summed dims of both factors are
    divided alike.
    """
    kept = {STREAM, *(axis for axis, _ in joined.axes)}
    found = dict[tuple[int, int], Parts]()
    if not _reduction(node):
        return found
    for k, a in sorted(axes.summed):
        own = given[k]
        found[k, a] = () if own is None else _without(own.dims[a], kept)
    if node.op.family == "contraction":
        common = next((parts for parts in found.values() if parts), ())
        found = dict.fromkeys(found, common)
    return found


def _computed(
    axes: Axes, joined: Sharding, said: Sharding, partial: tuple[str, ...]
) -> tuple[Sharding, str | None]:
    """Return (how results with a declared sharding are computed, the axis that takes slices)."""
    legal = (parts if k in axes.open else () for k, parts in enumerate(said.dims))
    result = Sharding(tuple(legal)).without(*partial)
    sent = None
    if said.along(STREAM) is None:
        sent = next((x for x in partial if _takes_slices(x, joined, said)), None)
        if sent is not None:
            result = _sliced(said, sent, joined).without(*partial)
        else:
            joined = joined.without(STREAM)
    if result.streamed and result.streamed != joined.streamed:
        joined = joined.without(STREAM)
    used = {axis for axis, _ in result.axes}
    dims = list(result.dims)
    for k, parts in enumerate(joined.dims):
        more = _without(parts, used - {STREAM, *_named(dims[k])})
        if len(more) > len(dims[k]) and more[: len(dims[k])] == dims[k]:
            dims[k] = more
    return _in_blocks_of(Sharding(tuple(dims)).normal, (joined, said)), sent


def _sliced(sharding: Sharding, axis: str, joined: Sharding) -> Sharding:
    """Return a sharding with the slices of a loop instead of the parts of a mesh axis."""
    slices = next(p for parts in joined.dims for p in parts if p.axis == STREAM)
    dims = (tuple(slices if p.axis == axis else p for p in parts) for parts in sharding.dims)
    return Sharding(tuple(dims))


def _takes_slices(axis: str, joined: Sharding, said: Sharding) -> bool:
    """Return whether a loop's slices are the parts that ranks along an axis need."""
    at = said.along(axis)
    if at is None or joined.streamed != (at,):
        return False
    place = [p.axis for p in said.dims[at]].index(axis)
    own = joined.dims[at][: place + 1]
    if len(own) <= place or own[:place] != said.dims[at][:place]:
        return False
    outer = product(p.parts for p in own[:place] if p.axis is None)
    pieces = pieces_of(own[place], said.dims[at][place].parts, at, outer)
    return own[place].axis == STREAM and pieces is not None


def _needed(
    k: int, own: Sharding, axes: Axes, result: Sharding, summed: Mapping[tuple[int, int], Parts]
) -> Sharding:
    dims = list[Parts]()
    for a in range(len(own.dims)):
        at = axes.same.get((k, a))
        dims.append(summed.get((k, a), ()) if at is None else result.dims[at])
    return Sharding(tuple(dims))


def _reshape(node: Node, given: Given, said: Sharding | None) -> Choice:
    (own,) = given
    source, target = node.operands[0].shape, node.output.shape
    assert own is not None
    carried, lost = reshaped(own, source, target)
    if said is None or said.dims == carried.dims:
        return Choice((own.without(*lost),), carried, carried)
    backward, missing = reshaped(said, target, source)
    result = said.without(*missing)
    return Choice((backward,), result, said)


# Illegal loops.

IN_ORDER = ("scan", "sort")
"""Families with dependences between slices along the axis that they process in order."""
ENDS_LOOPS = (*IN_ORDER, "reduction", "contraction")
"""Families that need all slices along an axis that they read whole: a loop over it ends there."""


def ends_loop(node: Node, axes: Axes, k: int, at: int) -> bool:
    """Return whether a node needs all slices of dim `at` of its operand `k` at once."""
    return node.op.family in ENDS_LOOPS and (k, at) not in axes.same


def check_loop(node: Node, axes: Axes, said: Sharding | None) -> None:
    """Raise FusecError if the file declares a loop over a dim with dependences between its slices.

    said: the declared sharding of the node's results. A reader that needs all slices of an operand
    is allowed: the operand's loop ends before it.
    """
    for at in () if said is None else said.streamed:
        if said is not None and at not in axes.open and node.op.family in IN_ORDER:
            raise carried_dependence(node, at, node.output.name, said)


def carried_dependence(node: Node, at: int, name: str, said: Sharding) -> FusecError:
    """Return the error for a loop over a dim of `name` that carries a dependence."""
    return FusecError(
        f"a loop over dim {at} of `{name}` carries a dependence through `{node.op.name}`",
        span=said.span or node.span,
        notes=[f"the sharding of `{name}`: {said}"],
        help="slice another dim",
    )
