"""Sizes that a kernel spells by name: numbers during planning, formulas in its source."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass

if TYPE_CHECKING:
    from fusec.kernel.nodes import Expression


@dataclass(frozen=True)
class Size:
    """A number, and the formula of named constants that spells it in a kernel."""

    value: int
    formula: Expression

    def __int__(self) -> int:
        return self.value

    def __add__(self, other: Quantity) -> Size:
        return self._with("+", other, self.value + int(other))

    def __mul__(self, other: Quantity) -> Size:
        return self if other == 1 else self._with("*", other, self.value * int(other))

    def __floordiv__(self, other: Quantity) -> Size:
        return self if other == 1 else self._with("/", other, self.value // int(other))

    def __radd__(self, other: int) -> Size:
        return self if other == 0 else size(other) + self

    def __rmul__(self, other: int) -> Size:
        return self if other == 1 else size(other) * self

    def _with(self, operator: str, other: Quantity, value: int) -> Size:
        return Size(value, _nodes().Binary(operator, self.formula, size(other).formula))


Quantity = int | Size


def _nodes() -> ModuleType:
    """Return the module of nodes, not needed for planning: it takes 0.1 s to load."""
    from fusec.kernel import nodes

    return nodes


Constants = tuple[tuple[str, Quantity, str], ...]
"""Constants of a kernel: name, value, meaning."""


def size(value: Quantity) -> Size:
    """Return a number as a size, spelled with its digits."""
    return value if isinstance(value, Size) else Size(value, _nodes().Integer(value))


class Listing:
    """Constants under construction; each may use earlier ones and other constants of the kernel.

    spelled: whether their formulas are needed; a plan only needs their values.
    """

    def __init__(self, *, spelled: bool) -> None:
        """Start without any."""
        self.spelled = spelled
        self._listed: list[tuple[str, Quantity, str]] = []

    @property
    def constants(self) -> Constants:
        """Return the constants in their order."""
        return tuple(self._listed)

    @property
    def values(self) -> tuple[tuple[str, int, str], ...]:
        """Return the constants with only their values."""
        return tuple((name, int(value), meaning) for name, value, meaning in self._listed)

    def named(self, name: str, value: int) -> Quantity:
        """Return a constant that is declared elsewhere, for the formulas of others."""
        return Size(value, _nodes().Name(name)) if self.spelled else value

    def add(self, name: str, value: Quantity, meaning: str) -> Quantity:
        """Append a constant, and return it for the formulas of others."""
        self._listed.append((name, value, meaning))
        return self.named(name, int(value))
