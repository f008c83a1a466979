"""Shardings of tensors: over the ranks of a mesh, and over the streams of a loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import prod

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import Span
from fusec.ir.dim import Dim, ceildiv, dim, floordiv, product

STREAM = "stream"
"""The axis along which a loop over streams divides a tensor, in addition to those of the mesh."""


@dataclass(frozen=True)
class Mesh:
    """Ranks in a grid: the name and the size of each axis, outermost first.

    ranks: the ranks of the grid, in row-major order. span: of the declaration, ignored in
    comparisons.
    """

    axes: tuple[tuple[str, int], ...]
    ranks: tuple[int, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes of the axes."""
        return tuple(size for _, size in self.axes)

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return prod(self.shape)

    def extent(self, axis: str) -> int:
        """Return the size of one axis."""
        return dict(self.axes)[axis]

    def place(self, rank: int) -> dict[str, int]:
        """Return the coordinate of a rank along each axis."""
        left, found = self.ranks.index(rank), dict[str, int]()
        for name, size in reversed(self.axes):
            left, found[name] = divmod(left, size)
        return found

    def group(self, rank: int, axis: str) -> tuple[int, ...]:
        """Return the ranks that differ from `rank` only along one axis, in order, with itself."""
        own = {name: place for name, place in self.place(rank).items() if name != axis}
        return tuple(r for r in self.ranks if own.items() <= self.place(r).items())

    def closure(self, ranks: Iterable[int], axes: Iterable[str]) -> frozenset[int]:
        """Return ranks with all that differ from one of them only along some axes."""
        found = frozenset(ranks)
        for axis in axes:
            found = frozenset(other for rank in found for other in self.group(rank, axis))
        return found

    def places(self, ranks: Iterable[int], axis: str) -> frozenset[int]:
        """Return the coordinates of some ranks along an axis."""
        return frozenset(self.place(rank)[axis] for rank in ranks)

    def block(self, places: Mapping[str, Collection[int]]) -> frozenset[int]:
        """Return the ranks with one of the given coordinates along each axis."""
        where = ((rank, self.place(rank)) for rank in self.ranks)
        return frozenset(r for r, own in where if all(own[a] in p for a, p in places.items()))

    def __str__(self) -> str:
        return ", ".join(f"{name}: {size}" for name, size in self.axes)


@dataclass(frozen=True)
class Turn:
    """How the iterations of a loop over several dims traverse the slices of one of them.

    place: position of the dim among those of the loop, the slowest first. inner: consecutive
    iterations with the same slice. times: all iterations.
    """

    place: int
    inner: Dim
    times: Dim


@dataclass(frozen=True)
class Part:
    """One factor of a dim: it is divided into `parts` along `axis`; None: it stays whole.

    axis: of the mesh, or STREAM. of: the extent of the dim if the slices of a loop do not divide
    it: each has ceildiv(of, parts) elements, and the last begins so far before the end. turn: if a
    loop divides several dims. span: of the declaration, ignored in comparisons.
    """

    axis: str | None
    parts: Dim
    of: Dim | None = None
    turn: Turn | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    def share(self, extent: Dim) -> Dim:
        """Return the extent of one part; one not known to be a multiple is declared one."""
        if self.of is not None:
            return ceildiv(extent, self.parts)
        exact = extent.divide(self.parts)
        return floordiv(extent, self.parts) if exact is None else exact

    def __str__(self) -> str:
        return f"{self.axis or '_'}:{self.parts}"


Parts = tuple[Part, ...]
"""The factors of a dim, outermost first; the rest is one more factor, innermost, and whole."""


@dataclass(frozen=True)
class Sharding:
    """How a tensor is sharded: the factors of each dim.

    No axis occurs twice, except a stream in several dims: its slices are then of all of them, as
    many as the product of the factors. Factors of one part are omitted, and so are whole ones at
    the end. ranks: the ranks that hold it; None: all of the mesh.
    """

    dims: tuple[Parts, ...]
    span: Span | None = None
    ranks: tuple[int, ...] | None = None

    @classmethod
    def whole(cls, rank: int) -> Sharding:
        """Return the sharding of a tensor that every rank holds whole, and no loop divides."""
        return cls(((),) * rank)

    @classmethod
    def of(cls, rank: int, divided: dict[int, Parts], span: Span | None = None) -> Sharding:
        """Return the sharding with factors of some dims."""
        return cls(tuple(divided.get(k, ()) for k in range(rank)), span).normal

    @property
    def normal(self) -> Sharding:
        """Return the same sharding without redundant factors."""
        return replace(self, dims=tuple(_normal(parts) for parts in self.dims))

    def over(self, mesh: Mesh | None) -> Sharding:
        """Return the same sharding without a list of ranks if it contains all of the mesh."""
        everywhere = self.ranks is None or mesh is None or set(self.ranks) == set(mesh.ranks)
        return replace(self, ranks=None) if everywhere else self

    @property
    def stated(self) -> Sharding:
        """Return the same sharding with axes of one rank, but without other redundant factors."""
        return replace(self, dims=tuple(_normal(parts, stated=True) for parts in self.dims))

    @property
    def with_turns(self) -> Sharding:
        """Return the same sharding with turns of a stream's parts, if it divides several dims."""
        if len(self.streamed) < 2:
            return self
        streams = [p for parts in self.dims for p in parts if p.axis == STREAM]
        times = product(p.parts for p in streams)
        turns = (
            Turn(k, product(p.parts for p in streams[k + 1 :]), times) for k in range(len(streams))
        )
        dims = (
            tuple(replace(p, turn=next(turns)) if p.axis == STREAM else p for p in parts)
            for parts in self.dims
        )
        return replace(self, dims=tuple(dims))

    @property
    def without_turns(self) -> Sharding:
        """Return the same sharding without turns: its slices regardless of their order."""
        dims = (tuple(replace(p, turn=None) for p in parts) for parts in self.dims)
        return replace(self, dims=tuple(dims))

    @property
    def is_whole(self) -> bool:
        """Return whether nothing is divided."""
        return not any(self.dims)

    @property
    def axes(self) -> Iterator[tuple[str, int]]:
        """Yield each axis along which the tensor is sharded, with the dim that it divides."""
        for k, parts in enumerate(self.dims):
            yield from ((part.axis, k) for part in parts if part.axis is not None)

    @property
    def stream(self) -> Part | None:
        """Return the first factor along which a loop over streams divides the tensor, if any."""
        return next((p for parts in self.dims for p in parts if p.axis == STREAM), None)

    @property
    def streamed(self) -> tuple[int, ...]:
        """Return the dims that a loop over streams divides."""
        return tuple(k for axis, k in self.axes if axis == STREAM)

    def without(self, *axes: str) -> Sharding:
        """Return the sharding without some axes."""
        kept = (tuple(_whole(p) if p.axis in axes else p for p in parts) for parts in self.dims)
        return replace(self, dims=tuple(kept)).normal

    def along(self, axis: str) -> int | None:
        """Return the dim that an axis divides, the first if a stream divides several."""
        return next((k for own, k in self.axes if own == axis), None)

    def __str__(self) -> str:
        texts = (f"{k}: {' '.join(map(str, p))}" for k, p in enumerate(self.dims) if p)
        return "{" + ", ".join(texts) + "}"


def _whole(part: Part) -> Part:
    return Part(None, part.parts)


def _normal(parts: Parts, *, stated: bool = False) -> Parts:
    kept: list[Part] = []
    for part in parts:
        if part.parts == dim(1) and not (stated and part.axis not in (None, STREAM)):
            continue
        if kept and kept[-1].axis is None and part.axis is None:
            kept[-1] = Part(None, kept[-1].parts * part.parts)
        else:
            kept.append(part)
    while kept and kept[-1].axis is None:
        kept.pop()
    return tuple(kept)
