"""Memory of other processes' GPUs, mapped into this one (CUDA IPC), and words there to wait for."""

from __future__ import annotations

import ctypes
from typing import Any

from fusec.run.device import Device
from fusec.run.links import Links

WORD = 4
"""Bytes of a flag."""
_HANDLE = 64
"""Bytes of CUipcMemHandle."""
_WAIT_EQUAL = 1
_PEER_ACCESS = 1


class MappedMemory:
    """What this rank has mapped of the memory of others."""

    def __init__(self, links: Links, device: Device) -> None:
        """Map nothing yet."""
        self._links, self._device = links, device
        self._opened: dict[tuple[int, str], int] = {}
        self._bases: dict[str, int] = {}

    def handle(self, address: int) -> tuple[str, int]:
        """Return how other processes name memory: its allocation and the place in that."""
        base, _ = self._device.call("cuMemGetAddressRange", address)
        handle = self._device.call("cuIpcGetMemHandle", int(base), what="memory of peer copies")
        name = ctypes.string_at(handle.getPtr(), _HANDLE).hex()
        self._bases[name] = int(base)
        return name, address - int(base)

    def at(self, rank: int, handle: str, offset: int) -> int:
        """Return where another rank's memory is for this one."""
        if rank == self._links.rank:
            return self._bases[handle] + offset
        if (rank, handle) not in self._opened:
            named = self._device.driver.CUipcMemHandle()
            ctypes.memmove(named.getPtr(), bytes.fromhex(handle), _HANDLE)
            opened = self._device.call(
                "cuIpcOpenMemHandle", named, _PEER_ACCESS, what=f"memory of rank {rank}"
            )
            self._opened[rank, handle] = int(opened)
        return self._opened[rank, handle] + offset

    def forget(self) -> None:
        """Unmap what is mapped."""
        for address in self._opened.values():
            self._device.driver.cuIpcCloseMemHandle(address)
        self._opened, self._bases = {}, {}


def await_flag(device: Device, stream: Any, flag: int) -> None:
    """Let a stream wait until a flag of this rank is 1, and put it back to 0."""
    device.call("cuStreamWaitValue32", stream, flag, 1, _WAIT_EQUAL)
    write_flag(device, stream, flag, 0)


def write_flag(device: Device, stream: Any, flag: int, value: int) -> None:
    """Let a stream write a flag, behind all that it was given before."""
    device.call("cuStreamWriteValue32", stream, flag, value, 0)


def write_of(device: Device, flag: int, value: int) -> Any:
    """Return, for a batch of operations, the write of a flag behind all that came before."""
    made = device.driver.CUstreamBatchMemOpParams()
    kinds = device.driver.CUstreamBatchMemOpType
    made.writeValue.operation = kinds.CU_STREAM_MEM_OP_WRITE_VALUE_32
    made.writeValue.address, made.writeValue.value, made.writeValue.flags = flag, value, 0
    return made


def wait_of(device: Device, flag: int, value: int) -> Any:
    """Return, for a batch of operations, the wait until a flag of this rank has a value."""
    made = device.driver.CUstreamBatchMemOpParams()
    kinds = device.driver.CUstreamBatchMemOpType
    made.waitValue.operation = kinds.CU_STREAM_MEM_OP_WAIT_VALUE_32
    made.waitValue.address, made.waitValue.value = flag, value
    made.waitValue.flags = _WAIT_EQUAL
    return made
