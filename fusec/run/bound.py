"""A host program bound to GPU memory: prepared once, then run without allocations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError, InternalError
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    EncodeTensorMap,
    Free,
    Instruction,
    Launch,
    Memset,
    Post,
    Receive,
    Send,
    Share,
    Unshare,
    Wait,
)
from fusec.hostir.placement import placement
from fusec.hostir.steps import Step as ProgramStep
from fusec.hostir.steps import steps_of
from fusec.ir.index_errors import INDEX_ERRORS
from fusec.run.arrays import StridedArray, as_declared, lay_out, layout_of
from fusec.run.distributed.exchange import (
    circumstances,
    dense_elements,
    device_transport,
    member_for,
)
from fusec.run.evaluated import evaluation
from fusec.run.launch import encode_tensor_map, geometry, launch_config, pack_arguments
from fusec.run.operations import FIXED, Place, issue_all, issuer, replaced_by
from fusec.run.rows import rows_of
from fusec.run.scalars import scalar_values
from fusec.run.streams import Streams
from fusec.run.transports.protocol import Begin, DeviceMemory, Exchange

if TYPE_CHECKING:
    from fusec.hostir.program import Buffer
    from fusec.ir.evaluate import Array, Sizes
    from fusec.run.execute import Executable

ZONE = 512
"""Bytes of the guard zones before and after an output; keeps the output's alignment."""
ZONE_BYTE = 0xA5
POISON = 0xFF


@dataclass(frozen=True)
class Step:
    """One instruction, ready to be issued; `number` and `of` refer to the program's step."""

    instruction: Instruction
    issue: Callable[[], None]
    number: int
    of: ProgramStep


class Bound:
    """A program with memory for given sizes and inputs; `run` may be called repeatedly."""

    def __init__(
        self,
        executable: Executable,
        inputs: Mapping[str, Any],
        sizes: Sizes,
        sibling: Bound | None = None,
    ) -> None:
        """Allocate and upload everything that is not shared with `sibling`."""
        self._sibling, self._executable = sibling, executable
        self.program, self.device, self.member = (
            executable.program, executable.device, executable.member,
        )  # fmt: skip
        self.sizes = executable.sizes(sizes)
        self._functions, self._evaluated = executable.functions, executable.evaluated
        self._memory: list[int] = []
        self._own: dict[str, tuple[int, int]] = {}
        self._arena: dict[str, tuple[int, int]] = {}
        self._maps: dict[str, Any] = {}
        self._uploads: dict[str, StridedArray] = {}
        self.address: dict[str, int] = {}
        self.steps: list[Step] = []
        self._exchanges: dict[int, Begin] = {}
        self._replaced: frozenset[int] = frozenset()
        self._scalars = scalar_values(self.program, inputs, self.sizes)
        steps = steps_of(self.program, self.sizes)
        self.program = steps.program
        self.streams = Streams(self.device, self.device.stream, steps)
        try:
            for buffer in self.program.inputs:
                self._place_input(buffer, inputs)
            self._place_temporaries()
            for step in steps.steps:
                self._place(step.instruction)
            self._meet(steps.steps)
            for number, step in enumerate(steps.steps):
                self._prepare(number, step)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Bound:
        """Return the bound program."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free the memory."""
        self.close()

    def close(self) -> None:
        """Free the memory."""
        for address in self._memory:
            self.device.free(address)
        self._memory = []
        self.streams.close()

    def bytes_of(self, name: str) -> int:
        """Return how many bytes of memory a buffer spans."""
        return self.program.buffer[name].bytes(self.sizes)

    def _place_input(self, buffer: Buffer, inputs: Mapping[str, Any]) -> None:
        if buffer.name not in inputs:
            raise FusecError(f"input `{buffer.name}` is missing")
        if self._sibling is not None:
            self.address[buffer.name] = self._sibling.address[buffer.name]
            self._uploads[buffer.name] = self._sibling._uploads[buffer.name]
            return
        given = inputs[buffer.name]
        if not isinstance(given, StridedArray):
            given = as_declared(buffer.name, np.asarray(given), buffer.dtype)
        shape, strides = layout_of(buffer, self.sizes)
        if tuple(given.shape) != shape:
            raise FusecError(
                f"input `{buffer.name}` has shape {list(given.shape)}, expected {list(shape)}"
            )
        if given.dtype != buffer.dtype.numpy:
            raise FusecError(
                f"input `{buffer.name}` has dtype {given.dtype}, expected {buffer.dtype.long}"
            )
        array = lay_out(given, strides)
        address = self._allocate(array.storage.nbytes, f"input `{buffer.name}`")
        self._uploads[buffer.name] = array
        self.address[buffer.name] = address + array.offset * buffer.dtype.size
        self._upload(buffer.name)

    def _upload(self, name: str) -> None:
        array = self._uploads[name]
        self.device.upload(
            self.address[name] - array.offset * array.storage.dtype.itemsize, array.storage
        )

    def _allocate(self, size: int, what: str) -> int:
        address = self.device.allocate(size, what)
        self._memory.append(address)
        return address

    def _place(self, instruction: Instruction) -> None:
        """Allocate or alias the buffer of an instruction."""
        match instruction:
            case Allocate(name):
                self._give_memory(name)
            case Alias(name, of, offset):
                size = self.program.buffer[name].dtype.size
                self.address[name] = self.address[of] + offset.evaluate(self.sizes) * size
            case _:
                pass

    def _meet(self, steps: Sequence[ProgramStep]) -> None:
        """Prepare communication with other ranks, and look up the addresses of shared memory."""
        around = circumstances(steps, self._fixed, self._executable, self.sizes)
        self._exchanges = {
            number: replace(self._begun(step), **around[number])
            for number, step in enumerate(steps)
            if isinstance(step.instruction, Exchange)
        }
        if self.member is None:
            return
        transport = self.member.transport
        transport.prepare(list(self._exchanges.values()))
        for step in steps:
            if isinstance(step.instruction, Share):
                source, views = step.instruction.source, step.instruction.views
                found = (transport.view(source, place) for place in range(len(views)))
                self.address |= zip(views, found, strict=True)

    def _prepare(self, number: int, step: ProgramStep) -> None:
        """Resolve the memory of a step, and record the work to issue for it."""
        issue = self._prepared(number, step)
        if issue is None and self.streams.orders(number, step):
            issue = _nothing
        if issue is not None:
            self.steps.append(Step(step.instruction, issue, number, step))

    def _prepared(self, number: int, step: ProgramStep) -> Callable[[], None] | None:
        device, sizes = self.device, self.sizes
        # Stream 0 (the caller's) maps to the device's own stream, the default.
        on = () if step.stream == 0 else (self.streams.handles[step.stream],)
        match step.instruction:
            case Allocate() | Free() | Alias():
                pass
            case Launch() if number in self._replaced:
                pass
            case EncodeTensorMap(_, described) if any(
                e.evaluate(sizes) == 0 for e in described.extents
            ):
                pass  # there is no data, and no launch reads it
            case EncodeTensorMap(name, described):
                self._maps[name] = encode_tensor_map(
                    device, described, self.address[described.buffer], sizes
                )
            case Memset(name, once):
                address, size = self.address[name], self.bytes_of(name)
                if not once:
                    return lambda: device.fill(address, 0, size, *on)
            case Copy(target, source):
                return self._copy(target, source, on)
            case Launch() as launch:
                return self._launch(launch, step)
            case Post(segment) as post:
                fusion, handle = self._evaluated[segment], self._handle(step)
                known = self.program, self._fixed, self._scalars, sizes, handle
                return issuer(device, [evaluation(post, fusion, *known)])
            case Collective() | Send() | Receive() | Share() | Unshare():
                transport = device_transport(member_for(step, self.member))
                operations = transport.begin_operations(self._exchanges[number])
                self._replaced |= replaced_by(operations)
                return issuer(device, operations)
            case Wait():
                transport = device_transport(member_for(step, self.member))
                return issuer(device, transport.wait_operations(step.tag, self._handle(step)))
            case other:
                raise InternalError(f"a program with `{other}` cannot be bound")
        return None

    def _copy(self, target: str, source: str, on: tuple[Any, ...]) -> Callable[[], None]:
        copy, buffers = self.device.copy_rows, self.program.buffer
        ends = self.address[target], self.address[source]
        rows = rows_of(buffers[target], buffers[source], self.sizes)

        def issue() -> None:
            for each in rows:
                copy(*ends, each, *on)

        return issue

    def _fixed(self, name: str) -> Place:
        return Place(FIXED, self.address[name])

    def _handle(self, step: ProgramStep) -> int:
        return int(self.streams.handles[step.stream])

    def _place_temporaries(self) -> None:
        """Allocate temporaries in one arena, where their memory may overlap."""
        own = [b.name for b in self.program.buffers if b.role != "temporary"]
        arena = placement(self.program, self.sizes, own)
        if arena.size:
            address = self._guarded(arena.size, "temporaries")
            self._arena["temporaries"] = address, arena.size
            self.address |= {name: address + offset for name, offset in arena.offsets.items()}

    def _guarded(self, size: int, what: str) -> int:
        """Return the address of new memory with guard zones on both sides."""
        address = self._allocate(size + 2 * ZONE, what)
        self.device.fill(address, ZONE_BYTE, size + 2 * ZONE)
        return address + ZONE

    def _give_memory(self, name: str) -> None:
        role = self.program.buffer[name].role
        if name in self.address:
            return  # in the arena
        if self._sibling is not None and role == "output" and name in self._sibling._own:
            self._own[name] = self._sibling._own[name]
        else:
            size = self.bytes_of(name)
            self._own[name] = self._guarded(size, f"{role} `{name}`"), size
        self.address[name] = self._own[name][0]

    def _launch(self, launch: Launch, step: ProgramStep) -> Callable[[], None] | None:
        shape = geometry(launch, self.sizes)
        if shape.empty:
            return None
        if step.after:
            shape = replace(shape, overlapped=False)  # it waits for more than the kernel before it
        packed = pack_arguments(
            launch.arguments, self.sizes, self.address, self._scalars, self._maps
        )
        device, function = self.device, self._functions[launch.kernel]
        config = launch_config(device.driver, shape, self.streams.handles[step.stream])
        what = f"kernel `{launch.kernel}` for {launch.segment}"
        return lambda: device.call(
            "cuLaunchKernelEx", config, function, packed.address, 0, what=what
        )

    @property
    def exchanges(self) -> list[tuple[Exchange, Begin]]:
        """Return each communication operation of the program, and how this rank starts it."""
        return [
            (step.instruction, self._exchanges[step.number])
            for step in self.steps
            if isinstance(step.instruction, Exchange)
        ]

    def _begun(self, step: ProgramStep) -> Begin:
        """Return the communication that a step starts."""
        exchange = step.instruction
        assert isinstance(exchange, Exchange)
        receives = isinstance(exchange, Collective | Receive)
        target = self._dense(exchange.target, step) if receives else None
        source = None if isinstance(exchange, Receive) else self._dense(exchange.source, step)
        member = member_for(step, self.member)
        return member.exchange(step, target, source, order=self._handle(step))

    def _dense(self, name: str, step: ProgramStep) -> DeviceMemory:
        buffer = self.program.buffer[name]
        elements = dense_elements(buffer, self.sizes, step)
        return DeviceMemory(self.address[name], elements, buffer.dtype, self._handle(step))

    def reset(self) -> None:
        """Poison buffers that kernels fill, zero those zeroed once, restore inputs written to."""
        for address, size in (*self._own.values(), *self._arena.values()):
            self.device.fill(address, POISON, size)
        for instruction in self.program.instructions:
            if isinstance(instruction, Memset) and instruction.once:
                self.device.fill(
                    self.address[instruction.buffer], 0, self.bytes_of(instruction.buffer)
                )
        self.device.synchronise()
        for _, name in self.program.aliases:
            self._upload(name)

    def run(self) -> None:
        """Issue every step, asynchronously."""
        if self.member is not None:
            self.member.transport.check()
        device, streams = self.device, self.streams
        issue_all(device, streams.start())
        for step in self.steps:
            issue_all(device, streams.before(step.of))
            step.issue()
            issue_all(device, streams.record_after(step.number, step.of))
        issue_all(device, streams.end())

    def outputs(self) -> dict[str, Array]:
        """Return the outputs, and check that their guard zones are intact."""
        self.device.synchronise("running the kernels")
        self._check_indices()
        results = {name: self._download(name) for name in self.program.outputs}
        for name, (address, size) in self._own.items():
            if self.program.buffer[name].role != "temporary":
                self._check_zones(name, address, size)
        for name, (address, size) in self._arena.items():
            self._check_zones(name, address, size)
        return results

    def _check_indices(self) -> None:
        """Raise FusecError for an index that a kernel found out of bounds."""
        if INDEX_ERRORS not in self.address:
            return
        noted = self.device.download(self.address[INDEX_ERRORS], 16)
        number, value = int(noted.view(np.uint64)[0]), int(noted.view(np.int64)[1])
        self.program.check_noted(number, value, self.sizes)

    def _download(self, name: str) -> Array:
        buffer = self.program.buffer[name]
        raw = self.device.download(self.address[name], self.bytes_of(name))
        flat = raw.view(buffer.dtype.numpy)
        return StridedArray(flat, *layout_of(buffer, self.sizes)).array

    def _check_zones(self, name: str, address: int, size: int) -> None:
        for start, place in ((address - ZONE, "before"), (address + size, "past the end of")):
            if np.any(self.device.download(start, ZONE) != ZONE_BYTE):
                raise InternalError(
                    f"a kernel wrote {place} `{name}`",
                    notes=tuple(str(i) for i in self.program.launches if name in i.written),
                    help="this is a bug in fusec; please report the fusion file and the sizes",
                )


def _nothing() -> None:
    """Do nothing: the step only orders streams."""
