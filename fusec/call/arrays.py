"""Arrays of the caller's framework: their memory and layout, and allocation of new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.run.arrays import span

if TYPE_CHECKING:
    from fusec.ir.dtype import DType


@dataclass(frozen=True, slots=True)
class View:
    """Memory of an array: its address, shape, strides in elements, type, and the GPU's index.

    device: None for an array on the CPU.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: int | None

    @property
    def bytes(self) -> int:
        """Return how many bytes of memory it spans."""
        return span(self.shape, self.strides) * self.dtype.size


def view_on_cpu(array: Any) -> View:
    """Return the view of a NumPy array."""
    if isinstance(array, np.ma.MaskedArray):
        raise FusecError(
            "it is a masked array", help="pass `x.filled(value)`, and the mask as an input"
        )
    strides = steps_of(array.strides, array.itemsize)
    return View(array.ctypes.data, array.shape, strides, dtypes.of_numpy(array.dtype), None)


def steps_of(strides: Sequence[int], size: int) -> tuple[int, ...]:
    """Return byte strides in elements of `size` bytes; FusecError if they are not multiples."""
    if any(s % size for s in strides):
        raise FusecError(
            f"strides of {list(strides)} bytes, not multiples of {size}",
            help="it is a field of records: pass a contiguous copy",
        )
    return tuple(s // size for s in strides)


def part_on_cpu(memory: Any, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Any:
    """Return a NumPy view of an array's memory; strides and offset in elements."""
    item = memory.dtype.itemsize
    steps = tuple(s * item for s in strides)
    return np.ndarray(tuple(shape), memory.dtype, memory, offset * item, steps)


def empty_on_cpu(shape: Sequence[int], strides: Sequence[int], dtype: DType) -> Any:
    """Return a new NumPy array."""
    return part_on_cpu(np.empty(span(shape, strides), dtype.numpy), shape, strides)


class Kind(Protocol):
    """Interface to a framework's arrays; streams are handles of the CUDA driver."""

    name: str

    @property
    def out_of_memory(self) -> type[Exception]:
        """Return the exception that `empty` raises when out of memory."""
        ...

    def view(self, array: Any) -> View:
        """Return the view of an array."""
        ...

    def stream(self, device: int) -> int:
        """Return the framework's current stream on a device."""
        ...

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: DType,
              device: int | None, stream: int) -> Any:  # fmt: skip
        """Return a new array of the framework, for use on a stream; device: None for the CPU."""
        ...

    def part(self, array: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        """Return a view of an array's memory, at an offset in elements."""
        ...

    def give(self, made: Any, like: Any) -> Any:
        """Return an array made by `empty` or `part` as an array of the type of `like`."""
        ...


def handle_of(stream: Any) -> int:
    """Return the CUDA driver's handle of a stream: an int, PyTorch's, CuPy's, cuda.core's."""
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    raise FusecError(f"stream is a {type(stream).__name__}, expected a stream or its handle")
