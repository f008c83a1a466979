"""A framework and a GPU in host memory: calls of programs run kernels' own text on them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda_on_cpu
import numpy as np
import pytest
from emulated import EmulatedDevice
from fake_device import ORDER

from fusec import compiling
from fusec.call import arrays, frameworks, program
from fusec.call.arrays import View
from fusec.call.variants import Variant
from fusec.driver import compile_fusion
from fusec.ir import dtype as dtypes
from fusec.options import CompileOptions
from fusec.run.device import Device
from fusec.shard.partition import partition
from fusec.shard.place import whole_sizes
from fusec.target import TARGETS


class GpuArray:
    """An array of the framework: NumPy's memory, said to lie on a GPU."""

    def __init__(self, array: Any, device: int = 0) -> None:
        """Hold the array."""
        self.array, self.device, self.lazy = array, device, False

    def is_conj(self) -> bool:
        """Return whether it is to be conjugated when it is read."""
        return False

    def is_neg(self) -> bool:
        """Return whether it is to be negated when it is read."""
        return self.lazy


class Framework:
    """What calls know of it; counts what it allocates."""

    name = "called"
    out_of_memory = MemoryError

    def __init__(self) -> None:
        """Start on stream 7."""
        self.current = 7
        self.allocated = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def view(self, array: Any) -> View:
        """Return where it lies."""
        data = array.array
        item = data.itemsize
        address = data.ctypes.data if data.size else 0
        strides = tuple(s // item for s in data.strides)
        return View(address, data.shape, strides, dtypes.of_numpy(data.dtype), array.device)

    def stream(self, device: int) -> int:
        """Return the current stream."""
        return self.current

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: Any, device: int,
              stream: int) -> GpuArray:  # fmt: skip
        """Return poisoned memory."""
        self.allocated += 1
        self.meanwhile()
        count = arrays.span(shape, strides)
        return self.part(GpuArray(aligned(count, dtype.numpy), device), shape, strides, 0)

    def part(self, array: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        """Return a view."""
        flat = array.array.reshape(-1)
        item = flat.itemsize
        steps = tuple(s * item for s in strides)
        raw = np.lib.stride_tricks.as_strided(flat[offset:].view(f"V{item}"), tuple(shape), steps)
        return GpuArray(raw.view(flat.dtype), array.device)

    def give(self, made: Any, like: Any) -> Any:
        """Return it as it is."""
        return made


GpuArray.__module__ = "called"


def aligned(count: int, dtype: Any) -> Any:
    """Return a poisoned array at a multiple of 256 bytes."""
    size = count * np.dtype(dtype).itemsize
    raw = np.full(size + 256, 0xFF, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + size].view(dtype)


def on_gpu(array: Any) -> GpuArray:
    """Return a copy of an array on the GPU."""
    made = aligned(array.size, array.dtype)
    made[...] = array.reshape(-1)
    return GpuArray(made.reshape(array.shape))


class CallDevice(EmulatedDevice):
    """Counts what the driver is asked for; memory of streams is the host's."""

    index = 0
    fail, _error = Device.fail, Device._error
    relaxed_capture, capture_number = Device.relaxed_capture, Device.capture_number

    def __init__(self) -> None:
        """Start without kernels."""
        super().__init__({})
        self.asked: list[str] = []
        self.live: dict[int, Any] = {}
        self.entries: dict[bytes, str] = {}
        self.capturing, self.mode = False, 0
        modes = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
        self.driver.CUstreamCaptureMode = modes
        self.facts = SimpleNamespace(capability=90, name="a GPU", target=TARGETS["sm_90a"], sms=132)

    @contextmanager
    def current(self) -> Generator[None]:
        """Do nothing."""
        yield

    def load(self, cubin: bytes, entry: str) -> Any:
        """Return the kernel's name, and count."""
        self.asked.append("load")
        return self.entries[cubin]

    def unload(self, function: Any) -> None:
        """Count."""
        self.asked.append("unload")

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Do what the driver does."""
        self.asked.append(function)
        match function:
            case "cuLaunchKernelEx":
                return super().call(function, *arguments, what=what)
            case "cuMemAllocAsync":
                made = aligned(arguments[0], np.uint8)
                self.live[made.ctypes.data] = made
                return made.ctypes.data
            case "cuMemFreeAsync":
                self.live.pop(arguments[0])
            case "cuMemsetD8Async":
                ctypes.memset(arguments[0], arguments[1], arguments[2])
            case "cuMemcpyHtoDAsync" | "cuMemcpyDtoDAsync" | "cuMemcpyHtoD":
                ctypes.memmove(arguments[0], arguments[1], arguments[2])
            case "cuMemcpyDtoH" | "cuMemcpyDtoHAsync":
                ctypes.memmove(arguments[0], arguments[1], arguments[2])
            case "cuStreamIsCapturing":
                return int(self.capturing)
            case "cuThreadExchangeStreamCaptureMode":
                self.mode, before = arguments[0], self.mode
                return before
            case "cuStreamGetCaptureInfo":
                return 1, self.asked.count("cuStreamGetCaptureInfo")
            case _ if function in ORDER:
                return super().call(function, *arguments, what=what)
            case _:
                assert function in ("cuStreamSynchronize", "cuCtxSynchronize"), function
        return None


def framework(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    device: CallDevice | None = None,
    known: Framework | None = None,
) -> tuple[CallDevice, Framework]:
    """Let calls find the device and the framework; kernels are built for the host in a folder."""
    device, known = device or CallDevice(), known or Framework()
    monkeypatch.setitem(frameworks._ROOTS, "called", lambda: known)
    frameworks._kind_of_type.cache_clear()
    frameworks._instance.cache_clear()
    monkeypatch.setattr(program, "open_device", lambda index: device)
    original = compiling.maker

    def maker(fusion: Any, options: CompileOptions) -> Any:
        make = original(fusion, options)

        def made(sizes: Mapping[str, int], on: Any) -> Variant:
            variant = make(sizes, None)
            hinted = compiling.at(fusion, whole_sizes(fusion, partition(fusion), sizes))
            compiled = compile_fusion(hinted, options).program
            place = folder / str(len(device.kernels))
            place.mkdir()
            for source in compiled.kernel_sources:
                entry = f"{source.name} {len(device.kernels)}"
                device.entries[variant.cubins["sm_90a"][source.name]] = entry
                device.kernels[entry] = cuda_on_cpu.build(source.kernel, source.text, place)
            return variant

        return made

    monkeypatch.setattr(compiling, "maker", maker)
    return device, known
