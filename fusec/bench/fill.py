"""Random data on the device: a block is generated on the CPU and repeated over the memory."""

from __future__ import annotations

from functools import cache

import numpy as np

from fusec.ir.evaluate import Array
from fusec.run.device import Device

PERIOD = (1 << 20) + 7
"""Random elements per block, chosen such that rows do not repeat with its period."""


@cache
def repeatable() -> Array:
    """Return random bytes."""
    return np.random.default_rng(0).integers(0, 256, 4 * PERIOD, dtype=np.uint8)


def repeat(device: Device, address: int, block: Array, size: int) -> None:
    """Fill `size` bytes of memory with a block from the CPU, repeatedly."""
    have = min(block.nbytes, size)
    device.upload(address, block.reshape(-1).view(np.uint8)[:have])
    while have < size:
        step = min(have, size - have)
        device.copy(address + have, address, step)
        have += step
