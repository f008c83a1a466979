"""The buffers of a workload on the device, which all contenders share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any

from fusec.bench.fill import PERIOD, repeat
from fusec.dataclasses import dataclass
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, Sizes
from fusec.ir.graph import Fusion, Input
from fusec.run.arrays import StridedArray, span
from fusec.run.device import Device
from fusec.run.inputs import random_elements, random_input

NONE: Mapping[str, Array] = MappingProxyType({})


@dataclass(frozen=True)
class Tensor:
    """A tensor in device memory; strides in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Return how many bytes of memory it spans."""
        return span(self.shape, self.strides) * self.dtype.size

    def download(self, device: Device) -> Array:
        """Return its elements."""
        flat = device.download(self.address, self.size).view(self.dtype.numpy)
        return StridedArray(flat, self.shape, self.strides).array


class Inputs:
    """The inputs of a fusion at some sizes: tensors on the device, and numbers.

    Random as in `fusec run`, except that a random block is generated for each and repeated. given:
    the elements of some inputs, by name. `fill` writes them again.
    """

    def __init__(
        self,
        device: Device,
        fusion: Fusion,
        sizes: Sizes,
        seed: int = 0,
        given: Mapping[str, Array] = NONE,
    ) -> None:
        """Allocate and fill."""
        self.device, self._given = device, given
        self.tensors: dict[str, Tensor] = {}
        self.numbers: dict[str, Any] = {}
        self._blocks: dict[str, Array] = {}
        try:
            for entry in fusion.inputs:
                self._add(fusion, entry, sizes, seed)
        except BaseException:
            self.close()
            raise
        self.fill()

    def __enter__(self) -> Inputs:
        """Return the inputs."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free the memory."""
        self.close()

    def close(self) -> None:
        """Free the memory."""
        for tensor in self.tensors.values():
            self.device.free(tensor.address)
        self.tensors = {}

    def _add(self, fusion: Fusion, entry: Input, sizes: Sizes, seed: int) -> None:
        value = entry.value
        if value.is_scalar and not entry.generator:
            self.numbers[value.name] = random_input(fusion, entry, sizes, seed)
            return
        shape = tuple(d.evaluate(sizes) for d in value.shape)
        strides = tuple(s.evaluate(sizes) for s in entry.strides)
        count = span(shape, strides)
        if value.name in self._given:
            block = self._given[value.name]
        elif entry.generator:
            block = random_input(fusion, entry, sizes, seed).storage
        else:
            block = random_elements(fusion, entry, sizes, min(count, PERIOD), seed)
        self._blocks[value.name] = block
        address = self.device.allocate(count * value.dtype.size, f"input `{value.name}`")
        self.tensors[value.name] = Tensor(address, shape, strides, value.dtype)

    def fill(self) -> None:
        """Write the random elements: kernels may have overwritten an input."""
        for name, tensor in self.tensors.items():
            repeat(self.device, tensor.address, self._blocks[name], tensor.size)

    def arrays(self) -> dict[str, Any]:
        """Return the inputs on the CPU, with the layouts that they have on the device."""
        found: dict[str, Any] = dict(self.numbers)
        for name, tensor in self.tensors.items():
            flat = self.device.download(tensor.address, tensor.size).view(tensor.dtype.numpy)
            found[name] = StridedArray(flat, tensor.shape, tensor.strides)
        return found
