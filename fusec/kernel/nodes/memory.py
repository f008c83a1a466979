"""Elements of arrays and buffers, and pointers to them."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.kernel.nodes.expressions import BINARY, PRIMARY, ZERO, Expression


@dataclass(frozen=True)
class Item(Expression):
    """An element of an array or a vector in the thread's registers."""

    array: Expression
    index: Expression

    def _printed(self) -> str:
        return f"{self.array.at_least(PRIMARY)}[{self.index}]"


@dataclass(frozen=True)
class Element(Expression):
    """An element of a buffer in memory: a parameter of the kernel, or a tile in shared memory."""

    buffer: Expression
    index: Expression

    def _printed(self) -> str:
        return f"{self.buffer.at_least(PRIMARY)}[{self.index}]"


@dataclass(frozen=True)
class Pointer(Expression):
    """The address of an element of a buffer."""

    buffer: Expression
    index: Expression

    @property
    def precedence(self) -> int:
        return self.buffer.precedence if self._is_first else BINARY["+"]

    @property
    def _is_first(self) -> bool:
        return self.index == ZERO

    def _printed(self) -> str:
        if self._is_first:
            return self.buffer.text
        return f"{self.buffer.at_least(BINARY['+'])} + {self.index.at_least(BINARY['+'])}"


@dataclass(frozen=True)
class Anywhere(Expression):
    """A pointer to elements at any alignment: the template finds the vector boundaries."""

    pointer: Pointer

    @property
    def precedence(self) -> int:
        return self.pointer.precedence

    def _printed(self) -> str:
        return self.pointer.text
