"""The builds of a program, each for the sizes that satisfy its guards, and their devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import EnvironmentProblem
from fusec.ir.graph import Fusion
from fusec.run.device import Device
from fusec.run.execute import Executable
from fusec.target import nearest_arch

if TYPE_CHECKING:
    from fusec.hostir.program import HostProgram
    from fusec.ir.evaluate import Sizes


@dataclass
class Variant:
    """A host program with machine code by target and kernel.

    covers: the supported sizes, as text. captured: captured graphs use its kernels, which therefore
    stay loaded. evaluated: by name, the segments that the CPU evaluates. entries: by kernel, the
    keys of machine code in the cache, where it was built for one target.
    """

    host: HostProgram
    cubins: Mapping[str, Mapping[str, bytes]]
    covers: str
    captured: bool = False
    evaluated: Mapping[str, Fusion] = field(default_factory=dict[str, Fusion])
    entries: Mapping[str, str] = field(default_factory=dict[str, str])
    _loaded: dict[Device, Executable] = field(default_factory=dict[Device, Executable])

    def holds(self, sizes: Sizes) -> bool:
        """Return whether the kernels are built for `sizes`."""
        return self.host.covers(sizes)

    def on(self, device: Device) -> Executable:
        """Return the kernels loaded on a device; EnvironmentProblem where it cannot run them."""
        if device not in self._loaded:
            cubins = self.cubins[self._target(device)]
            self._loaded[device] = Executable(device, self.host, cubins, None, self.evaluated)
        return self._loaded[device]

    def close(self) -> None:
        """Unload the kernels, once all launches are done."""
        for device, executable in self._loaded.items():
            with device.current():
                device.call("cuCtxSynchronize")
                executable.close()
        self._loaded.clear()

    def _target(self, device: Device) -> str:
        """Return the device's own target, or the nearest earlier one it is compatible with."""
        have = device.facts.capability
        target = nearest_arch(self.cubins, have)
        if target is None:
            raise EnvironmentProblem(
                f"the kernels of `{self.host.name}` are built for {', '.join(self.cubins)}, "
                f"{device.facts.name} is sm_{have}",
                help=f"compile them with --target sm_{have}",
            )
        return target
