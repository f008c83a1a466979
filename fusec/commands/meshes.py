"""Whether a run has the ranks that a fusion's mesh wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.diagnostics import FusecError

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion


def check_mesh(fusion: Fusion, size: int, who: str) -> None:
    """Raise FusecError where a fusion's mesh has not as many ranks as there are."""
    found = f"{size} rank{'s' * (size != 1)}"
    given = f"{found} (of {who})" if who else found
    mesh = fusion.mesh
    if mesh is None:
        if size == 1:
            return
        raise FusecError(
            f"fusion `{fusion.name}` has no mesh, and there are {given}",
            help=f"write `mesh: [{size}]`, and say with `shard:` how its values are divided",
        )
    if sorted(mesh.ranks) == list(range(size)):
        return
    how = "larger" if mesh.size > size else "smaller"
    raise FusecError(
        f"the mesh of `{fusion.name}` is {how} than the run: {mesh.size} ranks ({mesh}), {given}",
        span=mesh.span,
        help=f"--ranks {mesh.size}, or torchrun --nproc-per-node {mesh.size}",
    )
