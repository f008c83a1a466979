"""Loop levels: the nodes that a template prints in its loops and functions, with trip counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusec.dataclasses import dataclass
from fusec.kernel.nodes import Expression, Name, Node, Type


@dataclass(frozen=True)
class Level(Node):
    """The nodes in a loop, or in a function of the kernel, of a template's own text.

    name: the loop's variable, or the function. trips: iterations per thread each time that the
    enclosing level is executed, on average over threads; None if they depend on data. copies: how
    often machine code repeats the body, all iterations if the compiler unrolls it completely; None
    if unspecified.
    """

    name: str
    trips: Expression | None
    copies: Expression | None = None
    body: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Typed(Expression):
    """A variable at its declaration in a template: its name, and the type of its elements.

    extents: the number of elements of an array; place: `global` for a pointer to global memory.
    """

    name: Name
    type: Type
    extents: int = 0
    place: str = ""

    def _printed(self) -> str:
        return self.name.name


def without_levels(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the nodes that templates print, in order, without their levels."""
    for node in nodes:
        if isinstance(node, Level):
            yield from without_levels(node.body)
        else:
            yield node
