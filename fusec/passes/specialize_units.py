"""Specialize reduced extents to 1 that are 1 on each rank."""

from __future__ import annotations

from fusec.ir.dim import Dim, dim, symbol
from fusec.ir.graph import Fusion
from fusec.ir.substitute import substitute_dims


def specialize_units(fusion: Fusion) -> Fusion:
    """Return a rank's fusion with 1 for symbols that are reduced and are 1 by default.

    A stack of one part per rank is declared with an extent equal to the number of ranks. Its
    kernels are specialized to this size anyway; if it is a constant here, reducing a rank's own
    part is a no-op, and its memory needs no copy. The host program has a guard for each
    (`hostir/guards.py`).
    """
    if fusion.mesh is None or fusion.mesh.size == 1:
        return fusion
    units = dict[str, Dim]()
    for node in fusion.nodes:
        if node.op.family != "reduction":
            continue
        dims: tuple[int, ...] = node.attributes["dims"]
        reduced = [node.inputs[0].shape[axis] for axis in dims]
        for name, size in fusion.hints.items():
            if size == 1 and symbol(name) in reduced:
                units[name] = dim(1)
    return substitute_dims(fusion, units)
