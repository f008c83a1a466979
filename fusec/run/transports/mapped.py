"""Memory of other processes' GPUs, mapped into this one (CUDA IPC), and flags there to wait for."""

from __future__ import annotations

import ctypes

from fusec.run.device import Device
from fusec.run.distributed.links import Links
from fusec.run.operations import Flag

WORD = 4
"""Bytes of a flag."""
_HANDLE = 64
"""Bytes of CUipcMemHandle."""
_PEER_ACCESS = 1


class MappedMemory:
    """The peer memory that this rank has mapped."""

    def __init__(self, links: Links, device: Device) -> None:
        """Map nothing yet."""
        self._links, self._device = links, device
        self._opened: dict[tuple[int, str], int] = {}
        self._bases: dict[str, int] = {}

    def handle(self, address: int) -> tuple[str, int]:
        """Return how other processes name memory: the handle of its allocation and an offset."""
        base, _ = self._device.call("cuMemGetAddressRange", address)
        handle = self._device.call("cuIpcGetMemHandle", int(base), what="memory of peer copies")
        name = ctypes.string_at(handle.getPtr(), _HANDLE).hex()
        self._bases[name] = int(base)
        return name, address - int(base)

    def at(self, rank: int, handle: str, offset: int) -> int:
        """Return the local address of another rank's memory."""
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
        """Unmap all memory."""
        for address in self._opened.values():
            self._device.driver.cuIpcCloseMemHandle(address)
        self._opened, self._bases = {}, {}


def await_flag(address: int) -> tuple[Flag, ...]:
    """Return operations that wait until a flag of this rank is 1, and reset it to 0."""
    return Flag(waits=True, address=address, value=1), *write_flag(address, 0)


def write_flag(address: int, value: int) -> tuple[Flag, ...]:
    """Return operations that write a flag, after all earlier work of their stream."""
    return (Flag(waits=False, address=address, value=value),)
