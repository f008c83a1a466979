"""Stream operations other than a program's kernels, as data.

A transport describes a collective, send or receive by a list of these once. Python issues them in
order; the C launch helper issues the same list (`fusec/call/fast.py` translates it).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from fusec.dataclasses import dataclass, field
from fusec.run.launch import Geometry, PackedArguments, launch_config

FIXED = -1
"""The slot of a place whose offset is its address."""
WAIT_EQUAL = 1
"""CU_STREAM_WAIT_VALUE_EQ."""


@dataclass(frozen=True)
class Place:
    """A memory location: a slot, whose address is an argument of each call, and a byte offset."""

    slot: int
    offset: int = 0

    def at(self, offset: int) -> Place:
        """Return the place `offset` bytes further on."""
        return Place(self.slot, self.offset + offset)

    def address(self, addresses: Sequence[int]) -> int:
        """Return the address, given that of each slot."""
        return self.offset if self.slot == FIXED else addresses[self.slot] + self.offset


class Operation(Protocol):
    """One call of the driver or of NCCL."""

    def issue(self, device: Any, addresses: Sequence[int]) -> None:
        """Issue it, with the address of each slot."""
        ...


@dataclass(frozen=True)
class RecordEvent:
    """Record an event on a stream."""

    event: Any
    stream: int

    def issue(self, device: Any, addresses: Sequence[int]) -> None:
        """Issue it."""
        device.call("cuEventRecord", self.event, self.stream)


@dataclass(frozen=True)
class WaitEvent:
    """Make a stream wait for an event."""

    stream: int
    event: Any

    def issue(self, device: Any, addresses: Sequence[int]) -> None:
        """Issue it."""
        device.call("cuStreamWaitEvent", self.stream, self.event, 0)


@dataclass(frozen=True)
class Flag:
    """Wait until a 32-bit word of device memory has a value, or write the value there."""

    waits: bool
    address: int
    value: int


@dataclass(frozen=True)
class FlagOperations:
    """Waits and writes of flags, in order, as one batch of stream memory operations.

    batch: the driver's parameters, one for each flag.
    """

    stream: int
    flags: tuple[Flag, ...]
    batch: list[Any] = field(compare=False)

    @classmethod
    def of(cls, device: Any, stream: int, flags: Iterable[Flag]) -> FlagOperations:
        """Return the batch of some flags for a stream."""
        own = tuple(flags)
        return cls(stream, own, [_batch_parameter(device, each) for each in own])

    def followed_by(self, other: FlagOperations) -> FlagOperations:
        """Return the concatenation of this batch and another of the same stream."""
        return FlagOperations(self.stream, self.flags + other.flags, self.batch + other.batch)

    def issue(self, device: Any, addresses: Sequence[int]) -> None:
        """Issue it."""
        given = (self.stream, len(self.batch), self.batch, 0)
        device.call("cuStreamBatchMemOp", *given, what="flags between ranks")


@dataclass(frozen=True)
class CopyMemory:
    """Copy `size` bytes of device memory."""

    target: Place
    source: Place
    size: int
    stream: int

    def issue(self, device: Any, addresses: Sequence[int]) -> None:
        """Issue it, unless source and target are the same."""
        target, source = self.target.address(addresses), self.source.address(addresses)
        if target != source:
            device.call("cuMemcpyDtoDAsync", target, source, self.size, self.stream)


class NcclFunctions(Protocol):
    """NCCL's library as operations call it."""

    def call(self, function: str, arguments: Sequence[Any], doing: str) -> None:
        """Call a function by its name in nccl4py; FusecError where it fails."""
        ...

    def fail(self, status: int, doing: str) -> None:
        """Raise FusecError for a function that returned a status."""
        ...

    def pointer(self, function: str) -> int:
        """Return the address of a function, 0 where it is unknown."""
        ...


@dataclass(frozen=True)
class NcclCall:
    """A call of NCCL: its buffers, its numbers (count, type, then reduction, root or peer).

    communicator: as nccl4py takes it, and its address; None and 0 for the calls that start and end
    a group, which have no arguments. doing: the communication, for error messages.
    """

    library: NcclFunctions = field(compare=False, repr=False)
    function: str
    buffers: tuple[Place, ...] = ()
    numbers: tuple[int, ...] = ()
    communicator: Any = field(default=None, compare=False)
    pointer: int = 0
    stream: int = 0
    doing: str = ""

    def issue(self, device: Any, addresses: Sequence[int]) -> None:
        """Issue it."""
        given: list[Any] = [place.address(addresses) for place in self.buffers]
        if self.buffers:
            given += [*self.numbers, self.communicator, self.stream]
        self.library.call(self.function, given, self.doing)


@dataclass(frozen=True)
class LaunchKernel:
    """Launch a kernel of fusec's own, with blocks and threads along one axis.

    Its parameters are the addresses of `buffers`, then `values`, of ctypes. replaces: the number of
    the program step that it covers as well.
    """

    name: str
    function: Any = field(compare=False, repr=False)
    blocks: int
    threads: int
    buffers: tuple[Place, ...]
    values: tuple[Any, ...] = field(compare=False, repr=False)
    stream: int
    replaces: int | None = None

    @property
    def shape(self) -> Geometry:
        """Return its blocks and threads."""
        return Geometry((self.blocks, 1, 1), (self.threads, 1, 1), (1, 1, 1), 0)

    def issue(self, device: Any, addresses: Sequence[int]) -> None:
        """Issue it."""
        places = [ctypes.c_uint64(place.address(addresses)) for place in self.buffers]
        packed = PackedArguments([*places, *self.values])
        config = launch_config(device.driver, self.shape, self.stream)
        given = config, self.function, packed.address, 0
        device.call("cuLaunchKernelEx", *given, what=f"kernel `{self.name}`")


def issue_all(device: Any, operations: Iterable[Operation], addresses: Sequence[int] = ()) -> None:
    """Issue operations in order."""
    for each in operations:
        each.issue(device, addresses)


def replaced_by(operations: Iterable[object]) -> frozenset[int]:
    """Return the numbers of the program steps that operations cover as well."""
    launches = (o for o in operations if isinstance(o, LaunchKernel))
    return frozenset(o.replaces for o in launches if o.replaces is not None)


def issuer(device: Any, operations: Sequence[Operation]) -> Callable[[], None]:
    """Return a function that issues operations whose places are all fixed."""
    return lambda: issue_all(device, operations)


def append_merged(operations: list[Any], operation: Any) -> None:
    """Append an operation; merge a batch of flags into a preceding one of the same stream."""
    last = operations[-1] if operations else None
    if (
        isinstance(operation, FlagOperations)
        and isinstance(last, FlagOperations)
        and last.stream == operation.stream
    ):
        operations[-1] = last.followed_by(operation)
    else:
        operations.append(operation)


def _batch_parameter(device: Any, flag: Flag) -> Any:
    made = device.driver.CUstreamBatchMemOpParams()
    kinds = device.driver.CUstreamBatchMemOpType
    if flag.waits:
        made.waitValue.operation = kinds.CU_STREAM_MEM_OP_WAIT_VALUE_32
        made.waitValue.address, made.waitValue.value = flag.address, flag.value
        made.waitValue.flags = WAIT_EQUAL
    else:
        made.writeValue.operation = kinds.CU_STREAM_MEM_OP_WRITE_VALUE_32
        made.writeValue.address, made.writeValue.value = flag.address, flag.value
        made.writeValue.flags = 0
    return made
