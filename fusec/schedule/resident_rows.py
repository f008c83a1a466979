"""The part of the bandwidth that rows reach, by how many of them an SM holds at a time."""

from __future__ import annotations

from fusec.schedule.inner_persistent_choice import InnerPersistentParameters
from fusec.schedule.pressure import Occupancy
from fusec.schedule.strides import WARP
from fusec.target import Target

ALONE_BLOCKS = 1.6
"""Blocks of the probe `inner_persistent.alone` for which an SM has registers."""
ENOUGH_BLOCKS = 4
"""Blocks on an SM from which on none is seen to wait."""
THIN_BYTES = 24576
"""Bytes of rows that an SM holds of the probe `inner_persistent.thin`: 12 of each thread."""


def reach_of_resident(
    reach: float,
    p: InnerPersistentParameters,
    phases: int,
    row_bytes: int,
    resident: Occupancy,
    target: Target,
) -> float:
    """Return the part of the bandwidth that is left of `reach`, which rows without waits have.

    row_bytes: those of a row that several phases read.
    """
    if p.storage in ("none", "ring"):
        return reach
    alone = target.reach("inner_persistent", "alone")
    waits = _waits(p, phases, row_bytes, resident, target)
    reach = alone / (waits + (1 - waits) * alone / reach)
    if p.threads_x <= WARP or not row_bytes:
        return reach
    # Warps of a row wait for each other at barriers, while only rows of other blocks are on their
    # way: what these bring in a latency is the most there is.
    held = resident.blocks * p.threads_y * row_bytes
    return min(reach, target.reach("inner_persistent", "thin") * held / THIN_BYTES)


def _waits(
    p: InnerPersistentParameters,
    phases: int,
    row_bytes: int,
    resident: Occupancy,
    target: Target,
) -> float:
    """Return how long an SM waits between the phases of its rows; 1 stands for the probe `alone`.

    While a row is reduced, those of other blocks on the SM are read: the more phases there are and
    the fewer blocks, the less of that. By the softmax, layer norm and RMS norm of the benchmarks.
    """
    blocks = min(target.threads, target.registers / resident.registers) / resident.threads
    if p.storage == "shared":
        blocks = min(blocks, max(1, target.shared // max(1, row_bytes)))
    return 0.0 if blocks >= ENOUGH_BLOCKS else ((phases - 1) / 2 * ALONE_BLOCKS / blocks) ** 2
