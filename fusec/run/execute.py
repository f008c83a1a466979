"""Runs a host program on the GPU: loads its kernels, to be bound to sizes and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.diagnostics import FusecError, Unsupported

if TYPE_CHECKING:
    from fusec.hostir.program import HostProgram
    from fusec.ir.evaluate import Array, Sizes
    from fusec.ir.graph import Fusion
    from fusec.run.bound import Bound
    from fusec.run.device import Device
    from fusec.run.distributed.exchange import Member


class Executable:
    """A host program with its kernels loaded on a device."""

    def __init__(
        self,
        device: Device,
        program: HostProgram,
        cubins: Mapping[str, bytes],
        member: Member | None = None,
        evaluated: Mapping[str, Fusion] | None = None,
    ) -> None:
        """Load the kernels; `cubins` holds machine code by kernel name.

        member: the rank that runs the program, where there are several. evaluated: by name, the
        segments that the CPU evaluates. Unsupported where the program has others.
        """
        self.evaluated = evaluated or {}
        for post in program.posts:
            if post.segment not in self.evaluated:
                raise Unsupported(
                    f"a benchmark of `{program.name}`: the CPU evaluates segment {post.segment}",
                    help="`scheduler: host` for copies alone",
                )
        self.device, self.program, self.member = device, program, member
        self.functions: dict[str, Any] = {}
        for launch in program.launches:
            if launch.kernel in self.functions:
                continue
            function = self._loaded(launch.kernel, cubins)
            attributes: dict[str, int] = {}
            if launch.shared_bytes:
                # Also below 48 KiB: the kernel's static shared memory counts, too.
                attributes["MAX_DYNAMIC_SHARED_SIZE_BYTES"] = launch.shared_bytes
            if np.prod(launch.cluster) > 8:
                attributes["NON_PORTABLE_CLUSTER_SIZE_ALLOWED"] = 1
            device.function_attributes(function, attributes)
            self.functions[launch.kernel] = function
        for pushed in (i.pushed for i in program.launches if i.pushed is not None):
            if pushed.kernel not in self.functions:
                self.functions[pushed.kernel] = self._loaded(pushed.kernel, cubins)

    def _loaded(self, kernel: str, cubins: Mapping[str, bytes]) -> Any:
        if kernel not in cubins:
            raise FusecError(f"no machine code is given for kernel `{kernel}`")
        return self.device.load(cubins[kernel], kernel)

    def close(self) -> None:
        """Unload the kernels, which must not be in use."""
        for function in self.functions.values():
            self.device.unload(function)
        self.functions = {}

    def among(self, member: Member | None) -> Executable:
        """Return the same kernels for one of several ranks."""
        other = copy(self)
        other.member = member
        return other

    def sizes(self, given: Sizes) -> dict[str, int]:
        """Return all sizes of a program, including the indices of its rank."""
        return {**given, **(self.member.places if self.member else {})}

    def bind(self, inputs: Mapping[str, Any], sizes: Sizes, sibling: Bound | None = None) -> Bound:
        """Return the program bound to inputs on the device; FusecError where a guard fails.

        sibling: another plan of the same fusion, bound to the same inputs, whose inputs and outputs
        are shared; it must stay open as long.
        """
        from fusec.run.bound import Bound

        self.program.check_guards(sizes)
        self.program.check_indices(sizes)
        return Bound(self, inputs, sizes, sibling)


def execute(
    device: Device,
    program: HostProgram,
    cubins: Mapping[str, bytes],
    inputs: Mapping[str, Any],
    sizes: Sizes,
) -> dict[str, Array]:
    """Run a program once on poisoned memory and return its outputs."""
    with Executable(device, program, cubins).bind(inputs, sizes) as bound:
        bound.reset()
        bound.run()
        return bound.outputs()
