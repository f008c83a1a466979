"""The operations that a call issues in order, with addresses as places in its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusec.dataclasses import dataclass
from fusec.run.operations import Operation, Place

if TYPE_CHECKING:
    from fusec.run.launch import Geometry, PackedArguments
    from fusec.run.rows import Rows
    from fusec.schedule.plan import TensorMapArgument


@dataclass(frozen=True)
class LaunchStep:
    """A kernel to launch, with arguments at fixed addresses that depend on some slots.

    segment: for which it is launched; empty for a kernel of fusec's own.
    """

    name: str
    function: Any
    shape: Geometry
    packed: PackedArguments
    slots: frozenset[int]
    stream: int = 0
    segment: str = ""

    def __str__(self) -> str:
        """Return its name in errors."""
        return f"kernel `{self.name}`" + (f" for {self.segment}" if self.segment else "")


@dataclass(frozen=True)
class MemsetStep:
    """Memory to fill with zeros."""

    place: Place
    size: int
    stream: int = 0


@dataclass(frozen=True)
class RowsStep:
    """Memory to copy between layouts."""

    target: Place
    source: Place
    rows: tuple[Rows, ...]
    stream: int = 0


@dataclass
class MapStep:
    """A tensor map to encode for its buffer's address, into `block`."""

    described: TensorMapArgument
    place: Place
    block: Any
    known: dict[int, bytes]


Step = LaunchStep | MemsetStep | RowsStep | MapStep | Operation
