"""Text of sizes that can be parsed again: `B * H + 1`, `D // 2`, `min(S, 512)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusec.ir.dim import Atom, Call, Dim, Monomial

_INFIX = {"floordiv": "//", "mod": "%"}


def shape_text(shape: Iterable[Dim | int]) -> str:
    """Return a shape as `[B, H]`."""
    return "[" + ", ".join(str(d) for d in shape) + "]"


def call_text(call: Call) -> str:
    """Return the text of a function call or an infix operator."""
    infix = _INFIX.get(call.function)
    if infix is None:
        return f"{call.function}({call.left}, {call.right})"
    return f"{_operand(call.left)} {infix} {_operand(call.right)}"


def _operand(dim: Dim) -> str:
    text = str(dim)
    return text if dim.is_const or (len(dim.terms) == 1 and " " not in text) else f"({text})"


def sum_text(terms: Sequence[tuple[Monomial, int]]) -> str:
    """Return a sum of terms."""
    if not terms:
        return "0"
    text = ""
    for monomial, coefficient in terms:
        if len(monomial) == 1 and coefficient == 1 and len(terms) == 1:
            return str(monomial[0])
        names = list(_factors(monomial))
        factors = names if abs(coefficient) == 1 and names else [*names, str(abs(coefficient))]
        body = " * ".join(factors)
        if not text:
            text = ("-" if coefficient < 0 else "") + body
        else:
            text += (" - " if coefficient < 0 else " + ") + body
    return text


def _factors(monomial: Iterable[Atom]) -> Iterable[str]:
    for atom in monomial:
        yield f"({atom})" if getattr(atom, "function", None) in _INFIX else str(atom)
