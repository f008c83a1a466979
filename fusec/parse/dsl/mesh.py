"""nvFuser's DeviceMesh: ranks in a grid, and the part of a tensor that a rank holds."""

from __future__ import annotations

from typing import Any

from fusec import executor
from fusec.diagnostics import FusecError, Unsupported, WrongType
from fusec.ir.dim import dim
from fusec.ir.sharding import STREAM, Mesh, Sharding
from fusec.ops.factors import Factors
from fusec.ops.meshes import mesh_of_ranks, mesh_of_shape
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.place import placed
from fusec.shard.place import local_part


class DeviceMesh:
    """Ranks in a grid, given as a list, range or array of them; its last axis is mesh_x."""

    def __init__(self, devices: Any) -> None:
        """Take any ranks in one axis, or 0, 1, ... in row-major order in several."""
        with placed() as place:
            shape, ranks = _grid(devices)
            span = None if place is None else place.span
            if not ranks:
                raise FusecError("a mesh has at least 1 rank")
            if len(shape) == 1:
                self.mesh = mesh_of_ranks(ranks, span)
                return
            if ranks != list(range(len(ranks))):
                raise Unsupported(
                    f"a mesh of {len(shape)} axes and the ranks "
                    f"{ranks[:8]}{'...' if len(ranks) > 8 else ''}",
                    help="its ranks must be 0 to n - 1, in order",
                )
            self.mesh = mesh_of_shape(shape, span)

    @classmethod
    def of(cls, mesh: Mesh) -> DeviceMesh:
        """Return the same mesh as a DeviceMesh, keeping its axis names."""
        made = cls(list(mesh.ranks))
        made.mesh = mesh
        return made

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return self.mesh.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes of the axes."""
        return self.mesh.shape

    def shard_tensor(self, tensor: Any, axis: int) -> Any:
        """Return this rank's part of a whole tensor that is sharded along one dim."""
        with placed() as place:
            if len(self.shape) != 1:
                raise Unsupported(
                    f"a tensor divided along one dim over a mesh of {len(self.shape)} axes",
                    help="multidevice.shard_tensor(t, tv) shards `t` as `tv` is sharded",
                )
            span = None if place is None else place.span
            whole = Factors("tensor", tuple(map(dim, tensor.shape)), self.mesh)
            whole.shard(whole.dim(axis, span), self.mesh.axes[0][0], span)
            return part_of(tensor, whole.sharding(span), self.mesh)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and other.mesh == self.mesh

    def __hash__(self) -> int:
        return hash(self.mesh)

    def __repr__(self) -> str:
        return f"multidevice.DeviceMesh({_nested(list(self.mesh.ranks), self.shape)})"


def _grid(devices: Any) -> tuple[tuple[int, ...], list[int]]:
    """Return the shape of a grid of ranks, and these in row-major order."""
    listed: Any = devices.tolist() if hasattr(devices, "tolist") else devices
    listed = list(listed) if isinstance(listed, range) else listed
    if not is_list(listed):
        raise WrongType(f"a mesh must be a list, range or array of ranks, got {devices!r}")
    shape, level = list[int](), list[Any](listed)
    shape.append(len(level))
    while level and all(is_list(item) for item in level):
        if len({len(item) for item in level}) > 1:
            raise FusecError("the rows of a mesh must have equal lengths")
        shape.append(len(level[0]))
        level = [rank for row in level for rank in row]
    for rank in level:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise WrongType(f"a rank must be an integer, got {rank!r}")
    return tuple(shape), level


def _nested(ranks: list[int], shape: tuple[int, ...]) -> Any:
    if len(shape) == 1:
        return ranks
    step = len(ranks) // shape[0]
    return [_nested(ranks[k * step : (k + 1) * step], shape[1:]) for k in range(shape[0])]


def part_of(tensor: Any, sharding: Sharding, mesh: Mesh) -> Any:
    """Return this rank's part of a whole tensor, dense in the order of its dims.

    tensor: of any kind that has `shape`, `reshape` and indexing.
    """
    rank = executor.ranks().rank
    if rank not in mesh.ranks:
        raise FusecError(f"rank {rank} is not in the mesh {{{mesh}}}")
    part = local_part(tensor, sharding.without(STREAM), mesh, rank)
    # PyTorch's name for it, and NumPy's.
    dense = getattr(part, "contiguous", None) or getattr(part, "copy", None)
    return part if dense is None else dense()
