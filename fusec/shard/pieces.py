"""Loops around ranks with slices smaller than a rank's whole part."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.ir.sharding import STREAM, Sharding
from fusec.ops.communication import RECEIVE_SLICE, SEND_SLICE
from fusec.shard.divided import Partition
from fusec.shard.partition import partitioned


def slices_around(local: Fusion) -> int:
    """Return the number of slices of the loops around ranks in a rank's fusion; 0 without any."""
    counts = (
        node.attributes["ranks"] * node.attributes["pieces"]
        for node in local.nodes
        if node.op in (RECEIVE_SLICE, SEND_SLICE)
    )
    return max(counts, default=0)


def in_pieces(fusion: Fusion, pieces: int, slices: int) -> Partition | None:
    """Return the partition with each of the `slices` of a loop around ranks divided into `pieces`.

    None if extents are not divisible, or if the slices are no longer those that ranks send.
    """
    shardings = {name: _finer(said, pieces) for name, said in fusion.shardings.items()}
    try:
        finer = partitioned(replace(fusion, shardings=shardings))
    except FusecError:
        return None
    return finer if slices_around(finer.fusion) == slices * pieces else None


def _finer(said: Sharding, pieces: int) -> Sharding:
    if len(said.streamed) > 1:
        return said  # no slices that ranks send
    dims = (
        tuple(replace(p, parts=p.parts * pieces) if p.axis == STREAM else p for p in parts)
        for parts in said.dims
    )
    return replace(said, dims=tuple(dims))
