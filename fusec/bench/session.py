"""A process that measures: the device with its timer and streaming kernels, row after row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from fusec import driver
from fusec.bench.bound import BoundWork
from fusec.bench.figures import Error, Figures, error_of
from fusec.bench.streaming import Streams, sources
from fusec.bench.timer import REPEATS, Contender, Timer
from fusec.bench.work import Work
from fusec.ir.evaluate import Array
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.run.build import build
from fusec.run.device import Device
from fusec.run.execute import Executable
from fusec.run.measure import Timing, measure
from fusec.target import find

OWN = "fusec"
"""The name of fusec's own program among the contenders."""


class Session:
    """The device with its measuring tools; use as `with Session() as session`."""

    def __init__(self, jobs: int | None = None) -> None:
        """Open the device, build and load the measuring kernels."""
        with ExitStack() as stack:
            self.device = stack.enter_context(Device())
            self.options = driver.for_device(CompileOptions(), self.device.facts)
            arch = self.options.target
            every = sources()
            built = build(every, (arch,), jobs)
            hold, *streams = (
                self.device.load(built[s.name, arch].cubin, "hold" if s is every[0] else "stream")
                for s in every
            )
            self.timer = stack.enter_context(Timer(self.device, hold))
            self.streams = Streams(self.device, streams, find(arch))
            stack.callback(self.streams.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Session:
        """Return the session."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release all resources."""
        self._stack.close()

    def figures(
        self,
        work: Work,
        bound: BoundWork,
        peers: Sequence[Contender] = (),
        repeats: int = REPEATS,
    ) -> Figures:
        """Return the measurements of some work and its peers, with the roofline in the same run."""
        limit = self.streams.limit(self.timer, work.read_bytes, work.written_bytes)
        times = self.timer.race([Contender(OWN, bound.issue), *peers], repeats)
        return Figures(work, bound.launches, limit, times)


def launch_times(bound: BoundWork, repeats: int) -> Timing:
    """Return the times of a work's launches, each alone as in `fusec run`, on its own inputs."""
    work, inputs = bound.work, bound.inputs
    executable = Executable(bound.device, work.host, work.cubins)
    inputs.fill()
    try:
        with executable.bind(inputs.arrays(), work.sizes) as each:
            return measure(each, repeats)
    finally:
        executable.close()


def reference_error(fusion: Fusion, bound: BoundWork, sizes: Mapping[str, int]) -> Error:
    """Run work once on fresh inputs, and return its error against the fp64 reference."""
    bound.inputs.fill()
    expected = driver.reference(fusion, bound.inputs.arrays(), sizes)
    return error_of(outputs_of(bound), expected)


def outputs_of(bound: BoundWork) -> dict[str, Array]:
    """Run work once on fresh inputs, and return its outputs on the CPU."""
    bound.inputs.fill()
    bound.issue()
    bound.device.synchronise("running the kernels")
    return {name: tensor.download(bound.device) for name, tensor in bound.outputs.items()}
