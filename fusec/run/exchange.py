"""One of the ranks that run a program together: where it stands, and how it reaches the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fusec.hostir.instructions import Collective, Receive, Send
from fusec.hostir.steps import Step
from fusec.ir.sharding import Mesh

Exchange = Collective | Send | Receive


class Transport(Protocol):
    """Carries exchanges between ranks, one object for each process."""

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Begin an exchange in a group of ranks, in which this one has a place.

        target, source: contiguous arrays, or DeviceMemory; None where there is none.
        """
        ...

    def wait(self, buffer: str) -> None:
        """End what was begun with a buffer; all that is sent or received goes together."""
        ...

    def close(self) -> None:
        """Let go of the other ranks."""
        ...


@dataclass(frozen=True)
class DeviceMemory:
    """Dense memory of a GPU that an exchange reads or fills, in the order of a stream."""

    address: int
    elements: int
    dtype: Any
    stream: int


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

    def begin(self, step: Step, target: Any, source: Any) -> None:
        """Begin the exchange that a step says."""
        exchange = step.instruction
        assert isinstance(exchange, Exchange)
        named = (
            replace(exchange, source=step.tag)
            if isinstance(exchange, Send)
            else replace(exchange, target=step.tag)
        )
        group = self.mesh.group(self.rank, exchange.axis)
        place = self.mesh.place(self.rank)[exchange.axis]
        self.transport.begin(named, target, source, group, place)
