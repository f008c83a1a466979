"""A device in host memory: launches call Python functions with the packed arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from guards import check_guards, guarded

from fusec.run.streams import Pool

PointerList = Sequence[int]


ORDER = {
    "cuStreamCreate": 1, "cuStreamIsCapturing": 0, "cuEventCreate": 2, "cuEventRecord": None,
    "cuStreamWaitEvent": None,
}  # fmt: skip
"""What a device that does everything at once answers to what keeps streams in order."""


def _attribute() -> SimpleNamespace:
    return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))


class FakeDevice:
    """Stands in for fusec.run.device.Device; `kernels` are functions of the argument pointers."""

    def __init__(self, kernels: dict[str, Callable[..., None]]) -> None:
        """Start without memory."""
        self.kernels = kernels
        self.blocks: dict[int, np.ndarray] = {}
        self.sizes: dict[int, int] = {}
        self.launched: list[tuple[str, Any]] = []
        self.attributes: list[dict[str, int]] = []
        self.driver = SimpleNamespace(
            CUlaunchConfig=SimpleNamespace,
            CUlaunchAttribute=lambda: SimpleNamespace(
                value=SimpleNamespace(clusterDim=SimpleNamespace())
            ),
            CUlaunchAttributeID=SimpleNamespace(
                CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster",
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="overlapped",
            ),
        )
        self.stream = 0
        self.pool = Pool(self)

    def load(self, cubin: bytes, entry: str) -> Any:
        """Return the kernel as its function."""
        return entry

    def function_attributes(self, function: Any, values: dict[str, int]) -> None:
        """Record the attributes."""
        self.attributes.append(values)

    def allocate(self, size: int, what: str) -> int:
        """Return the address of host memory."""
        block, start = guarded(size)
        block[start : start + size] = 0
        address = block.ctypes.data + start
        self.blocks[address], self.sizes[address] = block, size
        return address

    def check_guards(self, what: str) -> None:
        """Fail where something outside of the blocks of memory was written."""
        for address, block in self.blocks.items():
            check_guards(block, self.sizes[address], what)

    def inside(self, address: int, size: int, what: str) -> None:
        """Fail unless some bytes lie in one block of memory that was allocated."""
        assert size >= 0, f"{what} of {size} bytes"
        holding = (a for a, n in self.sizes.items() if a <= address and address + size <= a + n)
        assert next(holding, None) is not None, f"{what} of {size} bytes lies outside"

    def free(self, address: int) -> None:
        """Forget the memory."""
        del self.blocks[address], self.sizes[address]

    def fill(self, address: int, byte: int, size: int) -> None:
        """Fill memory."""
        self.inside(address, size, "a fill")
        ctypes.memset(address, byte, size)

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copy in."""
        self.inside(address, array.nbytes, "an upload")
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, address: int, size: int) -> np.ndarray:
        """Copy out."""
        self.inside(address, size, "a download")
        data = np.empty(size, np.uint8)
        ctypes.memmove(data.ctypes.data, address, size)
        return data

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy."""
        self.inside(target, size, "what is copied to")
        self.inside(source, size, "what is copied")
        ctypes.memmove(target, source, size)

    def copy_rows(self, target: int, source: int, rows: Any, stream: Any = 0) -> None:
        """Copy row by row."""
        for k in range(rows.height):
            to = target + rows.target + k * rows.target_pitch
            self.copy(to, source + rows.source + k * rows.source_pitch, rows.width)

    def synchronise(self, what: str = "") -> None:
        """Nothing is asynchronous here."""

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Launch."""
        if function in ORDER:
            return ORDER[function]
        assert function == "cuLaunchKernelEx"
        config, entry, pointers, _ = arguments
        self.launched.append((entry, config))
        self.kernels[entry](pointers)


def argument(pointers: int, index: int, kind: Any) -> Any:
    """Return argument `index` of a launch as a ctypes value."""
    address = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))[index]
    return ctypes.cast(address, ctypes.POINTER(kind))[0]


def array_at(address: int, count: int, dtype: Any) -> np.ndarray:
    """Return memory as a writable array."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=dtype)
