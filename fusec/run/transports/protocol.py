"""What a rank asks of a transport."""

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

    address: where it is when exchanges are prepared. moves_with: the place by which calls find it,
    None where it stays at that address.
    """

    address: int
    elements: int
    dtype: DType
    stream: int
    moves_with: Place | None = None

    @property
    def place(self) -> Place:
        """Return where operations find it."""
        return self.moves_with or Place(FIXED, self.address)

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.elements * self.dtype.size


@dataclass(frozen=True)
class Joined:
    """A kernel that adds the rows of a sum itself and takes the place of the launch after it.

    buffers: its arguments before the mailboxes, the first of them what is added; columns: elements
    of a row; blocks: most that run at the same time; step: the number of the launch.
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
    """One exchange as it is begun: what `Transport.begin` takes.

    group: the ranks along the exchange's axis in order of place; place: that of this rank.
    waits_immediately: whether its stream waits for it before anything else. order: equal for
    exchanges that come one after the other, whichever program they are of. joined: what may take
    its place and that of the launch after it. by_nccl: whether NCCL carries it, whoever could.
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
    """Carries exchanges between the ranks of a run; one for each process.

    Every rank begins the same exchanges in the same order. Memory is a contiguous NumPy array on
    the host, DeviceMemory on a GPU; what a kind does not have is None.
    """

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Do ahead what a run's exchanges need; all ranks call it, before the first of them.

        Runs then begin just these, in this order, as often as they like.
        """
        ...

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Begin an exchange; until it is waited for its memory is not to be touched."""
        ...

    def wait(self, buffer: str, stream: int) -> None:
        """End what was begun with a buffer; what was sent and received goes together.

        stream: of a GPU, which waits; the host does not. The next exchange of the same memory is
        begun on a stream that comes after it: flags between peers are reset in its order.
        """
        ...

    def view(self, buffer: str, place: int) -> Any:
        """Return what the rank at a place of the group has of a shared buffer, since `prepare`.

        On a GPU the address at which kernels read it, on the host what is there now, flat.
        """
        ...

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        ...

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return when something is done on this rank; RankFailure where another dies or hangs."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


@runtime_checkable
class DeviceTransport(Transport, Protocol):
    """A transport of GPUs: its exchanges are operations, which may be issued any number of times.

    Both functions are asked for in the order in which exchanges are begun and waited for.
    """

    def begin_operations(self, begin: Begin) -> list[Operation]:
        """Return what begins an exchange."""
        ...

    def wait_operations(self, buffer: str, stream: int) -> list[Operation]:
        """Return what lets a stream wait for what was begun with a buffer."""
        ...

    @property
    def failure_address(self) -> int:
        """Return the address of a 32-bit word that is not 0 once a rank has failed."""
        ...


def peer_place(exchange: Send | Receive, place: int) -> int:
    """Return the place along the axis of the rank at the other end."""
    return exchange.place.evaluate({f"{exchange.axis}.place": place})


def root_place(exchange: Collective, place: int) -> int:
    """Return the place along the axis of which a broadcast comes."""
    if exchange.root is None:
        raise InternalError(f"`{exchange}` has no root")
    return exchange.root.evaluate({f"{exchange.axis}.place": place})


def receivers_of(exchange: Collective, ranks: int) -> frozenset[int]:
    """Return the places along the axis that receive a broadcast."""
    return frozenset(exchange.to or range(ranks))


def buffers_of(exchange: Exchange) -> tuple[str, ...]:
    """Return the names of the buffers that an exchange holds until it is waited for."""
    match exchange:
        case Collective():
            return (exchange.target, exchange.source)
        case Send() | Share() | Unshare():
            return (exchange.source,)
        case Receive():
            return (exchange.target,)
