"""Checks whether a run has as many ranks as a fusion's mesh requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.diagnostics import FusecError
from fusec.files import with_mesh
from fusec.shard.sizes import with_shares

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion


def resized_to(fusion: Fusion, ranks: int) -> Fusion:
    """Return a fusion with its one-axis mesh resized to `ranks`; other fusions are unchanged.

    FusecError if so many ranks do not divide the sharded dims.
    """
    mesh = fusion.mesh
    if mesh is None or len(mesh.axes) != 1 or mesh.size == ranks:
        return fusion
    ((axis, size),) = mesh.axes
    try:
        found = with_mesh(fusion, {axis: ranks})
        with_shares(found)
    except FusecError as error:
        resized = f"the mesh has {size} ranks, and --ranks {ranks} resizes it"
        notes = (*error.diagnostic.notes, resized)
        others = [n for n in range(2, 2 * max(size, ranks)) if _fits(fusion, axis, n)]
        near = sorted(others, key=lambda n: (abs(n - ranks), n))[:2]
        help = " or ".join(f"`--ranks {n}`" for n in sorted(near))
        help = f"write {help}" if help else error.diagnostic.help
        raise error.changed(notes=notes, help=help) from None
    return found


def _fits(fusion: Fusion, axis: str, ranks: int) -> bool:
    """Return whether a number of ranks divides the sharded dims."""
    try:
        with_shares(with_mesh(fusion, {axis: ranks}))
    except FusecError:
        return False
    return True


def check_mesh(fusion: Fusion, size: int, who: str) -> None:
    """Raise FusecError unless the ranks of a fusion's mesh are exactly those of the run."""
    found = f"{size} rank{'s' * (size != 1)}"
    given = f"{found} (of {who})" if who else found
    mesh = fusion.mesh
    if mesh is None:
        if size == 1:
            return
        raise FusecError(
            f"fusion `{fusion.name}` has no mesh, and the run has {given}",
            help=f"write `mesh: [{size}]`, and shard its values with `shard:`",
        )
    if sorted(mesh.ranks) == list(range(size)):
        return
    how = "larger" if mesh.size > size else "smaller"
    raise FusecError(
        f"the mesh of `{fusion.name}` is {how} than the run: {mesh.size} ranks ({mesh}), {given}",
        span=mesh.span,
        help=f"--ranks {mesh.size}, or torchrun --nproc-per-node {mesh.size}; "
        f"--set {mesh.axes[0][0]}=SIZE resizes the mesh",
    )
