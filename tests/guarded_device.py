"""A device in host memory that looks at every launch: what kernels are given must be theirs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import prod
from typing import Any

from cuda_on_cpu import tensor_map
from fake_device import FakeDevice, argument

from fusec.hostir.instructions import Launch
from fusec.hostir.program import HostProgram
from fusec.run.arrays import span
from fusec.run.launch import tensor_map_operands
from fusec.schedule.plan import (
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)
from fusec.target import find


class GuardedDevice(FakeDevice):
    """Checks memory, arguments and geometry of launches; kernels run where there are functions."""

    def __init__(
        self,
        program: HostProgram,
        sizes: Mapping[str, int],
        target: str,
        kernels: Mapping[str, Any],
    ) -> None:
        """Start without memory."""
        super().__init__(dict(kernels))
        self.program, self.given, self.target = program, dict(sizes), find(target)
        self.launches = {launch.kernel: launch for launch in program.launches}

    def load(self, cubin: bytes, entry: str) -> Any:
        """Return the kernel's name, once its machine code is there."""
        assert f".text.{entry}\0".encode() in cubin
        return entry

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Check a launch, and run the kernel where it can be."""
        assert function == "cuLaunchKernelEx"
        config, entry, pointers, _ = arguments
        launch = self.launches[entry]
        self._check_geometry(launch, config)
        for number, given in enumerate(launch.arguments):
            if isinstance(given, (TensorArgument, WorkspaceArgument)):
                address = argument(pointers, number, ctypes.c_uint64)
                assert given.dtype == self.program.buffer[given.name].dtype
                self.inside(address, self.bytes_of(given.name), f"`{given.name}` of {entry}")
            elif not isinstance(given, TensorMapArgument):
                assert isinstance(given, (SizeArgument, ScalarArgument))
        self.launched.append((entry, config))
        if entry in self.kernels:
            grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
            block = (config.blockDimX, config.blockDimY, config.blockDimZ)
            held = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))
            self.kernels[entry](held, (*grid, *block), config.sharedMemBytes)
            self.check_guards(entry)

    def bytes_of(self, name: str) -> int:
        """Return how many bytes a buffer reaches over."""
        buffer = self.program.buffer[name]
        shape = [d.evaluate(self.given) for d in buffer.shape]
        strides = [d.evaluate(self.given) for d in buffer.strides]
        assert min(strides, default=0) >= 0
        return span(shape, strides) * buffer.dtype.size

    def encode(
        self, _: Any, described: TensorMapArgument, address: int, sizes: Mapping[str, int]
    ) -> Any:
        """Stand in for encode_tensor_map: what a map describes must be a buffer's memory."""
        given = tensor_map_operands(described, address, sizes)
        steps = zip(given["extents"][1:], given["strides"], strict=True)
        reach = given["extents"][0] * described.dtype.size + sum((n - 1) * s for n, s in steps)
        assert described.dtype == self.program.buffer[described.buffer].dtype
        assert reach <= self.bytes_of(described.buffer)
        self.inside(address, reach, f"the tensor map of `{described.buffer}`")
        assert prod(described.box) * described.dtype.size <= self.target.shared
        return tensor_map(described, address, sizes)

    def _check_geometry(self, launch: Launch, config: Any) -> None:
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        assert 1 <= prod(block) <= 1024
        assert block[2] <= 64
        assert 0 <= config.sharedMemBytes <= self.target.shared
        assert 1 <= prod(launch.cluster) <= 16
