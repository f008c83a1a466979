"""Built work bound to inputs: issued repeatedly on the same buffers."""

from __future__ import annotations

from types import TracebackType

from fusec.bench.data import Inputs, Tensor
from fusec.bench.work import Work
from fusec.call.memory import Arena
from fusec.call.record import Record
from fusec.call.steps import LaunchStep
from fusec.run.arrays import span
from fusec.run.device import Device
from fusec.run.execute import Executable


class BoundWork:
    """The launch record of some work, with memory for outputs; `issue` launches without waiting."""

    def __init__(self, device: Device, work: Work, inputs: Inputs) -> None:
        """Load the kernels and allocate the outputs."""
        self.device, self.work, self.inputs = device, work, inputs
        self._executable = Executable(device, work.host, work.cubins)
        self._arena = Arena(device, int(device.stream))
        self._record = Record(self._executable, work.sizes, self._arena)
        memory = self._record.memory
        self._own: list[int] = []
        for each in memory.fresh:
            size = span(each.shape, each.strides) * each.dtype.size
            self._own.append(device.allocate(size, "an output"))
        given = [inputs.tensors[b.name].address for b in memory.inputs]
        self._slots = [*given, *self._own]

    def __enter__(self) -> BoundWork:
        """Return the bound work."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release all resources."""
        self.device.synchronise()
        for address in self._own:
            self.device.free(address)
        self._arena.close()
        self._executable.close()

    @property
    def launches(self) -> int:
        """Return how many kernels a run launches."""
        return sum(isinstance(step, LaunchStep) for step in self._record.steps)

    def issue(self) -> None:
        """Put one run on the device's stream."""
        self._record.issue(self._slots, self.inputs.numbers)

    @property
    def outputs(self) -> dict[str, Tensor]:
        """Return the outputs; those written in place are in the memory of their input."""
        found: dict[str, Tensor] = {}
        for result in self._record.memory.results:
            address = self._slots[result.slot] + result.offset * result.dtype.size
            found[result.name] = Tensor(address, result.shape, result.strides, result.dtype)
        return found
