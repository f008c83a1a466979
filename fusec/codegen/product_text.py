"""C text that kernels of products have in common: constants, members of a Config, coordinates."""

from __future__ import annotations

from fusec.ir.dim import Dim
from fusec.ir.expression import Atom, Quotient, Remainder, Var
from fusec.kernel.ctext import dim_text


def integer(name: str, value: int | str, meaning: str = "") -> str:
    """Return a number among the members of a Config, with what it means."""
    return f"static constexpr int {name} = {value};" + (f"  // {meaning}" if meaning else "")


def boolean(name: str, value: bool, meaning: str) -> str:
    """Return a truth value among the members of a Config, with what it means."""
    return f"static constexpr bool {name} = {str(value).lower()};  // {meaning}"


def constant(kind: str, name: str, value: Dim) -> str:
    """Return the definition of a size of a C type."""
    word = "constexpr" if value.is_const else "const"
    return f"{word} {kind} {name} = {dim_text(value, wide=kind != 'int')};"


def coordinate(atom: Atom, number: str) -> str:
    """Return the coordinate along a batch axis of a tensor map, from the number of the batch."""
    if isinstance(atom, Var):
        return number
    assert isinstance(atom, (Quotient, Remainder))
    sign = "/" if isinstance(atom, Quotient) else "%"
    ((inner, _),) = atom.inner.terms
    divisor = dim_text(atom.divisor)
    by = divisor.at_least(14) if atom.divisor.is_const else f"static_cast<int>({divisor})"
    return f"{coordinate(inner, number)} {sign} {by}"
