"""The kernel of pushed sums for GPUs of tests: it writes, then waits for flags, then adds."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_dtypes import bfloat16

from fusec.run.transports.pushes import MOST_CHUNKS, PushSum

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
    kind, _, element = name.removeprefix("push_").partition("_")
    dtype: Any = np.dtype(TYPES[element])
    few = kind == "few"
    size, boxes, ranks, own = how.count * dtype.itemsize, how.boxes, how.ranks, how.rank
    pushed: list[int] = []

    def at(address: int, bytes: int) -> np.ndarray:
        return device.gpus.at(device.rank, address, bytes)

    def flags(box: int, rank: int) -> np.ndarray:
        return at(box + how.flags + rank * how.flag_pitch, 4 * blocks).view(np.int32)

    def place(number: int, receiver: int, sender: int) -> int:
        return (number - 1) % TURNS * (ranks - 1) + sender - (sender > receiver)

    def lines(number: int, receiver: int, sender: int) -> np.ndarray:
        start = boxes[receiver] + how.lines + place(number, receiver, sender) * how.line_pitch
        return at(start, -(-size // 4) * 8).view(np.uint32).reshape(-1, 2)

    def data(number: int, receiver: int, sender: int) -> np.ndarray:
        start = boxes[receiver] + how.data + place(number, receiver, sender) * how.capacity
        return at(start, size)

    def send(number: int, other: int) -> None:
        if few:
            words = np.zeros(-(-size // 4) * 4, np.uint8)
            words[:size] = at(x, size)
            sent = lines(number, other, own)
            sent[:, 0], sent[:, 1] = words.view(np.uint32), number
        else:
            data(number, other, own)[...] = at(x, size)
            flags(boxes[other], own)[...] = number * MOST_CHUNKS

    def arrived(number: int, other: int) -> bool:
        if few:
            return bool((lines(number, own, other)[:, 1] == number).all())
        return bool((flags(boxes[own], other) >= number * MOST_CHUNKS).all())

    def part(number: int, rank: int) -> np.ndarray:
        if rank == own:
            found = at(x, size)
        elif few:
            found = lines(number, own, rank)[:, 0].copy().view(np.uint8)[:size]
        else:
            found = data(number, own, rank)
        return found.view(dtype).astype(np.float32)

    def operation() -> bool:
        others = [r for r in range(ranks) if r != own]
        if not pushed:
            number = int(at(boxes[own], 4).view(np.int32)[0]) + 1
            pushed.append(number)
            for other in others:
                send(number, other)
            return False
        (number,) = pushed
        if not all(arrived(number, other) for other in others):
            return False
        total = np.zeros(how.count, np.float32)
        for rank in range(ranks):
            total += part(number, rank)
        at(y, size).view(dtype)[...] = total.astype(dtype)
        at(boxes[own], 4).view(np.int32)[0] = number
        pushed.clear()  # a graph may launch it again
        return True

    return operation
