"""Loop levels: which nodes a template prints in which of its loops and functions, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusec.dataclasses import dataclass
from fusec.kernel.nodes import Expression, Name, Node, Type


@dataclass(frozen=True)
class Level(Node):
    """The nodes that a loop, or a function of the kernel, of a template's own text contains.

    name: the loop's variable, or the function. trips: how often a thread executes it each time that
    what is around it is executed, on average over threads; None where data decides. copies: how
    many trips machine code has one after the other, all where the compiler unrolls it completely;
    None where nothing is said.
    """

    name: str
    trips: Expression | None
    copies: Expression | None = None
    body: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Typed(Expression):
    """A variable where a template declares it: its name, and the type of its elements.

    extents: of an array, how many it has; place: `global` for a pointer to such memory.
    """

    name: Name
    type: Type
    extents: int = 0
    place: str = ""

    def _printed(self) -> str:
        return self.name.name


def without_levels(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield what templates print, in order, without the levels around it."""
    for node in nodes:
        if isinstance(node, Level):
            yield from without_levels(node.body)
        else:
            yield node
