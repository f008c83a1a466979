"""Alignment that a kernel requires of the addresses passed to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusec.kernel.device import ACCESSES, Access, device_name
from fusec.kernel.nodes import (
    Anywhere,
    Braced,
    Call,
    Constexpr,
    Declare,
    Element,
    Expression,
    Integer,
    Name,
    Node,
    Pointer,
    Unary,
    walk,
)

WIDEST = 16
"""Bytes of the widest access, and the alignment of bulk copies."""
VECTOR = "fusec::Vec"


def alignments(sizes: Mapping[str, int], nodes: Iterable[Node]) -> dict[str, int]:
    """Return by parameter the alignment in bytes that a kernel requires of each address.

    sizes: element sizes of the pointers among the parameters, in bytes. An element access requires
    alignment to the element, a vector access to the vector; any other use requires 16 bytes.
    """
    roots = tuple(nodes)
    found, known = dict(sizes), _Widths(roots)
    for root in roots:
        uses = _used(root, 1, known) if isinstance(root, Anywhere) else _uses(root, known)
        for name, elements in uses:
            if name in sizes:
                asked = WIDEST if elements is None else access_bytes(elements * sizes[name])
                found[name] = max(found[name], asked)
    return found


def access_bytes(size: int) -> int:
    """Return the bytes of one access to a run of `size` bytes (vector.cuh)."""
    return min(size & -size, WIDEST)


class _Widths:
    """The numbers of elements of vectors, by the constants and the variables of a kernel.

    A name that is declared twice with different widths has none.
    """

    def __init__(self, roots: Iterable[Node]) -> None:
        self._constants: dict[str, int | None] = {}
        self._vectors: dict[str, int | None] = {}
        declared = [n for n in walk(roots) if isinstance(n, Constexpr | Declare)]
        for node in declared:
            if isinstance(node, Constexpr) and not node.is_member:
                _once(self._constants, node.name, self.number(node.value))
        for node in declared:
            if isinstance(node, Declare) and node.type.name == VECTOR:
                _once(self._vectors, node.name, self.number(node.type.arguments[1]))

    def constant(self, name: str) -> int | None:
        """Return the value of a named constant."""
        return self._constants.get(name)

    def number(self, value: Expression) -> int | None:
        """Return the value of an expression."""
        if isinstance(value, Integer):
            return value.value
        return self._constants.get(value.name) if isinstance(value, Name) else None

    def of(self, stored: Expression) -> int | None:
        """Return the number of elements of a stored vector."""
        if isinstance(stored, Braced) and stored.type is not None:
            return self.number(stored.type.arguments[1]) if stored.type.name == VECTOR else None
        return self._vectors.get(stored.name) if isinstance(stored, Name) else None


def _once(known: dict[str, int | None], name: str, number: int | None) -> None:
    known[name] = number if known.get(name, number) == number else None


def _uses(node: Node, known: _Widths) -> Iterator[tuple[str, int | None]]:
    """Yield each use of a name, with the elements of the access; None if these are unknown."""
    if isinstance(node, Name):
        yield node.name, None
    elif isinstance(node, Element):
        yield from _used(node.buffer, 1, known)
        yield from _uses(node.index, known)
    elif isinstance(node, Unary) and node.operator == "&":
        yield from _used(node, None, known)
    else:
        access = None
        if isinstance(node, Call):
            access = ACCESSES.get(device_name(node.function))
        if isinstance(node, Call) and access is not None:
            for argument in node.arguments:
                yield from _used(argument, _elements(node, access, known), known)
        else:
            for child in node.children:
                yield from _uses(child, known)


def _used(pointer: Node, elements: int | None, known: _Widths) -> Iterator[tuple[str, int | None]]:
    """Yield the use of a pointer by an access of so many elements."""
    if isinstance(pointer, Anywhere):
        pointer = pointer.pointer
    elif isinstance(pointer, Unary) and pointer.operator == "&":
        pointer = pointer.operand
    if isinstance(pointer, Pointer | Element):
        yield from _uses(pointer.index, known)
        pointer = pointer.buffer
    if isinstance(pointer, Name):
        yield pointer.name, elements
    else:
        yield from _uses(pointer, known)


def _elements(call: Call, access: Access, known: _Widths) -> int | None:
    """Return the number of elements that a call accesses at its pointer argument."""
    if access is Access.ELEMENTS:
        return 1
    if access is Access.VECTOR:
        return known.number(call.template[0]) if call.template else 1
    if access is Access.TILE:
        return known.constant("kVec")
    if access is Access.LAST:
        return known.number(call.template[-1])
    return known.of(call.arguments[1])
