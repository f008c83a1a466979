"""Kernels of the transports themselves: compiled by NVRTC on first use, and loaded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fusec.diagnostics import EnvironmentProblem
from fusec.run.binary.nvrtc import supported_architectures
from fusec.run.build import Source, build
from fusec.run.device import Device
from fusec.run.distributed.links import Links


class TransportKernels:
    """The kernels that transports of this process launch on its GPU."""

    def __init__(self, device: Device) -> None:
        """Load nothing yet."""
        self._device = device
        self._functions: dict[str, Any] = {}

    def load(self, source: Path, name: str) -> Any:
        """Return a kernel of a CUDA source file, by its name, which is unique."""
        if name not in self._functions:
            text = source.read_text(encoding="utf-8")
            arch = f"sm_{self._device.facts.capability}"
            (built,) = build([Source(source.stem, text)], [arch], 1).values()
            self._functions[name] = self._device.load(built.cubin, name)
        return self._functions[name]


def transport_kernels(links: Links, device: Device) -> TransportKernels | None:
    """Return the kernels if every rank has NVRTC to build them, else None; all ranks call it."""
    try:
        able = bool(supported_architectures())
    except EnvironmentProblem:
        able = False
    return TransportKernels(device) if all(links.gather(able, "compilers")) else None
