"""What a kernel asks of the addresses that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusec.kernel.device import ACCESSES, NAMESPACE, Access
from fusec.kernel.nodes import (
    Anywhere,
    Braced,
    Call,
    Constexpr,
    Declare,
    Element,
    Expression,
    Literal,
    Name,
    Node,
    Pointer,
    walk,
)

WIDEST = 16
"""Bytes of the widest access; also what bulk copies ask."""
VECTOR = "fusec::Vec"


def alignments(sizes: Mapping[str, int], nodes: Iterable[Node]) -> dict[str, int]:
    """Return by parameter, in bytes, of what each address that nodes use must be a multiple.

    sizes: of the elements of each pointer among the parameters, in bytes. An element by itself asks
    for its own size, a vector for that of one access. Of whatever else is done with a pointer the
    most is assumed.
    """
    roots = tuple(nodes)
    found, known = dict(sizes), _Widths(roots)
    for root in roots:
        for name, elements in _uses(root, known):
            if name in sizes:
                asked = WIDEST if elements is None else access_bytes(elements * sizes[name])
                found[name] = max(found[name], asked)
    return found


class _Widths:
    """The elements of vectors, by the constants and the variables of a kernel."""

    def __init__(self, roots: Iterable[Node]) -> None:
        self.constants: dict[str, int] = {}
        self._vectors: dict[str, Expression] = {}
        for node in walk(roots):
            if isinstance(node, Constexpr):
                number = self.number(node.value)
                if number is not None:
                    self.constants[node.name] = number
            elif isinstance(node, Declare) and node.type.name == VECTOR:
                self._vectors[node.name] = node.type.arguments[1]

    def number(self, value: Expression) -> int | None:
        """Return the number that a constant has."""
        if isinstance(value, Literal) and value.written.isdigit():
            return int(value.written)
        return self.constants.get(value.name) if isinstance(value, Name) else None

    def of(self, stored: Expression) -> int | None:
        """Return the elements of a vector that is stored."""
        if isinstance(stored, Braced) and stored.type is not None:
            return self.number(stored.type.arguments[1]) if stored.type.name == VECTOR else None
        if isinstance(stored, Name) and stored.name in self._vectors:
            return self.number(self._vectors[stored.name])
        return None


def access_bytes(size: int) -> int:
    """Return the bytes of one access to a run of `size` bytes (vector.cuh)."""
    return min(size & -size, WIDEST)


def _uses(node: Node, known: _Widths) -> Iterator[tuple[str, int | None]]:
    """Yield each use of a name, with the elements of the access; None where that is not known."""
    if isinstance(node, Name):
        yield node.name, None
        return
    if isinstance(node, Element):
        yield from _used(node.buffer, 1, known)
        yield from _uses(node.index, known)
        return
    if isinstance(node, Anywhere):
        yield from _used(node.pointer, 1, known)
        return
    access = ACCESSES.get(node.function.removeprefix(NAMESPACE)) if isinstance(node, Call) else None
    if access is None:
        for child in node.children:
            yield from _uses(child, known)
        return
    assert isinstance(node, Call)
    for argument in node.arguments:
        yield from _used(argument, _elements(node, access, known), known)


def _used(
    pointer: Expression, elements: int | None, known: _Widths
) -> Iterator[tuple[str, int | None]]:
    """Yield the use of a pointer by an access of so many elements."""
    if isinstance(pointer, Pointer):
        yield from _uses(pointer.index, known)
        pointer = pointer.buffer
    if isinstance(pointer, Name):
        yield pointer.name, elements
    else:
        yield from _uses(pointer, known)


def _elements(call: Call, access: Access, known: _Widths) -> int | None:
    """Return the elements of a call's access to the memory that it is given."""
    if access is Access.ELEMENTS:
        return 1
    if access is Access.VECTOR:
        return known.number(call.template[0]) if call.template else None
    if access is Access.TILE:
        return known.constants.get("kVec", 1)
    if access is Access.LAST:
        return known.number(call.template[-1])
    return known.of(call.arguments[1])
