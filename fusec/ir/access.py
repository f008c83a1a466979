"""Index maps from an operation's results to its operands' elements, declared with the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim
from fusec.ir.expression import Index
from fusec.ir.graph import Node, Operand
from fusec.properties import cached_property

Coordinates = tuple[Index, ...]


@dataclass(frozen=True)
class Condition:
    """low <= position < end."""

    position: Index
    low: Dim
    end: Dim

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.position, self.low, self.end))

    @cached_property
    def is_true(self) -> bool:
        """Return whether the condition always holds."""
        return self.position.within(self.low, self.end)

    def __str__(self) -> str:
        return f"{self.low} <= {self.position} < {self.end}"


Conditions = tuple[Condition, ...]


def needed(*conditions: Condition) -> Conditions:
    """Return the conditions that do not always hold, without duplicates."""
    return tuple(dict.fromkeys([c for c in conditions if not c.is_true])) if conditions else ()


@dataclass(frozen=True)
class Branch:
    """A branch: if its conditions hold, the result is `operand` at `coordinates`."""

    operand: Operand
    coordinates: Coordinates
    conditions: Conditions = ()


@dataclass(frozen=True)
class Pulled:
    """A result at some coordinates as branches on operands; `fill` if no branch applies."""

    branches: tuple[Branch, ...]
    fill: Operand | None = None


@dataclass(frozen=True)
class Pushed:
    """The position of an operand's element in the result; conditions say whether it is included.

    `complete` is False if the result has elements that correspond to no element of the operand.
    """

    coordinates: Coordinates
    conditions: Conditions = ()
    complete: bool = True


Pull = Callable[[Node, Coordinates], Pulled]
Push = Callable[[Node, Coordinates, int], Pushed | None]
Along = Callable[[Node], tuple[int | None, ...]]
Window = Callable[[Node], tuple[tuple[Dim, ...], tuple[int, ...]]]
Reached = Callable[[Node, tuple[int, ...], tuple[int, ...]], Iterable[int]]


@dataclass(frozen=True, eq=False)
class Sample:
    """A call for testing a map: operands as `f32[2, 3]` or numbers, complete attributes."""

    operands: tuple[str | float, ...]
    attributes: Mapping[str, Any]


def sample(*operands: str | float, **attributes: Any) -> tuple[Sample]:
    """Return the only sample of an operation."""
    return (Sample(operands, attributes),)


def never(node: Node) -> bool:
    """Return False: every element of the operand is in the result."""
    return False


@dataclass(frozen=True, eq=False)
class Access:
    """How a movement or an indexing operation finds its elements.

    pull: the operand elements that the result reads at some coordinates. push: an operand element's
        coordinates in the result; None, or no result, if no single map describes them.
    along: the dim of the first operand for each dim of the result, None for a new one of extent 1;
        no function if dims are split, merged, concatenated or reversed.
    window: the first elements and the steps in which the result takes those dims.
    repeats: an element may be repeated along a dim. partial: some element may be missing.
    reached: if operands are adjacent in the result, or surrounded by a fill: how many elements of
        each dim of an operand the result contains, from the operand's extents and the result's.
    view: the result may be the operand's memory: with `along` under other strides, without it as
        the same elements in row-major order.
    repeatable: as cheap to move again as to read the result.
    concat_dim: returns the dim along which the operands are concatenated in the result.
    overlays: the result is the first operand, overwritten by the second one where that lies.
    """

    pull: Pull
    push: Push | None = None
    along: Along | None = None
    window: Window | None = None
    repeats: bool = False
    partial: Callable[[Node], bool] = never
    reached: Reached | None = None
    view: bool = False
    repeatable: bool = False
    concat_dim: Callable[[Node], int] | None = None
    overlays: bool = False
