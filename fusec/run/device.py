"""The GPU through the CUDA driver: properties, memory, modules; failures raise FusecError."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fusec.dataclasses import dataclass
from fusec.diagnostics import EnvironmentProblem, FusecError, InternalError, OutOfMemory
from fusec.properties import cached_property
from fusec.run.streams import Pool
from fusec.target import TARGETS, Target

if TYPE_CHECKING:
    from fusec.ir.evaluate import Array
    from fusec.run.rows import Rows
    from fusec.segment.roofline import Rates

_OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
_ENVIRONMENT = {
    "CUDA_ERROR_NO_DEVICE": "no CUDA GPU is visible",
    "CUDA_ERROR_INSUFFICIENT_DRIVER": "the NVIDIA driver is too old",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the NVIDIA driver and its libraries do not match",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "the GPU is in use by another process",
    _OUT_OF_MEMORY: "the GPU is out of memory",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernels are built for another GPU",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "the driver does not support this GPU",
}
_CAPABILITY = (75, 76)
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


def device_available() -> str | None:
    """Return why no GPU can be used, or None; cheap: it only loads the driver library."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "the NVIDIA driver (libcuda.so.1) is not installed"
    status = int(library.cuInit(0))
    if status:
        return "no CUDA GPU is visible" if status == 100 else f"cuInit failed with error {status}"
    count = ctypes.c_int(0)
    if library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "no CUDA GPU is visible"
    return None


def device_capability() -> int | None:
    """Return the compute capability of the first GPU, 90 for 9.0; None where it is unknown.

    Only the driver library is loaded, without a context: call it where a GPU is available.
    """
    library = ctypes.CDLL("libcuda.so.1")
    device = ctypes.c_int(0)
    numbers = ctypes.c_int(0), ctypes.c_int(0)
    failed = library.cuDeviceGet(ctypes.byref(device), 0)
    for number, attribute in zip(numbers, _CAPABILITY, strict=True):
        failed = failed or library.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
    return None if failed else numbers[0].value * 10 + numbers[1].value


def load_driver() -> Any:
    """Return cuda.bindings.driver; EnvironmentProblem where it is not installed."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise EnvironmentProblem(
            "the Python package cuda-python is not installed", notes=(str(error),),
            help="pip install 'cuda-python>=13,<14'",
        ) from None  # fmt: skip


@dataclass(frozen=True)
class DeviceFacts:
    """Properties of a device; peak_bandwidth: bytes per second, from memory clock and bus width."""

    name: str
    capability: int
    sms: int
    l2: int
    memory: int
    shared: int
    peak_bandwidth: float
    driver: str

    @property
    def target(self) -> Target | None:
        """Return the known target of this device, preferring arch-specific features."""
        fitting = [t for t in TARGETS.values() if t.capability == self.capability]
        return max(fitting, key=lambda t: t.arch, default=None)

    @property
    def rates(self) -> Rates:
        """Return the peak rates that times are compared with; tensor cores only where known."""
        from fusec.segment.roofline import Rates

        target = self.target
        if target is not None and target.device in self.name:
            return Rates(target.read_bandwidth, target.half_flops)
        return Rates(0.9 * self.peak_bandwidth)

    def text(self) -> str:
        """Return one line."""
        return f"{self.name}, sm_{self.capability}, {self.sms} SMs, driver {self.driver}"


class Device:
    """One GPU with its primary context and a stream; use it in a `with` statement."""

    def __init__(self, index: int = 0) -> None:
        """Open device `index`."""
        reason = device_available()
        if reason is not None:
            raise EnvironmentProblem(reason, help="use --device reference to run without a GPU")
        self.driver, self.index = load_driver(), index
        self._modules: dict[Any, Any] = {}
        self.pool = Pool(self)
        try:
            self.call("cuInit", 0)
            self._device = self.call("cuDeviceGet", index)
            self._context = self.call("cuDevicePrimaryCtxRetain", self._device)
            self.call("cuCtxSetCurrent", self._context)
            self.stream = self.call("cuStreamCreate", 1)
        except RuntimeError as error:
            raise EnvironmentProblem(
                "the NVIDIA driver cannot be used", notes=(str(error),)
            ) from None

    @property
    def context(self) -> int:
        """Return the handle of the primary context."""
        return int(self._context)

    @contextmanager
    def current(self) -> Generator[None]:
        """Make the device's context current in this thread, temporarily."""
        self.call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    @contextmanager
    def relaxed_capture(self) -> Generator[None]:
        """Let this thread allocate memory, load kernels and wait while a stream is captured."""
        relaxed = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = self.call("cuThreadExchangeStreamCaptureMode", relaxed)
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", before)

    def capture_number(self, stream: Any) -> int:
        """Return the unique number of the capture that a stream takes part in."""
        _, number, *_ = self.call("cuStreamGetCaptureInfo", stream)
        return int(number)

    def captured_node(self, stream: Any) -> int:
        """Return the graph node added to a stream last, while it is captured."""
        nodes = self.call("cuStreamGetCaptureInfo", stream)[3]
        if nodes is None or len(nodes) != 1:
            raise EnvironmentProblem("the driver does not name the node that a capture added")
        return int(nodes[0])

    def __enter__(self) -> Device:
        """Return the device."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release all resources."""
        self.close()

    def close(self) -> None:
        """Unload modules and release the context; failures after a fault are ignored."""
        for module in self._modules.values():
            self.driver.cuModuleUnload(module)
        self._modules = {}
        self.pool.close()
        self.driver.cuStreamDestroy(self.stream)
        self.driver.cuDevicePrimaryCtxRelease(self._device)

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Call a driver function and return its result; FusecError where it fails."""
        status, *results = getattr(self.driver, function)(*arguments)
        if int(status):
            self.fail(function, status, what)
        return results[0] if len(results) == 1 else results or None

    def fail(self, function: str, status: Any, what: str) -> NoReturn:
        """Raise FusecError for a function that returned a status."""
        raise self._error(function, status, what)

    def _error(self, function: str, status: Any, what: str) -> FusecError:
        name = str(getattr(status, "name", status))
        about = f" ({what})" if what else ""
        if name in _ENVIRONMENT:
            kind = OutOfMemory if name == _OUT_OF_MEMORY else EnvironmentProblem
            return kind(f"{_ENVIRONMENT[name]}{about}", notes=(f"{function}: {name}",))
        return InternalError(
            f"the GPU reports {name}{about}",
            notes=(f"from {function}",),
            help="this is a bug in fusec; please report the fusion file and the sizes",
        )

    @property
    def count(self) -> int:
        """Return the number of devices."""
        return int(self.call("cuDeviceGetCount"))

    @cached_property
    def facts(self) -> DeviceFacts:
        """Return the properties of the device."""
        kinds = self.driver.CUdevice_attribute

        def attribute(name: str) -> int:
            kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
            return int(self.call("cuDeviceGetAttribute", kind, self._device))

        raw = self.call("cuDeviceGetName", 128, self._device)
        version = int(self.call("cuDriverGetVersion"))
        clock = attribute("MEMORY_CLOCK_RATE") * 1000
        return DeviceFacts(
            name=raw.decode(errors="replace").strip("\0 "),
            capability=attribute("COMPUTE_CAPABILITY_MAJOR") * 10
            + attribute("COMPUTE_CAPABILITY_MINOR"),
            sms=attribute("MULTIPROCESSOR_COUNT"),
            l2=attribute("L2_CACHE_SIZE"),
            memory=int(self.call("cuDeviceTotalMem", self._device)),
            shared=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            peak_bandwidth=2.0 * clock * attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8,
            driver=f"CUDA {version // 1000}.{version % 1000 // 10}",
        )

    def load(self, cubin: bytes, entry: str) -> Any:
        """Return the function `entry` of a cubin."""
        image = np.frombuffer(cubin, np.uint8)
        module = self.call("cuModuleLoadData", image.ctypes.data, what=f"loading kernel `{entry}`")
        function = self.call(
            "cuModuleGetFunction", module, entry.encode(), what=f"kernel `{entry}`"
        )
        self._modules[int(function)] = module
        return function

    def unload(self, function: Any) -> None:
        """Unload a kernel's machine code; it must not be in use."""
        self.call("cuModuleUnload", self._modules.pop(int(function)))

    def can_share(self, address: int) -> bool:
        """Return whether other processes can map the memory at an address, as of cuMemAlloc."""
        status, base, _ = self.driver.cuMemGetAddressRange(address)
        if int(status):
            return False
        status, _ = self.driver.cuIpcGetMemHandle(base)
        return not int(status)

    def allocate(self, size: int, what: str) -> int:
        """Return the address of newly allocated memory; at least one byte."""
        return int(self.call("cuMemAlloc", max(size, 1), what=f"{size} bytes for {what}"))

    def free(self, address: int) -> None:
        """Free memory."""
        self.driver.cuMemFree(address)

    def fill(self, address: int, byte: int, size: int, stream: Any = None) -> None:
        """Fill memory with one byte, in the order of `stream`, by default the device's own."""
        if size:
            on = self.stream if stream is None else stream
            self.call("cuMemsetD8Async", address, byte, size, on)

    def upload(self, address: int, array: Array) -> None:
        """Copy a contiguous array to the device, in stream order.

        The array may be changed right away: the call returns after pageable memory has been staged.
        """
        if array.nbytes:
            given = (address, array.ctypes.data, array.nbytes, self.stream)
            self.call("cuMemcpyHtoDAsync", *given)

    def download(self, address: int, size: int) -> Array:
        """Return `size` bytes of device memory."""
        data = np.empty(size, np.uint8)
        if size:
            self.call("cuMemcpyDtoHAsync", data.ctypes.data, address, size, self.stream)
            self.synchronise()
        return data

    def copy(self, target: int, source: int, size: int, stream: Any = None) -> None:
        """Copy device memory, in the order of `stream`, by default the device's own."""
        if size and target != source:
            on = self.stream if stream is None else stream
            self.call("cuMemcpyDtoDAsync", target, source, size, on)

    def copy_rows(self, target: int, source: int, rows: Rows, stream: Any = None) -> None:
        """Copy rows of device memory, in stream order."""
        to, origin = target + rows.target, source + rows.source
        if rows.height == 1:
            self.copy(to, origin, rows.width, stream)
            return
        given = self.driver.CUDA_MEMCPY2D()
        kind = self.driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        given.dstMemoryType = given.srcMemoryType = kind
        given.dstDevice, given.srcDevice = to, origin
        given.dstPitch, given.srcPitch = rows.target_pitch, rows.source_pitch
        given.WidthInBytes, given.Height = rows.width, rows.height
        self.call("cuMemcpy2DAsync", given, self.stream if stream is None else stream)

    def synchronise(self, what: str = "") -> None:
        """Wait for the stream; a kernel's fault surfaces here."""
        self.call("cuStreamSynchronize", self.stream, what=what)

    def is_done(self) -> bool:
        """Return whether the stream has completed all its work, without waiting."""
        (status,) = self.driver.cuStreamQuery(self.stream)
        if str(getattr(status, "name", status)) == "CUDA_ERROR_NOT_READY":
            return False
        if int(status):
            self.fail("cuStreamQuery", status, "running the kernels")
        return True

    def function_attributes(self, function: Any, values: Mapping[str, int]) -> None:
        """Set attributes of a kernel, named without their prefix."""
        for name, value in values.items():
            kind = getattr(self.driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            self.call("cuFuncSetAttribute", function, kind, value, what=name.lower())


def count_gpus() -> int:
    """Return the number of visible GPUs."""
    driver = load_driver()
    driver.cuInit(0)
    return int(driver.cuDeviceGetCount()[1])


def gpu_of(local_rank: int, ranks: int) -> int:
    """Return the number of a rank's GPU: its local rank, or 0 where only one GPU is visible.

    ranks: on this host, 0 where that is unknown. EnvironmentProblem where it sees fewer GPUs than
    ranks, and more than one.
    """
    count = count_gpus()
    if 1 < count < ranks:
        raise EnvironmentProblem(f"{ranks} ranks on a host with {count} GPUs")
    return local_rank if count > 1 else 0


@cache
def open_device(index: int) -> Device:
    """Return a device that stays open for the life of the process; the current context is kept."""
    driver = load_driver()
    driver.cuInit(0)
    _, before = driver.cuCtxGetCurrent()
    try:
        return Device(index)
    finally:
        driver.cuCtxSetCurrent(before)
