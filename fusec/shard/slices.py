"""Slices of a loop: the factors of dims that they divide, and how to assemble a tensor of them."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, Shape, dim, product
from fusec.ir.sharding import STREAM, Sharding, Turn


@dataclass(frozen=True)
class Cut:
    """One dim that a loop divides: into `parts`, within each of `outer` blocks that stay whole.

    of: the extent of the dim, if the slices do not divide it. turn: as in `Part`.
    """

    dim: int
    parts: Dim
    outer: Dim
    of: Dim | None = None
    turn: Turn | None = None


Cuts = tuple[Cut, ...]


def cuts_of(sharding: Sharding) -> Cuts:
    """Return the dims that a loop divides, the slowest first."""
    found = list[Cut]()
    for k, parts in enumerate(sharding.dims):
        place = next((n for n, p in enumerate(parts) if p.axis == STREAM), None)
        if place is not None:
            outer = product(p.parts for p in parts[:place] if p.axis is None)
            part = parts[place]
            found.append(Cut(k, part.parts, outer, part.of, part.turn))
    return tuple(sorted(found, key=lambda cut: 0 if cut.turn is None else cut.turn.place))


def has_blocks(sharding: Sharding) -> bool:
    """Return whether each slice of a loop has elements of several blocks of a dim."""
    return any(cut.outer != 1 for cut in cuts_of(sharding))


def is_strided(sharding: Sharding) -> bool:
    """Return whether the slices of a loop are of several dims, or of blocks of one."""
    return len(sharding.streamed) > 1 or has_blocks(sharding)


def count(cuts: Cuts) -> Dim:
    """Return the number of iterations of a loop that divides some dims."""
    first = cuts[0]
    return first.parts if first.turn is None else first.turn.times


def turns(cuts: Cuts) -> tuple[Shape, tuple[int, ...]]:
    """Return (the iterations of a loop as factors, which of these are those of the cuts).

    The slices are the same in all others.
    """
    factors, places, left = list[Dim](), list[int](), count(cuts)
    for cut in cuts:
        inner = dim(1) if cut.turn is None else cut.turn.inner
        same = left.divide(inner * cut.parts)
        assert same is not None
        factors += [same, cut.parts]
        places.append(len(factors) - 1)
        left = inner
    return (*factors, left), tuple(places)


def split(shape: Shape, cuts: Cuts) -> tuple[Shape, tuple[int, ...]]:
    """Return (a shape with separate dims for blocks, the dim of each cut in it)."""
    by_dim, found, places = {cut.dim: cut for cut in cuts}, list[Dim](), dict[Cut, int]()
    for k, extent in enumerate(shape):
        cut = by_dim.get(k)
        if cut is None:
            found.append(extent)
            continue
        if cut.outer != 1:
            rest = extent.divide(cut.outer)
            assert rest is not None, f"{extent} is not a multiple of {cut.outer}"
            found.append(cut.outer)
            extent = rest
        places[cut] = len(found)
        found.append(extent)
    return tuple(found), tuple(places[cut] for cut in cuts)


def stacked(shape: Shape, cuts: Cuts) -> tuple[Shape, tuple[int, ...], Shape]:
    """Return how to reorder stacked slices, one for each part of the cuts, into the whole tensor.

    (Their dims with separate factors of cuts, the order of these in the whole, the whole's shape.)
    shape: of one slice.
    """
    parts, places = split(shape, cuts)
    factors = [*(cut.parts for cut in cuts), *parts]
    order, whole = list[int](), list(shape)
    for k in range(len(parts)):
        order += [number for number, place in enumerate(places) if place == k]
        order.append(len(cuts) + k)
    for cut in cuts:
        whole[cut.dim] *= cut.parts
    return tuple(factors), tuple(order), tuple(whole)
