"""The interface between a rank and its transport."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Collective, Receive, Send, Share, Unshare
from fusec.run.operations import FIXED, Operation, Place

if TYPE_CHECKING:
    from fusec.ir.dtype import DType

Exchange = Collective | Send | Receive | Share | Unshare


@dataclass(frozen=True)
class DeviceMemory:
    """Dense memory of a GPU, and the stream in whose order it is used.

    address: its address when communication is prepared. moves_with: the place through which calls
    address it, None where it stays at that address.
    """

    address: int
    elements: int
    dtype: DType
    stream: int
    moves_with: Place | None = None

    @property
    def place(self) -> Place:
        """Return the place that operations use."""
        return self.moves_with or Place(FIXED, self.address)

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.elements * self.dtype.size


@dataclass(frozen=True)
class Joined:
    """A kernel that sums the rows of an all-reduce itself and replaces the launch after it.

    buffers: its arguments before the mailboxes, the first of them the summand; columns: elements of
    a row; blocks: maximum number of resident blocks; step: the number of the launch.
    """

    name: str
    function: Any = field(compare=False, repr=False)
    buffers: tuple[Place, ...]
    columns: int
    threads: int
    blocks: int
    step: int


@dataclass(frozen=True)
class Begin:
    """One communication operation to start: the arguments of `Transport.begin`, and its context.

    group: the ranks along its axis, by their index on that axis; place: the index of this rank.
    waits_immediately: whether its stream waits for it before anything else. order: equal for
    operations that run one after the other, in any program. joined: a kernel that may replace it
    and the launch after it. by_nccl: whether NCCL is forced.
    """

    exchange: Exchange
    target: Any
    source: Any
    group: tuple[int, ...]
    place: int
    waits_immediately: bool = False
    order: Hashable = None
    joined: Joined | None = None
    by_nccl: bool = False


class Transport(Protocol):
    """Implements communication between the ranks of a run; one per process.

    Every rank starts the same operations in the same order. Memory is a contiguous NumPy array on
    the CPU, a DeviceMemory on a GPU; an operand that an operation does not have is None.
    """

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Prepare the communication of a run, before its first operation; all ranks call it.

        Runs then start exactly these operations, in this order, any number of times.
        """
        ...

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Start an operation; its memory must not be accessed until it was waited for."""
        ...

    def wait(self, buffer: str, stream: int) -> None:
        """Complete the operations that use a buffer; sends and receives complete as one group.

        stream: on a GPU, the stream that waits, without blocking the CPU. The next operation on the
        same memory starts on a stream ordered after it: flags between peers are reset in this
        order.
        """
        ...

    def view(self, buffer: str, place: int) -> Any:
        """Return a buffer shared by the rank at index `place` of the group, since `prepare`.

        On a GPU the address at which kernels read it, on the CPU its current contents, flat.
        """
        ...

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        ...

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return once `done` holds on this rank; RankFailure where another dies or hangs."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


@runtime_checkable
class DeviceTransport(Transport, Protocol):
    """A transport between GPUs: communication as `Operation`s that can be issued repeatedly.

    `begin_operations` and `wait_operations` are called in the order in which communication starts
    and is waited for.
    """

    def begin_operations(self, begin: Begin) -> list[Operation]:
        """Return the stream operations that start a collective, send or receive."""
        ...

    def wait_operations(self, buffer: str, stream: int) -> list[Operation]:
        """Return operations that make a stream wait for the communication that uses a buffer."""
        ...

    @property
    def failure_address(self) -> int:
        """Return the address of a 32-bit word that is not 0 once a rank has failed."""
        ...


def peer_place(exchange: Send | Receive, place: int) -> int:
    """Return the index along the axis of the peer rank."""
    return exchange.place.evaluate({f"{exchange.axis}.place": place})


def root_place(exchange: Collective, place: int) -> int:
    """Return the index along the axis of the rank that broadcasts."""
    if exchange.root is None:
        raise InternalError(f"`{exchange}` has no root")
    return exchange.root.evaluate({f"{exchange.axis}.place": place})


def receivers_of(exchange: Collective, ranks: int) -> frozenset[int]:
    """Return the indices along the axis of the ranks that receive a broadcast."""
    return frozenset(exchange.to or range(ranks))


def buffers_of(exchange: Exchange) -> tuple[str, ...]:
    """Return the names of the buffers that an operation uses until it is waited for."""
    match exchange:
        case Collective():
            return (exchange.target, exchange.source)
        case Send() | Share() | Unshare():
            return (exchange.source,)
        case Receive():
            return (exchange.target,)
