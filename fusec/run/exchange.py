"""One of the ranks that run a program together: where it stands, and how it reaches the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

from fusec.diagnostics import FusecError, InternalError
from fusec.hostir.instructions import Collective, Receive, Send
from fusec.hostir.program import Buffer
from fusec.hostir.steps import Step
from fusec.ir.evaluate import Sizes
from fusec.ir.sharding import Mesh
from fusec.run.arrays import dense_strides, layout_of

Exchange = Collective | Send | Receive


@dataclass(frozen=True)
class DeviceMemory:
    """Dense memory of a GPU, and the stream in whose order it is used."""

    address: int
    elements: int
    dtype: Any
    stream: int


@dataclass(frozen=True)
class Begin:
    """One exchange as it is begun: what `Transport.begin` takes."""

    exchange: Exchange
    target: Any
    source: Any
    group: tuple[int, ...]
    place: int


class Transport(Protocol):
    """Carries exchanges between ranks, one object for each process."""

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Do ahead what a run's exchanges need."""
        ...

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Begin an exchange in a group of ranks, in which this one has a place.

        target, source: contiguous arrays, or DeviceMemory; None where there is none.
        """
        ...

    def wait(self, buffer: str, stream: int = 0) -> None:
        """End what was begun with a buffer; all that is sent or received goes together."""
        ...

    def close(self) -> None:
        """Let go of the other ranks."""
        ...


@dataclass(frozen=True)
class Member:
    """One rank of a mesh, with the transport of its process."""

    mesh: Mesh
    rank: int
    transport: Transport

    @property
    def places(self) -> Mapping[str, int]:
        """Return where it stands along each axis, by the symbol that programs have for that."""
        return {f"{axis}.place": place for axis, place in self.mesh.place(self.rank).items()}

    def exchange(self, step: Step, target: Any, source: Any) -> Begin:
        """Return the exchange that a step begins, of memory that is the transport's to read."""
        exchange = step.instruction
        assert isinstance(exchange, Exchange)
        named = (
            replace(exchange, source=step.tag)
            if isinstance(exchange, Send)
            else replace(exchange, target=step.tag)
        )
        group = self.mesh.group(self.rank, exchange.axis)
        return Begin(named, target, source, group, self.mesh.place(self.rank)[exchange.axis])

    def begin(self, exchange: Begin) -> None:
        """Begin an exchange."""
        given = (exchange.target, exchange.source, exchange.group, exchange.place)
        self.transport.begin(exchange.exchange, *given)


def member_for(step: Step, member: Member | None) -> Member:
    """Return the rank that a step is for; FusecError where none is."""
    if member is None:
        raise FusecError(
            f"`{step.instruction}` needs other ranks",
            help="run it on several: fusec run --ranks",
        )
    return member


def dense_elements(buffer: Buffer, sizes: Sizes, step: Step) -> int:
    """Return how many elements an exchange of a buffer has; InternalError where it is not dense."""
    shape, strides = layout_of(buffer, sizes)
    steps = zip(shape, strides, dense_strides(shape), strict=True)
    if any(extent > 1 and found != wanted for extent, found, wanted in steps):
        raise InternalError(f"`{step.instruction}`: `{buffer.name}` is not dense")
    return prod(shape)
