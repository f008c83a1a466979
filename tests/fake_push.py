"""The kernel of pushed sums for GPUs of tests: it writes, then waits for flags, then adds."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_dtypes import bfloat16

from fusec.run.transports.pushes import PushSum

if TYPE_CHECKING:
    from fake_gpus import FakeGpu

TURNS = 2
"""Places of a mailbox that launches take in turns."""
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}


def push_sum(device: FakeGpu, name: str, blocks: int, packed: int) -> Callable[[], bool]:
    """Return the work of a launch, with the arguments that it has now."""
    pointers = ctypes.cast(packed, ctypes.POINTER(ctypes.c_void_p))
    x, y = (ctypes.c_uint64.from_address(pointers[k]).value for k in range(2))
    how = PushSum.from_buffer_copy(ctypes.string_at(pointers[2], ctypes.sizeof(PushSum)))
    dtype: Any = np.dtype(TYPES[name.removeprefix("push_sum_")])
    size, boxes, ranks, own = how.count * dtype.itemsize, how.boxes, how.ranks, how.rank
    pushed: list[int] = []

    def at(address: int, bytes: int) -> np.ndarray:
        return device.gpus.at(device.rank, address, bytes)

    def flags(box: int, rank: int) -> np.ndarray:
        return at(box + how.flags + rank * how.flag_pitch, 4 * blocks).view(np.int32)

    def half(number: int) -> int:
        return how.data + (number - 1) % TURNS * ranks * how.capacity

    def operation() -> bool:
        others = [r for r in range(ranks) if r != own]
        if not pushed:
            number = int(at(boxes[own], 4).view(np.int32)[0]) + 1
            pushed.append(number)
            for other in others:
                place = boxes[other] + half(number) + own * how.capacity
                at(place, size)[...] = at(x, size)
                flags(boxes[other], own)[...] = number
            return False
        (number,) = pushed
        if not all((flags(boxes[own], r) >= number).all() for r in others):
            return False
        total = np.zeros(how.count, np.float32)
        for rank in range(ranks):
            place = x if rank == own else boxes[own] + half(number) + rank * how.capacity
            total += at(place, size).view(dtype).astype(np.float32)
        at(y, size).view(dtype)[...] = total.astype(dtype)
        at(boxes[own], 4).view(np.int32)[0] = number
        return True

    return operation
