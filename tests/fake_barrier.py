"""The kernel of barriers for GPUs of tests: it writes the turn to other ranks, then waits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fusec.run.transports.barriers import STATE_BYTES, BarrierPeers

if TYPE_CHECKING:
    from fake_gpus import FakeGpu

WAITS = True
"""Whether the kernel waits for other ranks, which tests take away."""


def barrier(device: FakeGpu, threads: int, packed: int) -> Callable[[], bool]:
    """Return the work of a launch, with the arguments that it has now."""
    pointers = ctypes.cast(packed, ctypes.POINTER(ctypes.c_void_p))
    words = ctypes.c_uint64.from_address(pointers[0]).value
    peers = BarrierPeers.from_buffer_copy(
        ctypes.string_at(pointers[1], ctypes.sizeof(BarrierPeers))
    )
    others = [rank for rank in range(threads) if peers.arrived[rank]]
    assert len(others) == threads - 1, "a thread for each rank"
    told = False

    def at(address: int) -> np.ndarray:
        return device.gpus.at(device.rank, address, 4).view(np.uint32)

    def operation() -> bool:
        nonlocal told
        turns = {rank: at(words + STATE_BYTES * rank) for rank in others}
        if not told:
            for rank in others:
                (there,) = at(peers.arrived[rank])
                assert there == turns[rank][0], "a turn that is not the next"
                at(peers.arrived[rank])[0] = turns[rank][0] + 1
            told = True
            return False
        arrived = {rank: at(words + STATE_BYTES * rank + 4)[0] for rank in others}
        if WAITS and any(arrived[rank] <= turns[rank][0] for rank in others):
            return False
        for rank in others:
            turns[rank][0] += 1
        told = False  # a graph may launch it again
        return True

    return operation
