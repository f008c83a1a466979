"""The roles of operations in later stages, declared with the operations.

A stage checks for a role, never for a name: every stage supports what a new operation declares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from fusec.dataclasses import dataclass, field

if TYPE_CHECKING:
    from fusec.ir.dim import Dim
    from fusec.ir.graph import Node


class Combine(Enum):
    """How a reduction, a scan, a scatter or a contraction combines colliding elements."""

    SUM = "sum"
    PRODUCT = "product"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    SOME = "some"
    """Whether any element is true."""
    EVERY = "every"
    """Whether all elements are true."""
    MOMENTS = "moments"
    """Mean and sum of squared distances, computed together."""
    EXPONENTIALS = "exponentials"
    """The maximum, and the sum of the exponentials of the differences from it, computed
    together."""
    FIRST_MAXIMUM = "first maximum"
    """The position of the largest element."""
    FIRST_MINIMUM = "first minimum"
    """The position of the smallest element."""
    MONOTONE = "monotone"
    """Increases with every element, by no more than it; each step errs by the operation's
    accuracy."""

    @property
    def is_position(self) -> bool:
        """Return whether the result is a position, not computed from elements' values."""
        return self in (Combine.FIRST_MAXIMUM, Combine.FIRST_MINIMUM)

    @property
    def is_extremum(self) -> bool:
        """Return whether the result is one of the elements."""
        return self in (Combine.MAXIMUM, Combine.MINIMUM)

    @property
    def rounds(self) -> bool:
        """Return whether intermediate floats are rounded, so that their order counts."""
        return self in (Combine.SUM, Combine.PRODUCT, Combine.MOMENTS, Combine.EXPONENTIALS)

    @property
    def is_state(self) -> bool:
        """Return whether results are computed from one state, into which elements are pushed."""
        return self in (Combine.MOMENTS, Combine.EXPONENTIALS)

    @property
    def keeps_one(self) -> bool:
        """Return whether a single element is its own result."""
        return not self.is_position and not self.is_state


class Line(Protocol):
    """A node while nvFuser's dump of it is printed, in one of its dialects (`style`)."""

    @property
    def node(self) -> Node:
        """Return the node."""
        ...

    @property
    def result(self) -> str:
        """Return the result in printed form."""
        ...

    @property
    def operands(self) -> Sequence[str]:
        """Return the operands in printed form."""
        ...

    @property
    def style(self) -> str:
        """Return the dialect."""
        ...

    def size(self, extent: Dim | int) -> str:
        """Return a size."""
        ...

    def sizes(self, extents: Iterable[Dim | int]) -> str:
        """Return sizes in braces."""
        ...

    def flags(self, mask: Sequence[bool]) -> str:
        """Return the mask of dims, in the dialects that print it."""
        ...


@dataclass(frozen=True, eq=False)
class Text:
    """How nvFuser's dumps print an operation; by default, it is printed by its name.

    infix, prefix: of an operator. function: where `{single}` is an f for a result in f32, `{real}`
    for any float. reduction: the operator and its initial value. layout: the whole text with
    operands as `{0}`, results as `{out}` and parameters by name, or a function that prints it.
    steps: the expressions into which nvFuser lowers it, in order.
    """

    infix: str = ""
    prefix: str = ""
    function: str = ""
    reduction: tuple[str, float] | None = None
    layout: str | Callable[[Line], str] = ""
    steps: Callable[[Node], Sequence[Callable[[Line], str]]] | None = None


BY_NAME = Text()
"""The text of an operation that is printed by its name."""


@dataclass(frozen=True, eq=False)
class ComplexError:
    """The error of an operation on complex numbers: so many units in the last place of a part.

    terms: what they are relative to, if not to the result's modulus: `terms(result, *operands,
    smallest normal number)`.
    """

    ulps: float
    terms: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Product:
    """The layout of a contraction's factors as a GEMM.

    transposed: the second factor is [N, K], not [K, N]. bias: the operand that is added, if any.
    """

    transposed: bool = False
    bias: int | None = None


@dataclass(frozen=True, eq=False)
class Lookup:
    """An operand of integers that selects elements.

    index: the number of the operand. table: the operand that it indexes. extent: its upper bound.
    slices: an entry selects a whole slice of the table, not one element. ends: the entries are the
    ends of groups, in order.
    """

    index: int
    table: int
    extent: Callable[[Node], Dim]
    slices: bool = False
    ends: bool = False


Shapes = Sequence[tuple[int, ...]]


@dataclass
class Links:
    """How a node's axes relate: operand axis to result axis, and the operand axes it sums over."""

    same: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """(operand, its axis, axis of every result)"""
    summed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


LinkRule = Callable[[Links, Mapping[str, Any], Shapes, tuple[int, ...]], None]
