"""Arrays supported through DLPack or `__cuda_array_interface__`: JAX's, Numba's, any."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.call.arrays import View, empty_on_cpu, part_on_cpu, steps_of, view_on_cpu
from fusec.diagnostics import EnvironmentProblem, OutOfMemory
from fusec.ir import dtype as dtypes
from fusec.properties import cached_property
from fusec.run.arrays import dense_strides, span
from fusec.run.device import open_device

if TYPE_CHECKING:
    from fusec.ir.dtype import DType

NO_STREAM = -1
"""No stream to wait for, in DLPack."""
LEGACY_STREAM = 1
"""CUDA's default stream, which synchronizes with all blocking ones, in both interfaces."""


class DeviceArray:
    """GPU memory allocated by fusec, for any framework; freed with its last user.

    shape; strides in elements; dtype. A framework imports it by `from_dlpack` or `as_cuda_array`.
    """

    def __init__(
        self, shape: Sequence[int], strides: Sequence[int], dtype: DType, device: int
    ) -> None:
        """Allocate."""
        self.shape, self.strides, self.dtype, self.device = (
            tuple(shape),
            tuple(strides),
            dtype,
            device,
        )
        self._opened = open_device(device)
        size = span(shape, strides) * dtype.size
        with self._opened.current():
            self._owned = self.address = self._opened.allocate(size, "an output")
        self._base: Any = None

    @classmethod
    def over(cls, view: View, owner: Any) -> DeviceArray:
        """Return a view of another framework's array, which is kept alive."""
        made = cls.__new__(cls)
        made.shape, made.strides, made.dtype = view.shape, view.strides, view.dtype
        assert view.device is not None
        made.device, made._opened = view.device, open_device(view.device)
        made.address, made._owned, made._base = view.address, 0, owner
        return made

    def part(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> DeviceArray:
        """Return a view of the memory, at an offset in elements."""
        made = DeviceArray.__new__(DeviceArray)
        made.shape, made.strides, made.dtype = tuple(shape), tuple(strides), self.dtype
        made.device, made._opened, made._owned, made._base = self.device, self._opened, 0, self
        made.address = self.address + offset * self.dtype.size
        return made

    def __del__(self) -> None:
        """Free the memory; the driver waits for pending work."""
        if getattr(self, "_owned", 0):
            with self._opened.current():
                self._opened.free(self._owned)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        item = self.dtype.size
        return {
            "shape": self.shape, "typestr": self.dtype.numpy.str, "version": 3,
            "data": (self.address, False), "strides": tuple(s * item for s in self.strides),
            "stream": LEGACY_STREAM,
        }  # fmt: skip

    @cached_property
    def _view(self) -> Any:
        core: Any = import_module("cuda.core")
        utils: Any = import_module("cuda.core.utils")
        core.Device(self.device).set_current()
        size = span(self.shape, self.strides) * self.dtype.size
        buffer = core.Buffer.from_handle(self.address, max(size, 1), owner=self)
        form = self.shape, self.strides
        return utils.StridedMemoryView.from_buffer(buffer, *form, dtype=self.dtype.numpy)

    def __dlpack__(self, **options: Any) -> Any:
        """Return a capsule, after waiting for earlier launches on it."""
        with self._opened.current():
            self._opened.call("cuCtxSynchronize")
        return self._view.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return CUDA's device type and the index."""
        return 2, self.device


class Exchange:
    """Arrays of one type that supports DLPack or `__cuda_array_interface__`."""

    out_of_memory = OutOfMemory

    def __init__(self, kind: type) -> None:
        """Take the type by the name of its package."""
        self.name = kind.__module__.partition(".")[0]
        try:
            self._read: Callable[..., Any] = import_module(
                "cuda.core.utils"
            ).StridedMemoryView.from_any_interface
        except ImportError as error:
            raise EnvironmentProblem(
                f"arrays of {self.name} are read by cuda.core, which cannot be loaded",
                notes=(str(error),), help="pip install cuda-core",
            ) from None  # fmt: skip

    def view(self, array: Any) -> View:
        """Return the view of an array; the default stream waits for its producer."""
        if isinstance(array, np.ndarray):  # as `empty` makes them on the CPU
            return view_on_cpu(array)
        if isinstance(array, DeviceArray):
            return View(array.address, array.shape, array.strides, array.dtype, array.device)
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is not None and (_names_streams(interface) or not _has_dlpack(array)):
            return _by_interface(interface)
        seen = self._read(array, LEGACY_STREAM if _on_gpu(array) else NO_STREAM)
        shape = tuple(seen.shape)
        strides = tuple(seen.strides) if seen.strides is not None else dense_strides(shape)
        device = seen.device_id if seen.is_device_accessible else None
        return View(seen.ptr, shape, strides, dtypes.of_numpy(seen.dtype), device)

    def stream(self, device: int) -> int:
        """Return CUDA's default stream."""
        return 0

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: DType,
              device: int | None, stream: int) -> Any:  # fmt: skip
        """Return memory of fusec, or NumPy's on the CPU, where the framework cannot allocate."""
        if device is None:
            return empty_on_cpu(shape, strides, dtype)
        return DeviceArray(shape, strides, dtype, device)

    def part(self, array: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        """Return a view of fusec's memory, or of the caller's."""
        view = self.view(array)
        if view.device is None:
            return over_memory(view, array, (shape, strides, offset))
        held = array if isinstance(array, DeviceArray) else DeviceArray.over(view, array)
        return held.part(shape, strides, offset)

    def give(self, made: Any, like: Any) -> Any:
        """Return an output as an array of the caller's framework."""
        namespace = getattr(like, "__array_namespace__", None)
        if namespace is not None:
            return namespace().from_dlpack(made)
        if self.name == "numba" and isinstance(made, DeviceArray):
            return import_module("numba.cuda").as_cuda_array(made)
        return made


def over_memory(
    view: View, owner: Any, form: tuple[Sequence[int], Sequence[int], int] | None = None
) -> Any:
    """Return a NumPy array over the memory of one on the CPU, which is kept alive.

    form: shape, strides and offset in elements, if they differ from the array's.
    """
    shape, strides, offset = form or (view.shape, view.strides, 0)
    count = span(view.shape, view.strides)
    kind: Any = view.dtype.numpy
    if not count:
        return np.empty(tuple(shape), kind)
    memory: Any = (ctypes.c_char * view.bytes).from_address(view.address)
    memory._owner = owner
    return part_on_cpu(np.frombuffer(memory, kind, count), shape, strides, offset)


def _by_interface(interface: dict[str, Any]) -> View:
    """Return the view that a `__cuda_array_interface__` of any version describes."""
    kind, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    address, device = int(interface["data"][0]), open_device(0)
    index = 0
    if address:
        ordinal = device.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        index = int(device.call("cuPointerGetAttribute", ordinal, address))
    stream = interface.get("stream")
    with open_device(index).current():
        if stream is not None and stream > LEGACY_STREAM:
            device.call("cuStreamSynchronize", stream)
        elif not _names_streams(interface):
            device.call("cuCtxSynchronize")
    given = interface.get("strides")
    strides = dense_strides(shape) if given is None else steps_of(given, kind.itemsize)
    return View(address, shape, tuple(strides), dtypes.of_numpy(kind), index)


def _names_streams(interface: dict[str, Any]) -> bool:
    """Return whether an interface has a stream to wait for: version 3 and later do."""
    return int(interface.get("version", 0)) >= 3


def _has_dlpack(array: Any) -> bool:
    return hasattr(array, "__dlpack__")


def _on_gpu(array: Any) -> bool:
    where = getattr(array, "__dlpack_device__", None)
    return where is None or int(where()[0]) == 2
