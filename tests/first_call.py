"""A process that compiles a file and calls it once, on a device whose kernels do nothing.

python tests/first_call.py FILE prints the modules of fusec that it has loaded then.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_device import FakeDevice

import fusec


class Device(FakeDevice):
    """Counts launches, and has memory of the host."""

    index = 0
    facts = SimpleNamespace(capability=90, name="a GPU", sms=132)

    @contextmanager
    def current(self) -> Generator[None]:
        """Do nothing."""
        yield

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Note a launch."""
        if function == "cuLaunchKernelEx":
            self.launched.append((arguments[1], arguments[0]))
            return None
        if function == "cuMemAllocAsync":
            return self.allocate(arguments[0], what)
        return super().call(function, *arguments, what=what)


class GpuArray:
    """An array of the framework."""

    def __init__(self, array: Any) -> None:
        """Hold the array."""
        self.array = array


class Framework:
    """What calls know of arrays."""

    name = "arrays"
    out_of_memory = MemoryError

    def view(self, array: GpuArray) -> Any:
        """Return where one lies."""
        from fusec.call.arrays import View
        from fusec.ir import dtype as dtypes

        data = array.array
        strides = tuple(s // data.itemsize for s in data.strides)
        address = data.ctypes.data + -data.ctypes.data % 256
        return View(address, data.shape, strides, dtypes.of_numpy(data.dtype), 0)

    def stream(self, device: int) -> int:
        """Return a stream."""
        return 7

    def empty(self, shape: Sequence[int], strides: Any, dtype: Any, *_: Any) -> GpuArray:
        """Return a new array."""
        return GpuArray(np.empty(tuple(shape), dtype.numpy))

    def give(self, made: Any, like: Any) -> Any:
        """Return it as it is."""
        return made


def main(path: str) -> None:
    """Compile the file and call it."""
    from fusec.call import frameworks, program

    device, known = Device({}), Framework()
    roots: Any = frameworks._ROOTS  # pyright: ignore[reportPrivateUsage]
    roots["__main__"] = lambda: known
    program.open_device = lambda index: device  # pyright: ignore[reportAttributeAccessIssue]
    compiled = fusec.compile(path, target="sm_90a")
    sizes = compiled.signature.hints
    tensors = [i.value for i in compiled.signature.given if not i.value.is_scalar]
    shapes = ([d.evaluate(sizes) for d in value.shape] for value in tensors)
    given = zip(shapes, (value.dtype.numpy for value in tensors), strict=True)
    compiled(*(GpuArray(np.zeros(shape, kind)) for shape, kind in given))
    assert device.launched
    print(*(name for name in sys.modules if name.split(".")[0] == "fusec"))


if __name__ == "__main__":
    main(sys.argv[1])
