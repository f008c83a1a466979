"""The time of a compiled fusion on random inputs, for every benchmark that has one."""

from __future__ import annotations

from fusec import driver
from fusec.run.device import Device
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.run.measure import Timing, measure


def timed(device: Device, compiled: driver.Compiled, arch: str, repeats: int) -> Timing:
    """Return the median times of the kernels for `arch`, with a cold L2."""
    fusion = compiled.planned.original
    sizes = choose_sizes(fusion)
    executable = Executable(device, compiled.program, compiled.cubins(arch))
    with executable.bind(random_inputs(fusion, sizes), sizes) as bound:
        bound.reset()
        return measure(bound, repeats)
