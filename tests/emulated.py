"""A device in host memory that runs the kernels' own text, compiled for the host."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import cuda_on_cpu
from fake_device import ORDER, FakeDevice

from fusec.driver import Compilation

NOT_ON_HOST = ("mma.cuh", "wgmma.cuh", "tma.cuh", "bulk_reduce.cuh")
MOST_THREADS = 1 << 19


def is_on_host(text: str) -> bool:
    """Return whether a kernel has no instructions that the host lacks."""
    return not any(f'"{name}"' in text for name in NOT_ON_HOST)


class EmulatedDevice(FakeDevice):
    """Runs a launch with its own grid and block; `kernels` are the compiled launch functions."""

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Launch."""
        if function in ORDER:
            return ORDER[function]
        assert function == "cuLaunchKernelEx"
        config, entry, pointers, _ = arguments
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        given = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))
        self.kernels[entry](given, (*grid, *block), config.sharedMemBytes)
        self.check_guards(entry)


def can_run(program: Compilation, sizes: Mapping[str, int]) -> bool:
    """Return whether the host can run all kernels, soon."""
    for source in program.kernel_sources:
        if not is_on_host(source.text):
            return False
        threads = prod(source.kernel.block)
        for extent in source.kernel.grid:
            threads *= extent.evaluate(sizes)
        if threads > MOST_THREADS:
            return False
    return True


def emulated(program: Compilation, folder: Path) -> EmulatedDevice:
    """Return a device with the kernels of a program."""
    sources = program.kernel_sources
    built = cuda_on_cpu.build_all([(s.kernel, s.text) for s in sources], folder)
    return EmulatedDevice({s.name: f for s, f in zip(sources, built, strict=True)})
