"""Segments of a GPU program that the CPU evaluates: tensors are copied there and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.dataclasses import dataclass
from fusec.run.arrays import over_bytes

if TYPE_CHECKING:
    from fusec.hostir.instructions import Post
    from fusec.hostir.program import HostProgram
    from fusec.ir.evaluate import Array, Sizes
    from fusec.ir.graph import Fusion
    from fusec.run.operations import Place


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the program by its name in the segment; view: its bytes as an array."""

    name: str
    place: Place
    size: int
    view: Callable[[Array], Array]


@dataclass(frozen=True)
class EvaluateSegment:
    """Wait for a stream, evaluate a segment on the CPU, and write its results.

    scalars: values by name, at the time it is issued.
    """

    fusion: Fusion
    reads: tuple[_Tensor, ...]
    writes: tuple[_Tensor, ...]
    scalars: Mapping[str, Any]
    sizes: Sizes
    stream: int

    def issue(self, device: Any, addresses: Sequence[int]) -> None:
        """Run it synchronously; the stream is idle when this returns."""
        from fusec.reference.stream import outputs_of

        given = {
            t.name: t.view(_download(device, t.place.address(addresses), t.size, self.stream))
            for t in self.reads
        }
        numbers = (i.value.name for i in self.fusion.inputs if i.value.is_scalar)
        results = outputs_of(
            self.fusion, {**given, **{n: self.scalars[n] for n in numbers}}, self.sizes
        )
        for tensor in self.writes:
            # Gaps between the elements of a strided result keep their contents.
            address = tensor.place.address(addresses)
            memory = _download(device, address, tensor.size, self.stream)
            tensor.view(memory)[...] = results[tensor.name]
            if tensor.size:
                there = address, memory.ctypes.data, tensor.size, self.stream
                device.call("cuMemcpyHtoDAsync", *there)
                device.call("cuStreamSynchronize", self.stream, what="writing a result")


def evaluation(
    post: Post,
    fusion: Fusion,
    program: HostProgram,
    place: Callable[[str], Place],
    scalars: Mapping[str, Any],
    sizes: Sizes,
    stream: int,
) -> EvaluateSegment:
    """Return the evaluation of a segment on buffers of a program, at given places."""

    def tensor(name: str, buffer: str) -> _Tensor:
        held = program.buffer[buffer]
        return _Tensor(
            name, place(buffer), held.bytes(sizes), lambda raw: over_bytes(raw, held, sizes)
        )

    inputs = zip(fusion.inputs, post.inputs, strict=True)
    reads = tuple(tensor(i.value.name, n) for i, n in inputs if not i.value.is_scalar)
    made = zip(fusion.outputs, post.outputs, strict=True)
    writes = tuple(tensor(o.value.name, n) for o, n in made)
    return EvaluateSegment(fusion, reads, writes, scalars, sizes, stream)


def _download(device: Any, address: int, size: int, stream: int) -> Array:
    data = np.empty(size, np.uint8)
    if size:
        device.call("cuMemcpyDtoHAsync", data.ctypes.data, address, size, stream)
        device.call("cuStreamSynchronize", stream, what="reading an operand")
    return data
