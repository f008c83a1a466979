"""Launch records: a program prepared for sizes and a stream, except addresses and numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fusec.call.issue import Issuing
from fusec.call.memory import Arena, reserve_for_ranks
from fusec.call.placing import memory_of, received, shared_inputs, views
from fusec.call.steps import LaunchStep, MapStep, MemsetStep, RowsStep, Step
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import InternalError, Unsupported
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    EncodeTensorMap,
    Free,
    Launch,
    Memset,
    Post,
    Receive,
    Wait,
    writes,
)
from fusec.hostir.steps import Step as ProgramStep
from fusec.hostir.steps import steps_of
from fusec.ir.index_errors import INDEX_ERRORS
from fusec.run.distributed.exchange import (
    circumstances,
    dense_elements,
    device_transport,
    gathered_by_nccl,
    member_for,
)
from fusec.run.evaluated import EvaluateSegment, evaluation
from fusec.run.launch import (
    TENSOR_MAP_BYTES,
    PackedArguments,
    aligned_block,
    geometry,
    pack_scalar,
    pack_size,
)
from fusec.run.operations import (
    FIXED,
    CopyMemory,
    FlagOperations,
    LaunchKernel,
    NcclCall,
    Place,
    RecordEvent,
    WaitEvent,
    append_merged,
    replaced_by,
)
from fusec.run.rows import rows_of
from fusec.run.streams import Streams
from fusec.run.trace import is_marking
from fusec.run.transports.protocol import Begin, DeviceMemory, DeviceTransport, Exchange
from fusec.schedule.plan import ScalarArgument, SizeArgument, TensorMapArgument

if TYPE_CHECKING:
    from fusec.hostir.program import Scalar
    from fusec.ir.evaluate import Sizes
    from fusec.run.device import Device
    from fusec.run.execute import Executable

NONE_MAPPED: Mapping[str, int] = {}
HELPED = (
    LaunchStep, MemsetStep, MapStep, CopyMemory, RecordEvent, WaitEvent, FlagOperations,
)  # fmt: skip
"""Steps that the C launch helper issues, in addition to NCCL calls with known addresses."""


@dataclass(frozen=True)
class Number:
    """A scalar argument of a kernel: its name, its type, the location of its value, its step."""

    name: str
    dtype: Any
    value: Any
    step: int


class Record:
    """A program at given sizes for one arena; `issue` writes addresses and launches.

    Calls of one arena's records are serialized: the caller must hold its lock.
    """

    def __init__(
        self, executable: Executable, sizes: Sizes, arena: Arena, *,
        captured: bool = False, mapped: Mapping[str, int] = NONE_MAPPED,
    ) -> None:  # fmt: skip
        """Prepare the launches; Unsupported where one exceeds the limits of CUDA.

        captured: whether the launches are captured as a chain of graph nodes. mapped: the addresses
        of inputs that other ranks may read in place instead of copies; each call passes the same.
        """
        self._captured = captured
        self.executable, self.arena = executable, arena
        self.program, self.sizes = executable.program, executable.sizes(sizes)
        steps = steps_of(self.program, self.sizes)
        self._flat = steps.program
        self.streams = Streams(executable.device, arena.stream, steps, arena.shared_streams)
        self.in_place = shared_inputs(steps.steps, mapped)
        by_nccl = gathered_by_nccl(steps.steps, self.program, self.sizes, executable.member)
        written = [name for name in received(steps.steps) if name not in by_nccl]
        self.memory = memory_of(self._flat, self.sizes, written, views(steps.steps), self.in_place)
        self.patches: list[tuple[int, Any, int]] = []
        self.numbers: list[Number] = []
        self._values: dict[str, Any] = {}
        self._maps: dict[str, MapStep] = {}
        self.steps: list[Step] = []
        self._replaced: frozenset[int] = frozenset()
        self.fast: Any = None
        self.fast_into: Any = None
        self._room, self._viewed = self._reserve(), [0] * len(self.memory.views)
        self._generation = -1
        arena.reserve(self.memory.scratch, self.memory.counters)
        passed = [mapped.get(b.name, 0) for b in self.memory.inputs]
        self.addresses: list[int] = [
            *passed, *(0 for _ in self.memory.fresh), *self._own_addresses(),
        ]  # fmt: skip
        self.transport, self._exchanges = self._meet(steps.steps)
        self._steps_of(steps.steps)
        handles, device = self.streams.handles, executable.device
        self.issuing = Issuing(device, handles, self.sizes, lambda: self.addresses)
        self._marked = is_marking()
        self._issue = [self.issuing.issuer(step) for step in self.steps]
        self._by_slot: list[list[tuple[Any, int]]] = [[] for _ in range(self.slots)]
        for slot, value, offset in self.patches:
            self._by_slot[slot].append((value, offset))
        self.refresh()

    def _meet(
        self, steps: Sequence[ProgramStep]
    ) -> tuple[DeviceTransport | None, dict[int, Begin]]:
        """Prepare communication with other ranks, and look up the addresses of shared memory."""
        places = self.memory.places.__getitem__
        around = circumstances(steps, places, self.executable, self.sizes)
        begun = {
            number: replace(self._begun(step), **around[number])
            for number, step in enumerate(steps)
            if isinstance(step.instruction, Exchange)
        }
        if self.executable.member is None:
            return None, begun
        transport = device_transport(self.executable.member)
        transport.prepare([*begun.values()])
        self._viewed = [transport.view(*view) for view in self.memory.views]
        return transport, begun

    def _steps_of(self, steps: Sequence[ProgramStep]) -> None:
        """Prepare what is issued, in order."""
        streams = self.streams
        self.steps += streams.start()
        for number, step in enumerate(steps):
            self.steps += streams.before(step)
            for each in self._made(number, step):
                append_merged(self.steps, each)
            self.steps += streams.record_after(number, step)
        self.steps += streams.end()
        stream = int(streams.handles[0])
        self.steps += [CopyMemory(*each, stream) for each in self.memory.copied]

    @property
    def slots(self) -> int:
        """Return the number of addresses."""
        return self.memory.view_slot + len(self.memory.views)

    def _reserve(self) -> list[int]:
        """Return the addresses that other ranks write, if they do: this memory is mapped."""
        size = self.memory.received
        return [reserve_for_ranks(self.arena, size)] if size else []

    def refresh(self) -> None:
        """Update the addresses of the arena's memory."""
        arena = self.arena
        arena.reserve(self.memory.scratch, self.memory.counters)
        if arena.generation.value == self._generation:
            return
        self._generation = arena.generation.value
        self.fast = self.fast_into = None
        self._write_shared()

    def _own_addresses(self) -> list[int]:
        """Return the addresses of all memory that does not belong to the caller."""
        arena = self.arena
        return [arena.scratch.address, arena.counters.address, *self._room, *self._viewed]

    def _write_shared(self) -> None:
        """Write the addresses of all memory that does not belong to the caller into arguments."""
        self._shared = self._own_addresses()
        for slot, address in enumerate(self._shared, self.memory.scratch_slot):
            self._write(slot, address)

    def _write(self, slot: int, address: int) -> None:
        for value, offset in self._by_slot[slot]:
            value.value = address + offset

    def issue(self, addresses: Sequence[int], given: Mapping[str, Any]) -> None:
        """Launch everything for the addresses of inputs and fresh tensors, and scalars' values.

        given: scalar inputs, by name; complex ones whole.
        """
        numbers = self._values
        numbers.update((s.name, _value(s, given)) for s in self.program.scalars)
        if self.transport is not None:
            self.transport.check()
        self.refresh()
        for slot, address in enumerate(addresses):
            self._write(slot, address)
        self.addresses = [*addresses, *self._shared]
        self.write_numbers(numbers)
        for issue in self._issue:
            issue()

    def forbid_checks(self) -> None:
        """Raise Unsupported where kernels check indices, for callers that cannot wait for them."""
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
        """Write the values of scalar inputs into the arguments."""
        for number in self.numbers:
            packed = pack_scalar(numbers[number.name], number.dtype)
            size = ctypes.sizeof(packed)
            ctypes.memmove(ctypes.addressof(number.value), ctypes.addressof(packed), size)

    @property
    def is_helped(self) -> bool:
        """Return whether the C launch helper can issue every step; it sets no NVTX marks."""
        return not self._marked and all(
            isinstance(s, HELPED) or (isinstance(s, NcclCall) and s.library.pointer(s.function))
            for s in self.steps
        )

    @property
    def is_chain(self) -> bool:
        """Return whether its capture is a chain of nodes, whose kernels are those of its steps."""
        branching = NcclCall, RecordEvent, WaitEvent, EvaluateSegment
        return not (self.streams.several or any(isinstance(s, branching) for s in self.steps))

    def is_callers(self, place: Place) -> bool:
        """Return whether a place is in memory that each call passes or allocates."""
        return 0 <= place.slot < self.memory.scratch_slot

    def _made(self, number: int, step: ProgramStep) -> Sequence[Step]:
        """Return what is issued for a step of the program."""
        instruction = step.instruction
        if number in self._replaced:
            return []
        if not isinstance(instruction, Exchange | Wait):
            made = None if writes(instruction) & self.in_place.keys() else self._step(step)
            return [] if made is None else [made]
        transport = device_transport(member_for(step, self.executable.member))
        if isinstance(instruction, Wait):
            handle = int(self.streams.handles[step.stream])
            return transport.wait_operations(step.tag, handle)
        operations = transport.begin_operations(self._exchanges[number])
        self._replaced |= replaced_by(operations)
        return [self._launched(o, step) if isinstance(o, LaunchKernel) else o for o in operations]

    def _launched(self, launch: LaunchKernel, step: ProgramStep) -> LaunchStep:
        """Return the launch of a kernel of fusec's own, at the addresses of a call."""
        words = [ctypes.c_uint64(place.offset) for place in launch.buffers]
        ends = [*zip(launch.buffers, words, strict=True)]
        moving = [(p.slot, word, p.offset) for p, word in ends if p.slot != FIXED]
        self.patches += moving
        packed = PackedArguments([*words, *launch.values])
        slots = frozenset(slot for slot, *_ in moving)
        return LaunchStep(launch.name, launch.function, launch.shape, packed, slots, step.stream)

    def _step(self, step: ProgramStep) -> Step | None:
        buffers, sizes, places = self._flat.buffer, self.sizes, self.memory.places
        each, stream = step.instruction, step.stream
        match each:
            case Memset(name, once):
                size = buffers[name].bytes(sizes)
                return MemsetStep(places[name], size, stream) if size and not once else None
            case Copy(target, source):
                return self._copy(target, source, stream)
            case EncodeTensorMap(name, described):
                if all(e.evaluate(sizes) for e in described.extents):
                    block = aligned_block(TENSOR_MAP_BYTES, 64)
                    made = MapStep(described, places[described.buffer], block, {})
                    self._maps[name] = made
                    return made
            case Launch():
                return self._launch(each, step)
            case Post(segment):
                if self._captured:
                    raise Unsupported(
                        f"a graph of `{self.program.name}`: the CPU evaluates segment {segment}",
                        help="call the program itself",
                    )
                fusion, handle = self.executable.evaluated[segment], self.streams.handles[stream]
                known = self._flat, places.__getitem__, self._values, sizes, int(handle)
                return evaluation(each, fusion, *known)
            case Allocate() | Free() | Alias():
                pass
            case _:
                raise InternalError(f"a call of a program with `{each}`")
        return None

    def _copy(self, target: str, source: str, stream: int) -> Step | None:
        buffers, places = self._flat.buffer, self.memory.places
        size, ends = buffers[target].bytes(self.sizes), (places[target], places[source])
        if not size or ends[0] == ends[1]:
            return None
        rows = rows_of(buffers[target], buffers[source], self.sizes)
        if len(rows) == 1 and rows[0].height == 1:
            return CopyMemory(*ends, size, int(self.streams.handles[stream]))
        return RowsStep(*ends, rows, stream)

    def _launch(self, launch: Launch, step: ProgramStep) -> LaunchStep | None:
        shape = geometry(launch, self.sizes)
        overlapped = shape.overlapped and not self._captured and not step.after
        if shape.empty:
            return None
        packed, slots = self._packed(launch)
        function = self.executable.functions[launch.kernel]
        shape = replace(shape, overlapped=overlapped)
        return LaunchStep(
            launch.kernel, function, shape, packed, slots, step.stream, launch.segment
        )

    def _dense(self, name: str, step: ProgramStep) -> DeviceMemory:
        buffer, place = self._flat.buffer[name], self.memory.places[name]
        elements = dense_elements(buffer, self.sizes, step)
        stream = int(self.streams.handles[step.stream])
        return DeviceMemory(self._address(place), elements, buffer.dtype, stream, place)

    def _begun(self, step: ProgramStep) -> Begin:
        """Return the communication that a step starts, at the current addresses."""
        exchange = step.instruction
        assert isinstance(exchange, Exchange)
        receives = isinstance(exchange, Collective | Receive)
        target = self._dense(exchange.target, step) if receives else None
        source = None if isinstance(exchange, Receive) else self._dense(exchange.source, step)
        member = member_for(step, self.executable.member)
        order = self.arena.order, step.stream
        return member.exchange(step, target, source, order=order)

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
        return place.address(self.addresses)


def _value(scalar: Scalar, given: Mapping[str, Any]) -> Any:
    """Return the value of a scalar of the program, a part of a complex input's value."""
    value = given.get(scalar.of or scalar.name, scalar.default)
    return getattr(complex(value), scalar.part) if scalar.of else value


def refused(device: Device, steps: Sequence[Step], status: int, number: int) -> NoReturn:
    """Raise FusecError for a step, by its number, for which the driver or NCCL failed."""
    step = steps[number] if number >= 0 else None  # the generator's state has no step
    if isinstance(step, NcclCall):
        step.library.fail(status, step.doing)
    what = str(step) if isinstance(step, LaunchStep) else "a copy"
    device.fail("a launch", device.driver.CUresult(status), what)
