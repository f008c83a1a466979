"""Launch records: a program at given sizes on a stream, all but addresses and numbers decided."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from fusec.call.memory import Arena, Place
from fusec.call.placing import memory_of
from fusec.diagnostics import InternalError, Unsupported
from fusec.hostir.instructions import Alias, Allocate, Copy, EncodeTensorMap, Free, Launch, Memset
from fusec.hostir.program import Scalar
from fusec.ir.evaluate import Sizes
from fusec.ops.checks import INDEX_ERRORS
from fusec.run.device import Device
from fusec.run.execute import Executable
from fusec.run.launch import (
    TENSOR_MAP_BYTES,
    Geometry,
    PackedArguments,
    aligned_block,
    encode_tensor_map,
    geometry,
    launch_config,
    pack_scalar,
    pack_size,
)
from fusec.schedule.plan import ScalarArgument, SizeArgument, TensorMapArgument

MAPS = 16
"""Tensor maps of one buffer, for its last addresses, that are kept encoded."""


@dataclass(frozen=True)
class LaunchStep:
    """A kernel to launch: its arguments lie at fixed addresses, and follow from some slots."""

    name: str
    function: Any
    shape: Geometry
    packed: PackedArguments
    slots: frozenset[int]


@dataclass(frozen=True)
class MemsetStep:
    """Memory to fill with zeros."""

    place: Place
    size: int


@dataclass(frozen=True)
class CopyStep:
    """Memory to copy."""

    target: Place
    source: Place
    size: int


@dataclass
class MapStep:
    """A tensor map to encode for the address that its buffer has, into `block`."""

    described: TensorMapArgument
    place: Place
    block: Any
    known: dict[int, bytes]


Step = LaunchStep | MemsetStep | CopyStep | MapStep


@dataclass(frozen=True)
class Number:
    """A scalar argument of a kernel: its name, its type, where its value lies, and its step."""

    name: str
    dtype: Any
    value: Any
    step: int


class Record:
    """A program at given sizes for one arena; `issue` writes addresses and launches.

    Calls of one arena's records come one at a time: its lock is the caller's to hold.
    """

    def __init__(
        self, executable: Executable, sizes: Sizes, arena: Arena, *, captured: bool = False
    ) -> None:
        """Decide everything; Unsupported where a launch is beyond what CUDA allows.

        captured: whether the launches become nodes of a graph, each of which follows the last one.
        """
        self._captured = captured
        self.executable, self.sizes, self.arena = executable, dict(sizes), arena
        self.program = executable.program
        self.memory = memory_of(self.program, sizes)
        self.patches: list[tuple[int, Any, int]] = []
        self.numbers: list[Number] = []
        self._maps: dict[str, MapStep] = {}
        self.steps: list[Step] = []
        for step in self._steps():
            self.steps.append(step)
        self._issue = [self._issuer(step) for step in self.steps]
        self._by_slot: list[list[tuple[Any, int]]] = [[] for _ in range(self.slots)]
        for slot, value, offset in self.patches:
            self._by_slot[slot].append((value, offset))
        self.addresses: list[int] = []
        self.fast: Any = None
        self._shared: list[int] = []
        self._generation = -1
        self.refresh()

    @property
    def slots(self) -> int:
        """Return how many addresses there are."""
        return self.memory.scratch_slot + 2

    def refresh(self) -> None:
        """Have the arena's memory as it is now."""
        arena = self.arena
        arena.reserve(self.memory.scratch, self.memory.counters)
        if arena.generation.value == self._generation:
            return
        self._generation, self.fast = arena.generation.value, None
        self._shared = [arena.scratch.address, arena.counters.address]
        for slot, address in enumerate(self._shared, self.memory.scratch_slot):
            self._write(slot, address)

    def _write(self, slot: int, address: int) -> None:
        for value, offset in self._by_slot[slot]:
            value.value = address + offset

    def issue(self, addresses: Sequence[int], given: Mapping[str, Any]) -> None:
        """Launch everything for the addresses of inputs and fresh tensors, and scalars' values.

        given: scalar inputs, by name; complex ones whole.
        """
        numbers = {s.name: _value(s, given) for s in self.program.scalars}
        self.refresh()
        for slot, address in enumerate(addresses):
            self._write(slot, address)
        self.addresses = [*addresses, *self._shared]
        self.write_numbers(numbers)
        for issue in self._issue:
            issue()

    def forbid_checks(self) -> None:
        """Raise Unsupported where kernels check indices, for what cannot wait for them."""
        if INDEX_ERRORS in self.memory.places:
            raise Unsupported("a graph of kernels that check indices", help="without check_bounds")

    def check_indices(self) -> None:
        """Raise FusecError for an index that kernels found out of bounds; waits for them."""
        place = self.memory.places.get(INDEX_ERRORS)
        if place is None:
            return
        device, noted = self.executable.device, np.zeros(2, np.uint64)
        device.call("cuStreamSynchronize", self.arena.stream, what="running the kernels")
        device.call("cuMemcpyDtoH", noted.ctypes.data, self._address(place), noted.nbytes)
        self.program.check_noted(int(noted[0]), int(noted.view(np.int64)[1]), self.sizes)

    def write_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Put the values of scalar inputs into the arguments."""
        for number in self.numbers:
            packed = pack_scalar(numbers[number.name], number.dtype)
            size = ctypes.sizeof(packed)
            ctypes.memmove(ctypes.addressof(number.value), ctypes.addressof(packed), size)

    def _steps(self) -> Iterable[Step]:
        program, sizes, places = self.program, self.sizes, self.memory.places
        for each in program.instructions:
            match each:
                case Memset(name, once):
                    size = program.buffer[name].bytes(sizes)
                    if size and not once:
                        yield MemsetStep(places[name], size)
                case Copy(target, source):
                    size = program.buffer[target].bytes(sizes)
                    if size and places[target] != places[source]:
                        yield CopyStep(places[target], places[source], size)
                case EncodeTensorMap(name, described):
                    if all(e.evaluate(sizes) for e in described.extents):
                        block = aligned_block(TENSOR_MAP_BYTES, 64)
                        made = MapStep(described, places[described.buffer], block, {})
                        self._maps[name] = made
                        yield made
                case Launch():
                    shape = geometry(each, sizes)
                    shape = replace(shape, overlapped=shape.overlapped and not self._captured)
                    if not shape.empty:
                        function = self.executable.functions[each.kernel]
                        packed, slots = self._packed(each)
                        yield LaunchStep(each.kernel, function, shape, packed, slots)
                case Allocate() | Free() | Alias():
                    pass
                case _:
                    raise InternalError(f"a call of a program with `{each}`")

    def _packed(self, launch: Launch) -> tuple[PackedArguments, frozenset[int]]:
        values: list[Any] = []
        slots: set[int] = set()
        for argument in launch.arguments:
            if isinstance(argument, SizeArgument):
                size = argument.value.evaluate(self.sizes)
                values.append(pack_size(argument.name, size, wide=argument.wide))
            elif isinstance(argument, ScalarArgument):
                values.append(pack_scalar(0, argument.dtype))
                number = Number(argument.name, argument.dtype, values[-1], len(self.steps))
                self.numbers.append(number)
            elif isinstance(argument, TensorMapArgument):
                values.append(self._maps[argument.name].block)
                slots.add(self._maps[argument.name].place.slot)
            else:
                place = self.memory.places[argument.name]
                values.append(ctypes.c_uint64(0))
                self.patches.append((place.slot, values[-1], place.offset))
                slots.add(place.slot)
        return PackedArguments(values), frozenset(slots)

    def _address(self, place: Place) -> int:
        return self.addresses[place.slot] + place.offset

    def _issuer(self, step: Step) -> Callable[[], None]:
        device, stream = self.executable.device, self.arena.stream
        match step:
            case LaunchStep(name, function, shape, packed, _):
                config = launch_config(device.driver, shape, stream)
                what = f"kernel `{name}`"
                return lambda: device.call(
                    "cuLaunchKernelEx", config, function, packed.address, 0, what=what
                )
            case MemsetStep(place, size):
                return lambda: device.call("cuMemsetD8Async", self._address(place), 0, size, stream)
            case CopyStep(target, source, size):
                return lambda: device.call(
                    "cuMemcpyDtoDAsync", self._address(target), self._address(source), size, stream
                )
            case MapStep():
                return lambda: self._encode(step)

    def _encode(self, step: MapStep) -> None:
        address = self._address(step.place)
        known = step.known.get(address)
        if known is None:
            made = encode_tensor_map(self.executable.device, step.described, address, self.sizes)
            if len(step.known) == MAPS:
                step.known.pop(next(iter(step.known)))
            known = step.known[address] = bytes(made)
        ctypes.memmove(ctypes.addressof(step.block), known, len(known))


def _value(scalar: Scalar, given: Mapping[str, Any]) -> Any:
    """Return the value of a scalar of the program, a part of what is given for a complex one."""
    value = given.get(scalar.of or scalar.name, scalar.default)
    return getattr(complex(value), scalar.part) if scalar.of else value


def refused(device: Device, steps: Sequence[Step], status: int, number: int) -> NoReturn:
    """Raise FusecError for a step, by its number, to which the driver gave a status."""
    step = steps[number]
    what = f"kernel `{step.name}`" if isinstance(step, LaunchStep) else "a copy"
    device.fail("a launch", device.driver.CUresult(status), what)
