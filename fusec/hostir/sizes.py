"""Parses printed size expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, ceildiv, dim, floordiv, maximum, minimum, mod, symbol

NUMBERS = ("index", "join", "caller", "place")
"""Suffixes, after the dot, of numbers that count from 0: of iterations, streams and ranks."""
LONGEST = 10_000
"""Maximum characters of an expression; fusec writes no longer ones."""


def parse_dim(text: str | int, scalars: frozenset[str] = frozenset()) -> Dim:
    """Return the Dim that prints as `text`; symbols named in `scalars` may be less than 1."""
    if isinstance(text, int):
        return dim(text)
    try:
        if len(text) > LONGEST:
            raise ValueError
        return _dim_of(ast.parse(text, mode="eval").body, scalars)
    except (SyntaxError, ValueError, RecursionError, KeyError, MemoryError, ArithmeticError):
        shown = text if len(text) < 100 else f"{text[:100]}..."
        raise FusecError(f"`{shown}` is not a size expression") from None


_BINARY: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: Dim.__add__,
    ast.Sub: Dim.__sub__,
    ast.Mult: Dim.__mul__,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}
_CALLS = {"ceildiv": ceildiv, "min": minimum, "max": maximum}


def _dim_of(node: ast.expr, scalars: frozenset[str]) -> Dim:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return dim(value)
        case ast.Name(id=name):
            return symbol(name, extent=name not in scalars)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return symbol(f"{name}.{attribute}", extent=attribute not in NUMBERS)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_dim_of(operand, scalars)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_dim_of(left, scalars), _dim_of(right, scalars))
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]):
            return _CALLS[name](_dim_of(left, scalars), _dim_of(right, scalars))
        case _:
            raise ValueError("not an integer expression")
