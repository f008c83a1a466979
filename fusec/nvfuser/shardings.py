"""Shardings of outputs in the form of nvFuser's `Sharding`, and PyTorch's DTensors of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import sharding
from fusec.ir.graph import Fusion
from fusec.parse.dsl.loops import OVER_MESH, ParallelType
from fusec.parse.dsl.mesh import DeviceMesh
from fusec.parse.dsl.place import placed
from fusec.shard.partition import partitioned

if TYPE_CHECKING:
    from fusec.nvfuser.definition import FusionDefinition


class Sharding:
    """The sharding of a tensor over a mesh."""

    def __init__(self, mesh: sharding.Mesh, of: sharding.Sharding) -> None:
        """Wrap a sharding over a mesh."""
        self.mesh, self._of = DeviceMesh.of(mesh), of

    def axis_sharded_on(self, parallel_type: ParallelType) -> int:
        """Return the dim that a mesh axis divides, -1 if none."""
        at = OVER_MESH.index(parallel_type)
        axes = self.mesh.mesh.axes
        return self._along(axes[-1 - at][0]) if at < len(axes) else -1

    def by_axis(self) -> list[int]:
        """Return the dim that each axis of the mesh divides, the outermost first; -1 for none.

        Unsupported if that is not a complete description: blocks of a dim, or axes in another
        order.
        """
        names = [name for name, _ in self.mesh.mesh.axes]
        for parts in self._of.dims:
            along = [names.index(p.axis) if p.axis is not None else -1 for p in parts]
            if along != sorted(along) or -1 in along:
                raise Unsupported(f"a DTensor of a tensor that is divided as {self._of}")
        return [self._along(name) for name in names]

    def _along(self, axis: str) -> int:
        found = self._of.along(axis)
        return -1 if found is None else found


def output_shardings(fusion: Fusion) -> list[Sharding]:
    """Return the shardings of the outputs that are not written into inputs."""
    if fusion.mesh is None:
        raise FusecError("the fusion has no mesh", help="call t.set_device_mesh(mesh) for an input")
    held = partitioned(fusion).placed
    return [Sharding(fusion.mesh, held[o.value.name]) for o in fusion.effects.fresh]


def execute_with_dtensors(fd: FusionDefinition, in_dtensors: Iterable[Any]) -> list[Any]:
    """Run a definition on PyTorch's DTensors, all of one mesh, and return DTensors over it."""
    given = list(in_dtensors)
    with placed():
        if not given:
            raise FusecError("DTensors without any have no mesh", help="use fd.execute([])")
        mesh = given[0].device_mesh
        if any(tensor.device_mesh != mesh for tensor in given):
            raise FusecError("the DTensors use several meshes")
    results = fd.execute([tensor.to_local() for tensor in given])
    made = importlib.import_module("torch.distributed.tensor")
    with placed():
        return [
            made.DTensor.from_local(
                result, mesh, [made.Replicate() if d < 0 else made.Shard(d) for d in of.by_axis()]
            )
            for result, of in zip(results, fd.fec.get_output_shardings(), strict=True)
        ]
