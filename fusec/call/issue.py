"""Issues a record's steps from Python, with one driver call each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fusec.call.steps import LaunchStep, MapStep, MemsetStep, RowsStep, Step
from fusec.dataclasses import dataclass
from fusec.run.launch import encode_tensor_map, launch_config
from fusec.run.trace import marked

if TYPE_CHECKING:
    from fusec.ir.evaluate import Sizes
    from fusec.run.device import Device
    from fusec.run.operations import Place

MAPS = 16
"""Encoded tensor maps that are cached per buffer, for its last addresses."""


@dataclass(frozen=True)
class Issuing:
    """The context for issuing steps.

    handles: of streams, by number. addresses: returns the address of each slot of a call.
    """

    device: Device
    handles: Sequence[Any]
    sizes: Sizes
    addresses: Callable[[], Sequence[int]]

    def issuer(self, step: Step) -> Callable[[], None]:
        """Return a function that issues a step."""
        device, streams = self.device, self.handles
        match step:
            case LaunchStep(name, function, shape, packed, _, on, segment):
                config = launch_config(device.driver, shape, streams[on])
                launch = partial(device.call, "cuLaunchKernelEx", config, function)
                what = str(step)
                return marked(segment or name, lambda: launch(packed.address, 0, what=what))
            case MemsetStep(place, size, on):
                fill = partial(device.call, "cuMemsetD8Async")
                return lambda: fill(self._address(place), 0, size, streams[on])
            case RowsStep():
                return lambda: self._copy_rows(step)
            case MapStep():
                return lambda: self._encode(step)
            case _:
                return lambda: step.issue(device, self.addresses())

    def _address(self, place: Place) -> int:
        return place.address(self.addresses())

    def _copy_rows(self, step: RowsStep) -> None:
        ends = self._address(step.target), self._address(step.source)
        for rows in step.rows:
            self.device.copy_rows(*ends, rows, self.handles[step.stream])

    def _encode(self, step: MapStep) -> None:
        address = self._address(step.place)
        known = step.known.get(address)
        if known is None:
            made = encode_tensor_map(self.device, step.described, address, self.sizes)
            if len(step.known) == MAPS:
                step.known.pop(next(iter(step.known)))
            known = step.known[address] = bytes(made)
        ctypes.memmove(ctypes.addressof(step.block), known, len(known))
