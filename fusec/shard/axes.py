"""How the axes of a node's operands and results are aligned, so that shardings propagate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, Shape, dim, floordiv, product
from fusec.ir.evaluate import Sizes, evaluate_attributes, extents
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.sharding import STREAM, Part, Parts, Sharding
from fusec.reference.axes import links_of

HIGHLY_DIVISIBLE = 720720
"""A multiple of all numbers up to 16, so that files can divide sizes without a remainder."""


@dataclass(frozen=True)
class Axes:
    """Which dims of a node's operands may be divided, and the corresponding dims of its results.

    same: the dim of the results by (operand, its dim). summed: the (operand, dim) that it sums or
    otherwise reduces over, so that parts give partial results. open: the dims of the results that
    may be divided.
    """

    same: Mapping[tuple[int, int], int]
    summed: frozenset[tuple[int, int]]
    open: frozenset[int]


def distinct_sizes(fusion: Fusion) -> dict[str, int]:
    """Return distinct sizes, none equal to another or to a number in the file by chance."""
    return {d.name: HIGHLY_DIVISIBLE * p for d, p in zip(fusion.dims, _primes(), strict=False)}


def _primes() -> Iterator[int]:
    number = 17
    while True:
        if all(number % k for k in range(2, int(number**0.5) + 1)):
            yield number
        number += 2


def axes_of(node: Node, sizes: Sizes) -> Axes:
    """Return how a node's axes are aligned, inferred with `distinct_sizes`."""
    shapes = [extents(o.type, sizes) if isinstance(o, Value) else () for o in node.operands]
    attributes = evaluate_attributes(node.attributes, sizes)
    links = links_of(node, attributes, shapes, extents(node.output.type, sizes))
    same = {(i, a): k for i, a, k in links.same}
    made = set(range(node.output.rank)) if _makes_any_part(node) else set[int]()
    read = {k for _, _, k in links.same}
    return Axes(same, frozenset((*links.summed, *_multiplied(node))), frozenset(read | made))


def _multiplied(node: Node) -> Iterator[tuple[int, int]]:
    """Yield the dims that a GEMM sums over, if its axes are known."""
    product, ranks = node.op.product, [len(o.shape) for o in node.operands]
    # No part of the summed elements contains whole groups.
    groups = node.op.lookup is not None and ranks[0] == ranks[1]
    if product is not None and node.op.links is not None and not groups:
        yield 0, ranks[0] - 1
        yield 1, ranks[1] - (1 if product.transposed or ranks[1] == 1 else 2)


def is_filled(node: Node) -> bool:
    """Return whether all elements of a node's result are equal, for any extents."""
    return node.op.family == "factory" and bool(node.op.extents)


def is_reshape(node: Node) -> bool:
    """Return whether a node's result is its operand's elements in the same order."""
    access = node.op.access
    return access is not None and access.view and access.along is None


def _makes_any_part(node: Node) -> bool:
    """Return whether a node can compute any part of a dim that no operand has."""
    access = node.op.access
    return access.repeats if access is not None else is_filled(node)


# Reshapes of shardings.


def reshaped(sharding: Sharding, source: Shape, target: Shape) -> tuple[Sharding, frozenset[str]]:
    """Return (the same parts in another shape, the axes that cannot be carried over).

    A part carries over if its boundaries coincide with boundaries of dims.
    """
    dims, lost = list[Parts](), set[str]()
    for before, after in _groups(source, target):
        if [source[k] for k in before] == [target[k] for k in after]:
            dims += [sharding.dims[k] for k in before]
            continue
        if any(p.of is not None for k in before for p in sharding.dims[k]):
            lost.add(STREAM)  # uneven slices do not begin at boundaries of other dims
            sharding = sharding.without(STREAM)
        factors = [p for k in before for p in _complete(sharding.dims[k], source[k])]
        extents = [target[k] for k in after]
        while (found := _dealt(factors, extents)) is None:
            gone = _least_wanted(factors)
            if gone is None:
                found = [()] * len(extents)
                break
            lost.add(gone)
            factors = [Part(None, p.parts) if p.axis == gone else p for p in factors]
        dims += found
    result = Sharding(tuple(dims)).normal
    twice = len(set(result.streamed)) < len(result.streamed)
    if twice or not slices_first(result):
        lost.add(STREAM)
    return result.without(*lost), frozenset(lost)


def _least_wanted(factors: list[Part]) -> str | None:
    axes = [p.axis for p in factors if p.axis is not None]
    return STREAM if STREAM in axes else axes[-1] if axes else None


def slices_first(sharding: Sharding) -> bool:
    """Return whether the stream's factor is the outermost of each dim of a rank's part."""
    for parts in sharding.dims:
        axes = [p.axis for p in parts]
        if STREAM in axes:
            return None not in axes[: axes.index(STREAM)]
    return True


def pieces_of(slices: Part, ranks: Dim, at: int, outer: Dim) -> int | None:
    """Return into how many slices of a loop each rank's part of a dim is divided.

    outer: the number of whole blocks that the dim is divided into first. None if a slice is not
    part of one rank's part, or not contiguous.
    """
    pieces = None if slices.of is not None else slices.parts.divide(ranks)
    if pieces is None or not pieces.is_const or (pieces != 1 and (at, outer) != (0, 1)):
        return None
    return pieces.value


def _complete(parts: Parts, extent: Dim) -> Parts:
    """Return the factors of a dim including the remaining one."""
    for part in parts:
        exact = extent.divide(part.parts)
        extent = floordiv(extent, part.parts) if exact is None else exact
    return (*parts, Part(None, extent))


def _groups(source: Shape, target: Shape) -> Iterator[tuple[range, range]]:
    """Yield the smallest groups of dims of two shapes that hold the same elements, in order."""
    ends = list[tuple[int, int]]()
    reached = [product(target[: k + 1]) for k in range(len(target))]
    last = 0
    for k in range(len(source)):
        size = product(source[: k + 1])
        found = next((j for j in range(last, len(target)) if reached[j] == size), None)
        if found is not None:
            last = found + 1
            ends.append((k + 1, last))
    ends = [*ends[:-1], (len(source), len(target))]
    begun = (0, 0)
    for end in ends:
        yield range(begun[0], end[0]), range(begun[1], end[1])
        begun = end


def _dealt(factors: list[Part], extents: list[Dim]) -> list[Parts] | None:
    """Return the factors of each of some dims, or None if one crosses a boundary."""
    left = list(Sharding((tuple(factors), ())).normal.dims[0])
    left.append(Part(None, product(p.parts for p in factors[_last_axis(factors) + 1 :])))
    dims = list[Parts]()
    for extent in extents:
        own = list[Part]()
        while extent != 1:
            if not left:
                return None
            part = left.pop(0)
            rest = extent.divide(part.parts)
            if rest is None:
                inner = part.parts.divide(extent)
                if part.axis is not None or inner is None:
                    return None
                part, rest = Part(None, extent), dim(1)
                left.insert(0, Part(None, inner))
            own.append(part)
            extent = rest
        dims.append(tuple(own))
    return dims


def _last_axis(factors: list[Part]) -> int:
    return max((k for k, p in enumerate(factors) if p.axis is not None), default=-1)
