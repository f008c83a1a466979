"""Frameworks whose arrays calls accept: PyTorch, CuPy, NumPy; others by array protocols."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.call.arrays import Kind, View, empty_on_cpu, part_on_cpu, steps_of, view_on_cpu
from fusec.call.interfaces import Exchange
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.run.arrays import span

if TYPE_CHECKING:
    from fusec.ir.dtype import DType


class Torch:
    """Tensors of PyTorch."""

    name = "PyTorch"

    def __init__(self) -> None:
        """Use PyTorch as it is loaded."""
        self._torch: Any = sys.modules["torch"]
        raw = getattr(self._torch._C, "_cuda_getCurrentRawStream", None)
        self._raw: Callable[[int], int] = raw or self._current
        self.types = self._torch.Tensor, self._torch.nn.Parameter
        self.exchange = getattr(self._torch.Tensor, "__dlpack_c_exchange_api__", None)
        self.is_capturing: Callable[[], bool] = self._torch.cuda.is_current_stream_capturing

    @property
    def out_of_memory(self) -> type[Exception]:
        """Return PyTorch's error."""
        return self._torch.cuda.OutOfMemoryError

    def _current(self, device: int) -> int:
        return self._torch.cuda.current_stream(device).cuda_stream

    def view(self, array: Any) -> View:
        """Return the view of a tensor."""
        if array.layout is not self._torch.strided:
            raise FusecError(f"a tensor with layout {array.layout} is not supported")
        if array.is_conj() or array.is_neg():
            raise FusecError("the tensor is conjugated lazily", help="call .resolve_conj() first")
        return View(
            array.data_ptr(), tuple(array.shape), array.stride(), _torch_dtype(array.dtype),
            array.device.index if array.is_cuda else None,
        )  # fmt: skip

    def stream(self, device: int) -> int:
        """Return PyTorch's current stream."""
        return self._raw(device)

    def generator(self, device: int) -> Any:
        """Return PyTorch's default random number generator of a GPU."""
        return self._torch.cuda.default_generators[device]

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: DType,
              device: int | None, stream: int) -> Any:  # fmt: skip
        """Return a tensor of PyTorch's caching allocator, or on the CPU."""
        torch = self._torch
        if device is None:
            return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype.long))
        options = {"dtype": getattr(torch, dtype.long), "device": self.place(device)}
        if stream == self._raw(device):
            return torch.empty_strided(shape, strides, **options)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, device)):
            return torch.empty_strided(shape, strides, **options)

    def allocation(
        self, shape: Sequence[int], strides: Sequence[int], dtype: DType, device: int
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return a function and its arguments that allocate a tensor on the current stream."""
        torch, kind = self._torch, getattr(self._torch, dtype.long)
        known = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        quick = getattr(known, "_empty_strided_cuda", None)
        if quick is not None and torch.cuda.device_count() == 1:
            return quick, (tuple(shape), tuple(strides), kind), {}
        options = {"dtype": kind, "device": self.place(device)}
        return torch.empty_strided, (tuple(shape), tuple(strides)), options

    def place(self, device: int) -> Any:
        """Return PyTorch's device with an index."""
        return self._torch.device("cuda", device)

    def part(self, array: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        """Return a view of a tensor's memory."""
        return self._torch.as_strided(array, shape, strides, array.storage_offset() + offset)

    def give(self, made: Any, like: Any) -> Any:
        """Return it unchanged."""
        return made


@dataclass(frozen=True)
class _Stream:
    """A stream for CuPy to adopt, by the protocol of CUDA's Python packages."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def _stream_of_cupy(cupy: Any, stream: int, device: int | None) -> Any:
    """Return a stream as CuPy's; ExternalStream is the class before CuPy 14."""
    made = getattr(cupy.cuda.Stream, "from_external", None)
    return made(_Stream(stream)) if made else cupy.cuda.ExternalStream(stream, device)


class Cupy:
    """Arrays of CuPy."""

    name = "CuPy"

    def __init__(self) -> None:
        """Use CuPy as it is loaded."""
        self._cupy: Any = sys.modules["cupy"]

    @property
    def out_of_memory(self) -> type[Exception]:
        """Return CuPy's error."""
        return self._cupy.cuda.memory.OutOfMemoryError

    def view(self, array: Any) -> View:
        """Return the view of an array."""
        item = array.dtype.itemsize
        return View(
            array.data.ptr, array.shape, steps_of(array.strides, item),
            dtypes.of_numpy(array.dtype), array.device.id,
        )  # fmt: skip

    def stream(self, device: int) -> int:
        """Return CuPy's current stream."""
        return self._cupy.cuda.get_current_stream(device).ptr

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: DType,
              device: int | None, stream: int) -> Any:  # fmt: skip
        """Return an array of CuPy's memory pool."""
        cupy = self._cupy
        with cupy.cuda.Device(device), _stream_of_cupy(cupy, stream, device):
            flat = cupy.empty(span(shape, strides), dtype.numpy)
        return self.part(flat, shape, strides, 0)

    def part(self, array: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        """Return a view of an array's memory."""
        item = array.dtype.itemsize
        return self._cupy.ndarray(
            tuple(shape), array.dtype, array.data + offset * item,
            strides=tuple(s * item for s in strides),
        )  # fmt: skip

    def give(self, made: Any, like: Any) -> Any:
        """Return it unchanged."""
        return made


class Host:
    """NumPy arrays, on the CPU: they are copied to the GPU and back."""

    name = "NumPy"
    out_of_memory = MemoryError

    def view(self, array: Any) -> View:
        """Return the view of an array."""
        return view_on_cpu(np.asanyarray(array))

    def stream(self, device: int) -> int:
        """Return no stream: NumPy has none."""
        return 0

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: DType,
              device: int | None, stream: int) -> Any:  # fmt: skip
        """Return an array on the CPU."""
        return empty_on_cpu(shape, strides, dtype)

    def part(self, array: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        """Return a view of an array's memory."""
        return part_on_cpu(array, shape, strides, offset)

    def give(self, made: Any, like: Any) -> Any:
        """Return it unchanged."""
        return made


@cache
def _torch_dtype(dtype: Any) -> DType:
    return dtypes.find(str(dtype).removeprefix("torch."))


_ROOTS: dict[str, Callable[[], Kind]] = {"torch": Torch, "cupy": Cupy, "numpy": Host}


@cache
def _kind_of_type(kind: Any) -> Kind | None:
    for base in kind.__mro__:
        root = base.__module__.partition(".")[0]
        if root in _ROOTS and (root != "torch" or hasattr(kind, "data_ptr")):
            return _instance(root)
    if hasattr(kind, "__cuda_array_interface__") or hasattr(kind, "__dlpack__"):
        return Exchange(kind)
    return None


@cache
def _instance(root: str) -> Kind:
    return _ROOTS[root]()


def kind_of(array: Any) -> Kind | None:
    """Return the interface to an array's framework; None for a value that is not an array."""
    kind: Any = type(array)  # pyright: ignore[reportUnknownVariableType]
    known = _kind_of_type(kind)
    if known is None and hasattr(array, "__cuda_array_interface__"):
        return Exchange(kind)
    return known
