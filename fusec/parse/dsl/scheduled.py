"""Loop domain transformations in nvFuser's scripts, where they shard tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from fusec.diagnostics import FusecError, Unsupported, WrongType
from fusec.ir.dim import Dim
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.loops import OVER_MESH, Axis, Loops, ParallelType
from fusec.parse.dsl.mesh import DeviceMesh
from fusec.parse.dsl.place import here, placed
from fusec.parse.dsl.refused import refuse

if TYPE_CHECKING:
    from fusec.parse.dsl.definition import FusionDefinition

_DIVIDING = (*OVER_MESH, ParallelType.stream, ParallelType.serial)
THIS = "<this>"
"""The tensor itself, in the text of a call that transforms it."""


class MemoryType(Enum):
    """The memory of a tensor in nvFuser."""

    tensor = "tensor"
    local = "local"
    shared = "shared"
    global_ = "global"
    symmetric = "symmetric"


class LoopAxis:
    """An axis of a tensor's loop domain."""

    def __init__(self, tensor: Scheduled, axis: Axis) -> None:
        """Refer to an axis, also after it is moved."""
        self._tensor, self._axis = tensor, axis

    def parallelize(self, parallel_type: ParallelType) -> None:
        """Distribute the iterations over a mesh axis or over streams."""
        with placed():
            self._tensor.parallelize_axis(self._axis, parallel_type)

    def is_reduction(self) -> bool:
        """Return whether the axis is a reduced one."""
        return self._tensor.loops.is_reduced(self._axis)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refuse(name, "IterDomain")

    def __repr__(self) -> str:
        kind = "r" if self.is_reduction() else "i"
        return f"{kind}{self._axis.parallel.name}"


class Scheduled:
    """A tensor whose loop domain can be transformed.

    The transformations become the tensor's sharding when the definition is finished.
    """

    definition: FusionDefinition

    @property
    def loops(self) -> Loops:
        """Return the loop domain."""
        raise NotImplementedError

    @property
    def known_shape(self) -> Sequence[Dim]:
        """Return the extents of the dims, as far as they are known."""
        raise NotImplementedError

    def transformed(self, text: str, change: Callable[[], None]) -> None:
        """Change the loop domain by a call with this text."""
        raise NotImplementedError

    def set_device_mesh(self, mesh: DeviceMesh) -> None:
        """Set the ranks that hold the tensor: whole, except for parallelized axes."""
        with placed() as place:
            if not isinstance(mesh, DeviceMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise WrongType(f"a device mesh must be a DeviceMesh, got {mesh!r}")

            def change() -> None:
                self.loops.mesh = mesh.mesh
                self.loops.mesh_span = None if place is None else place.span

            self.transformed(f"set_device_mesh({mesh!r})", change)

    def split(self, axis: int, factor: Any, inner_split: bool = True) -> None:
        """Split an axis in two; `factor` is the size of the inner one, or of the outer one."""
        with placed() as place:
            is_backwards = isinstance(factor, int) and factor < 1
            if is_backwards or (place is not None and place.targets):
                raise FusecError(
                    "`x.split(axis, factor)` splits a loop of the schedule, and returns nothing",
                    help="parts of a tensor are `fd.ops.split(x, size, dim)`",
                )
            at, size = _integer(axis, "an axis"), _integer(factor, "the factor of a split")
            text = f"split({at}, {size}, inner_split={bool(inner_split)})"
            self.transformed(
                text,
                lambda: self.loops.split(at, size, self.known_shape, inner=bool(inner_split)),
            )

    def inner_split(self, axis: int, factor: Any) -> None:
        """Split an axis in two; the inner one has `factor` iterations."""
        self.split(axis, factor, inner_split=True)

    def outer_split(self, axis: int, factor: Any) -> None:
        """Split an axis in two; the outer one has `factor` iterations."""
        self.split(axis, factor, inner_split=False)

    def merge(self, axis_o: int, axis_i: int | None = None) -> None:
        """Merge two axes into one; without `axis_i` an axis and the next one."""
        with placed():
            outer = self.loops.position(_integer(axis_o, "an axis"))
            inner = outer + 1 if axis_i is None else _integer(axis_i, "an axis")
            self.transformed(f"merge({outer}, {inner})", lambda: self.loops.merge(outer, inner))

    def reorder(self, old2new: Mapping[int, int] | Sequence[int]) -> None:
        """Move axes, by a mapping from old to new positions or by their new order."""
        with placed():
            if isinstance(old2new, Mapping):
                moved = {_integer(k, "an axis"): _integer(v, "a place") for k, v in old2new.items()}
            else:
                moved = {_integer(old, "an axis"): new for new, old in enumerate(old2new)}
            self.transformed(f"reorder({moved})", lambda: self.loops.reorder(moved))

    def axis(self, index: int) -> LoopAxis:
        """Return an axis of the loop domain."""
        with placed():
            at = self.loops.position(_integer(index, "an axis"))
            return LoopAxis(self, self.loops.axes[at])

    def get_loop_domain(self) -> list[LoopAxis]:
        """Return all axes of the loop domain."""
        return [LoopAxis(self, axis) for axis in self.loops.axes]

    def parallelize_axis(self, axis: Axis, kind: ParallelType) -> None:
        """Distribute the iterations of an axis over a mesh axis or over streams."""
        if kind not in _DIVIDING:
            raise refuse("parallelize", type(self).__name__)
        if axis not in self.loops.axes:
            raise FusecError("this axis was split or merged and no longer exists")
        place = here()

        def change() -> None:
            axis.parallel = kind
            self.loops.spans[axis] = None if place is None else place.span

        at = self.loops.axes.index(axis)
        self.transformed(f"axis({at}).parallelize({kind!r})", change)

    def swizzle1d(self, axis: int, parallel_type: ParallelType) -> None:
        """Let each rank start with the slice of its own index: loops over ranks always do so."""
        with placed():
            self.loops.position(_integer(axis, "an axis"))
            if parallel_type not in OVER_MESH:
                raise refuse("swizzle1d", type(self).__name__)

    def set_memory_type(self, memory_type: MemoryType) -> None:
        """Accept memory that other ranks can access: the transport of a collective decides."""
        with placed():
            if memory_type not in (MemoryType.symmetric, MemoryType.global_):
                raise refuse("set_memory_type", type(self).__name__)

    def set_allocation_domain(
        self, new_allocation_domain: Sequence[LoopAxis], new_contiguity: Any = True
    ) -> None:
        """Set the memory order of the tensor; an output's may differ from the order of dims.

        Axes over the mesh may be anywhere: a rank has one iteration of each.
        """
        with placed() as place:
            own = [a._axis for a in new_allocation_domain]  # pyright: ignore[reportPrivateUsage]
            if {*own} != {*self.loops.axes} or len(own) != len(self.loops.axes):
                raise FusecError(
                    "an allocation domain must contain every axis of the loop domain once"
                )
            dense = all(new_contiguity) if is_list(new_contiguity) else new_contiguity is True
            if not dense:
                raise Unsupported("an allocation domain that is not contiguous")
            order = self.loops.memory_order(own)

            def change() -> None:
                natural = order == tuple(range(len(order)))
                self.loops.order = None if natural else order
                self.loops.order_span = None if place is None else place.span

            listed = ", ".join(f"{THIS}.axis({self.loops.axes.index(a)})" for a in own)
            self.transformed(f"set_allocation_domain([{listed}], True)", change)

    def rfactor(self, axes: Sequence[int]) -> LocalSums:
        """Return each rank's local sums over some reduced axes, before the sum across ranks.

        Which sums are local follows from the operands' shardings; transformations of the result are
        checked and otherwise ignored.
        """
        with placed():
            chosen = [self.loops.axes[self.loops.position(at)] for at in axes]
            if not all(self.loops.is_reduced(axis) for axis in chosen):
                raise FusecError("rfactor takes reduced axes of a reduction or GEMM")
            made = LocalSums(self)

            def change() -> None:
                self.loops.axes = [axis for axis in self.loops.axes if axis not in chosen]

            self.transformed(f"rfactor({list(axes)})", change)
            return made


class LocalSums(Scheduled):
    """The ranks' local sums, returned in place of a tensor for a script to schedule."""

    def __init__(self, of: Scheduled) -> None:
        """Take a tensor's current loop domain."""
        self.definition = of.definition
        self._shape = of.known_shape
        self._loops = of.loops.copy()

    @property
    def loops(self) -> Loops:
        """Return the loop domain."""
        return self._loops

    @property
    def known_shape(self) -> Sequence[Dim]:
        """Return the extents of the dims of the tensor."""
        return self._shape

    def transformed(self, text: str, change: Callable[[], None]) -> None:
        """Change the loop domain, which has no effect on the fusion."""
        change()


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise WrongType(f"{what} must be an integer, got {value!r}")
    return int(value.__index__())
