"""The fraction of the bandwidth that rows reach, by how many of them are resident on an SM."""

from __future__ import annotations

from fusec.schedule.pressure import Occupancy
from fusec.schedule.rows.inner_persistent.choice import InnerPersistentParameters
from fusec.schedule.strides import WARP
from fusec.target import Target


def reach_of_resident(
    reach: float,
    p: InnerPersistentParameters,
    phases: int,
    row_bytes: int,
    resident: Occupancy,
    target: Target,
) -> float:
    """Return the fraction of the bandwidth, given `reach` for rows that never wait.

    row_bytes: bytes of a row that several phases read.
    """
    if p.storage in ("none", "ring"):
        return reach
    alone = target.reach("inner_persistent", "alone")
    waits = _waits(p, phases, row_bytes, resident, target)
    reach = alone / (waits + (1 - waits) * alone / reach)
    if p.threads_x <= WARP or not row_bytes:
        return reach
    # Warps of a row wait for each other at barriers, while only rows of other blocks are in flight:
    # what these load within a latency limits the bandwidth.
    held = resident.blocks * p.threads_y * row_bytes
    return min(
        reach, target.reach("inner_persistent", "thin") * held / target.cost.rows.tall_skinny_bytes
    )


def _waits(
    p: InnerPersistentParameters,
    phases: int,
    row_bytes: int,
    resident: Occupancy,
    target: Target,
) -> float:
    """Return how long an SM waits between the phases of its rows, relative to the probe `alone`.

    While a row is reduced, those of other blocks on the SM are read: less so with more phases and
    fewer blocks. Fitted to the softmax, layer norm and RMS norm benchmarks.
    """
    blocks = min(target.threads, target.registers / resident.registers) / resident.threads
    if p.storage == "shared":
        blocks = min(blocks, max(1, target.shared // max(1, row_bytes)))
    cost = target.cost.rows
    if blocks >= cost.enough_blocks:
        return 0.0
    return ((phases - 1) / 2 * cost.alone_blocks / blocks) ** 2
