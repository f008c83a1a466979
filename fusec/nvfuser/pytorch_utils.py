"""nvFuser's helpers around PyTorch."""

from __future__ import annotations

import functools
import gc
import importlib
from collections.abc import Callable
from typing import Any

from fusec.nvfuser.torch_module import torch_module
from fusec.parse.dsl.datatype import DataType, need_dtype, of_dtype
from fusec.parse.dsl.place import placed


def torch_dtype_to_nvfuser_dtype(dtype: Any) -> DataType:
    """Return the DataType of a PyTorch dtype, or of Python's bool, int, float or complex."""
    with placed():
        return of_dtype(need_dtype(dtype))


def python_scalar_to_nvfuser_dtype(number: complex) -> DataType:
    """Return the DataType of a Python number."""
    return torch_dtype_to_nvfuser_dtype(type(number))


def retry_on_oom_or_skip_test(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a test that is retried if the GPU is out of memory, and then skipped."""

    @functools.wraps(function)
    def retried(*args: Any, **options: Any) -> Any:
        torch = torch_module()
        try:
            return function(*args, **options)
        except torch.OutOfMemoryError:
            gc.collect()
            torch.cuda.empty_cache()
        try:
            return function(*args, **options)
        except torch.OutOfMemoryError as error:
            return importlib.import_module("pytest").skip(f"out of memory, twice: {error}")

    return retried


_ATTRIBUTES = {
    "gpu_compute_capability_major": "COMPUTE_CAPABILITY_MAJOR",
    "gpu_compute_capability_minor": "COMPUTE_CAPABILITY_MINOR",
    "gpu_sm_count": "MULTIPROCESSOR_COUNT",
    "gpu_max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "gpu_smem_bytes_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "gpu_regs_per_block": "MAX_REGISTERS_PER_BLOCK",
    "gpu_clock_rate_khz": "CLOCK_RATE",
    "gpu_l2_bytes": "L2_CACHE_SIZE",
    "gpu_mem_clock_khz": "MEMORY_CLOCK_RATE",
    "gpu_mem_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
    "gpu_max_threads_per_sm": "MAX_THREADS_PER_MULTIPROCESSOR",
}
"""The driver's attributes by nvFuser's names."""


@functools.cache
def get_device_properties() -> dict[str, Any]:
    """Return properties of PyTorch's current GPU by nvFuser's names; rates in kHz and GB/s."""
    torch = torch_module()
    driver: Any = importlib.import_module("cuda.bindings.driver")
    index = torch.cuda.current_device()
    facts: dict[str, Any] = {
        "gpu_name": torch.cuda.get_device_name(index),
        "gpu_gmem_bytes": torch.cuda.get_device_properties(index).total_memory,
    }
    for name, attribute in _ATTRIBUTES.items():
        key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}")
        facts[name] = int(driver.cuDeviceGetAttribute(key, index)[1])
    # Two transfers a clock, 8 bits a byte.
    bytes_per_ms = 2 * facts["gpu_mem_clock_khz"] * facts["gpu_mem_bus_width"] / 8
    facts["gpu_peak_bandwidth_gbps"] = bytes_per_ms / 1e6
    return facts


def __getattr__(name: str) -> Any:
    if name == "DEVICE_PROPERTIES":
        return get_device_properties() if torch_module().cuda.is_available() else None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
