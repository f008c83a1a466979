"""C code with the variables of the enclosing function that it reads."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """C code; reads: the parameters and variables of the enclosing function that it reads."""

    text: str
    reads: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.text


def code(form: str, *parts: Code | str | int) -> Code:
    """Return code with its parts substituted for `{}`; it reads what they read."""
    return Code(form.format(*parts), reads_of(parts))


def joined(separator: str, parts: Iterable[Code | str | int]) -> Code:
    """Return the concatenation of parts, with a separator between them."""
    listed = tuple(parts)
    return Code(separator.join(map(str, listed)), reads_of(listed))


def variable(name: str) -> Code:
    """Return code that reads a variable of the enclosing function."""
    return Code(name, frozenset((name,)))


def field_of(struct: str, field: str) -> Code:
    """Return code that reads a field of a struct through a pointer."""
    return Code(f"{struct}->{field}", frozenset((struct,)))


def reads(parts: Iterable[Code | str | int], name: str) -> bool:
    """Return whether any of the parts reads a variable of the enclosing function."""
    return name in reads_of(parts)


def reads_of(parts: Iterable[Code | str | int]) -> frozenset[str]:
    """Return the variables that parts read."""
    return frozenset[str]().union(*(part.reads for part in parts if isinstance(part, Code)))
