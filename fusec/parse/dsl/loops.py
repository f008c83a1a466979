"""The loop domain of a tensor as transformed by nvFuser's schedules, and the sharding it implies.

Each axis is a product of factors of dims, outermost first. A split divides one axis into two, a
merge combines two; the parallel type of an axis applies to its factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Span, Unsupported
from fusec.ir.dim import Dim, ceildiv, dim, product, symbol
from fusec.ir.sharding import STREAM, Mesh, Part, Sharding


class ParallelType(Enum):
    """Targets over which the iterations of an axis are distributed, by nvFuser's names."""

    mesh_x = "mesh_x"
    mesh_y = "mesh_y"
    mesh_z = "mesh_z"
    grid_x = "grid_x"
    grid_y = "grid_y"
    grid_z = "grid_z"
    block_x = "block_x"
    block_y = "block_y"
    block_z = "block_z"
    mma = "mma"
    serial = "serial"
    tma = "tma"
    unroll = "unroll"
    unswitch = "unswitch"
    vectorize = "vectorize"
    stream = "stream"

    def __repr__(self) -> str:
        return f"ParallelType.{self.name}"


OVER_MESH = (ParallelType.mesh_x, ParallelType.mesh_y, ParallelType.mesh_z)
"""Innermost axis of a mesh first."""


@dataclass(eq=False)
class Factor:
    """A factor of one of a tensor's original axes; its size is in symbols of their extents."""

    of: int
    size: Dim


@dataclass(eq=False)
class Axis:
    """An axis of a loop domain: the product of factors, outermost first."""

    factors: list[Factor]
    parallel: ParallelType = ParallelType.serial


class Loops:
    """The loop domain of one tensor, with an original axis for each dim and each reduced dim."""

    def __init__(self, dims: Sequence[int | None]) -> None:
        """Start with the dim of each axis; None: it is reduced."""
        self.dims = tuple(dims)
        self._factors = [[Factor(k, symbol(f"{k}"))] for k in range(len(self.dims))]
        self.axes = [Axis([factor]) for (factor,) in self._factors]
        self.mesh: Mesh | None = None
        self.mesh_span: Span | None = None
        self.order: tuple[int, ...] | None = None
        self.order_span: Span | None = None
        self.spans: dict[Axis, Span | None] = {}

    def copy(self) -> Loops:
        """Return an independent copy of the loop domain."""
        made = Loops(self.dims)
        new = {f: Factor(f.of, f.size) for own in self._factors for f in own}
        made._factors = [[new[f] for f in own] for own in self._factors]
        made.axes = [Axis([new[f] for f in a.factors], a.parallel) for a in self.axes]
        return made

    def position(self, at: int) -> int:
        """Return the index of an axis, counted from the first one."""
        rank = len(self.axes)
        if not -rank <= at < rank:
            raise FusecError(f"loop axis {rank} is out of range: there are {at}")
        return at % rank

    def split(self, at: int, factor: int, shape: Sequence[Dim], *, inner: bool) -> None:
        """Split an axis in two; the inner, or else the outer one, gets `factor` iterations."""
        at = self.position(at)
        axis = self.axes[at]
        if factor < 1:
            raise FusecError(f"a split by {factor}: a factor is at least 1")
        if axis.parallel is not ParallelType.serial:
            raise FusecError(f"axis {at} is parallelized on {axis.parallel!r}: split it first")
        known = self._extents(shape)
        taken, left = self._cut(axis.factors, factor, known, inner=inner)
        self.axes[at : at + 1] = [Axis(left), Axis(taken)] if inner else [Axis(taken), Axis(left)]

    def _extents(self, shape: Sequence[Dim]) -> Mapping[str, Dim]:
        """Return the known extents by the symbols of the axes."""
        known = zip(self.dims, range(len(self.dims)), strict=True)
        return {f"{k}": shape[d] for d, k in known if d is not None and d < len(shape)}

    def _cut(
        self, factors: Sequence[Factor], size: int, known: Mapping[str, Dim], *, inner: bool
    ) -> tuple[list[Factor], list[Factor]]:
        """Return the factors with a product of `size` at one end, and the remaining ones."""
        taken, left = list[Factor](), list(factors)
        end = -1 if inner else 0
        while left:
            factor = left.pop(end)
            extent = factor.size.substitute(known)
            if extent == size and size > 1:
                taken.append(factor)
                size = 1
                break
            whole = not extent.is_const or extent.value % size == 0
            uneven = not whole and len(factors) == 1 and factor.size == symbol(f"{factor.of}")
            if not whole and not uneven and extent.is_const and size % extent.value == 0:
                taken.append(factor)
                size //= extent.value
                continue
            if not whole and not uneven:
                raise _not_divided(factors, known, size)
            mine, rest = self._halve(factor, size, inner=inner)
            taken.append(mine)
            left.insert(len(left) if inner else 0, rest)
            size = 1
            break
        if size > 1:
            raise _not_divided(factors, known, size)
        return (taken[::-1] if inner else taken), left

    def _halve(self, factor: Factor, size: int, *, inner: bool) -> tuple[Factor, Factor]:
        own = self._factors[factor.of]
        mine = Factor(factor.of, dim(size))
        exact = factor.size.divide(size)
        rest = Factor(factor.of, ceildiv(factor.size, size) if exact is None else exact)
        at = own.index(factor)
        own[at : at + 1] = [rest, mine] if inner else [mine, rest]
        return mine, rest

    def merge(self, outer: int, inner: int) -> None:
        """Merge two axes into one."""
        first, second = self.position(outer), self.position(inner)
        if first == second:
            raise FusecError(f"axis {outer} cannot be merged with itself")
        a, b = self.axes[first], self.axes[second]
        if {a.parallel, b.parallel} != {ParallelType.serial}:
            raise FusecError("merge axes before parallelizing them")
        self.axes[first] = Axis([*a.factors, *b.factors])
        del self.axes[second]

    def reorder(self, moved: Mapping[int, int]) -> None:
        """Move axes to other positions; the others keep their order."""
        places = {self.position(new): self.position(old) for old, new in moved.items()}
        if len(places) != len(moved) or len({*places.values()}) != len(moved):
            raise FusecError(f"{dict(moved)} moves two axes to one position")
        rest = iter([k for k in range(len(self.axes)) if k not in places.values()])
        order = [places[k] if k in places else next(rest) for k in range(len(self.axes))]
        self.axes = [self.axes[k] for k in order]

    def extent(self, axis: Axis, shape: Sequence[Dim]) -> Dim:
        """Return the number of iterations of an axis."""
        return product(f.size for f in axis.factors).substitute(self._extents(shape))

    def is_reduced(self, axis: Axis) -> bool:
        """Return whether an axis consists of reduced ones."""
        return all(self.dims[f.of] is None for f in axis.factors)

    def memory_order(self, axes: Sequence[Axis]) -> tuple[int, ...]:
        """Return the dims in the memory order of a rank's part that the order of axes implies.

        Raise Unsupported if the factors of a dim are not adjacent and in order.
        """
        listed = [f for axis in axes for f in axis.factors if self.dims[f.of] is not None]
        over_mesh = {f for a in axes for f in a.factors if a.parallel in OVER_MESH}
        kept = [f for f in listed if f not in over_mesh and f.size != 1]
        for factor in kept:
            own = [f for f in self._factors[factor.of] if f in kept]
            first = kept.index(own[0])
            if kept[first : first + len(own)] != own:
                raise Unsupported(
                    "an allocation domain that separates the parts of a dim",
                    help="fd.add_output(y, stride_order=[...]) orders the dims of an output",
                )
        ordered = dict.fromkeys(f.of for f in (*kept, *listed))
        return tuple(k for k in (self.dims[of] for of in ordered) if k is not None)

    @property
    def is_over_mesh(self) -> bool:
        """Return whether an axis is parallelized over a mesh."""
        return any(a.parallel in OVER_MESH for a in self.axes)

    @property
    def says(self) -> bool:
        """Return whether any sharding was specified for the tensor."""
        return self.mesh is not None or any(
            a.parallel is not ParallelType.serial for a in self.axes
        )

    def sharding(self, shape: Sequence[Dim], mesh: Mesh | None) -> Sharding:
        """Return the sharding of a tensor with a shape."""
        known = self._extents(shape)
        self._check_one_stream()
        owner = {factor: axis for axis in self.axes for factor in axis.factors}
        parts: list[tuple[Part, ...]] = [()] * len(shape)
        for k, factors in enumerate(self._factors):
            at = self.dims[k]
            if at is None:
                self._check_reduced([owner[f] for f in factors if f in owner])
            else:
                found: list[tuple[Axis | None, Part]] = []
                for factor in factors:
                    axis = owner.get(factor)
                    size = factor.size.substitute(known)
                    if axis is None or axis.parallel is ParallelType.serial:
                        found.append((None, Part(None, size)))
                        continue
                    self._check_factors(axis, known)
                    if found and found[-1][0] is axis:
                        size *= found.pop()[1].parts
                    found.append((axis, Part(self._name(axis, mesh), size)))
                parts[at] = tuple(part for _, part in found)
        spans = [s for a, s in self.spans.items() if a in self.axes]
        made = Sharding(tuple(parts), next((s for s in spans if s), self.mesh_span))
        return _checked(made, shape, mesh).normal

    def _name(self, axis: Axis, mesh: Mesh | None) -> str:
        span = self.spans.get(axis)
        if axis.parallel is ParallelType.stream:
            return STREAM
        if mesh is None:
            raise FusecError(
                f"an axis is parallelized on {axis.parallel.name}, but there is no mesh",
                span=span,
                help="call t.set_device_mesh(mesh) first",
            )
        at = OVER_MESH.index(axis.parallel)
        if at >= len(mesh.axes):
            count = len(mesh.axes)
            message = f"a mesh of rank {count} has no {axis.parallel.name}"
            raise FusecError(message, span=span)
        return mesh.axes[-1 - at][0]

    def _check_reduced(self, axes: Sequence[Axis]) -> None:
        """Raise FusecError for a loop over reduced axes."""
        for axis in axes:
            if axis.parallel is ParallelType.stream:
                raise FusecError(
                    "a loop over a reduced axis carries a dependence from iteration to iteration",
                    span=self.spans.get(axis),
                    help="parallelize another axis on streams",
                )

    def _check_one_stream(self) -> None:
        """Raise FusecError for two axes on streams."""
        axes = [axis for axis in self.axes if axis.parallel is ParallelType.stream]
        if len(axes) > 1:
            raise FusecError(
                "the tensor is divided twice along `stream`",
                span=self.spans.get(axes[1]),
                help="merge the axes, and parallelise the merged one",
            )

    def _check_factors(self, axis: Axis, known: Mapping[str, Dim]) -> None:
        """Raise Unsupported for an axis that shards no dim, or several.

        Slices of a loop may be of several dims, in any order: each iteration has one of them.
        """
        real = [f for f in axis.factors if f.size.substitute(known) != 1]
        if axis.parallel is ParallelType.stream:
            by_dim = {f.of: [o for o in self._factors[f.of] if o in real] for f in real}
            if all(self._are_neighbours(own) for own in by_dim.values()):
                return
            raise Unsupported(
                "an axis on streams merged of factors of a dim with others between them",
                span=self.spans.get(axis),
                help="merge factors that follow one another",
            )
        if len({f.of for f in real}) > 1 or not self._are_neighbours(real):
            raise Unsupported(
                "a merged axis of several dims, parallelized as a whole over a mesh",
                span=self.spans.get(axis),
                help="split a factor off its outermost dim and parallelize that",
            )

    def _are_neighbours(self, factors: Sequence[Factor]) -> bool:
        """Return whether factors of one dim are adjacent in it."""
        if not factors:
            return True
        own = self._factors[factors[0].of]
        first = own.index(factors[0])
        return own[first : first + len(factors)] == [*factors]


def _checked(sharding: Sharding, shape: Sequence[Dim], mesh: Mesh | None) -> Sharding:
    """Return a sharding with the sizes of mesh axes, if the extents of dims were not known."""
    sizes = {} if mesh is None else dict(mesh.axes)

    def part(given: Part) -> Part:
        size = None if given.axis is None else sizes.get(given.axis)
        return given if size is None or given.parts.is_const else Part(given.axis, dim(size))

    return Sharding(tuple(tuple(map(part, parts)) for parts in sharding.dims), sharding.span)


def _not_divided(factors: Sequence[Factor], known: Mapping[str, Dim], size: int) -> FusecError:
    if len(factors) > 1:
        return Unsupported(
            f"a split by {size} across the boundary of merged dims",
            help="split by a factor of the outermost or innermost merged dim",
        )
    extent = product(f.size for f in factors).substitute(known)  # of none: one iteration
    return FusecError(f"an axis of {extent} iterations is not divisible by {size}")
