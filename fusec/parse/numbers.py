"""Numbers, checked for whether their element type can represent them."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.codes.calls import NUMBER_RANGE
from fusec.diagnostics import FusecError, Span
from fusec.ir.dtype import DType
from fusec.parse.syntax.trees import Infix, Literal, Prefix, Tree


def typed_number(
    value: bool | int | float, dtype: DType, span: Span
) -> bool | int | float | complex:
    """Return `value` as a number of `dtype`; FusecError if it does not fit."""
    if dtype.kind == "bool":
        if isinstance(value, bool):
            return value
        raise FusecError(f"expected true or false for a {dtype}", span=span, code=NUMBER_RANGE)
    if dtype.is_integer:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FusecError(f"expected an integer for {dtype}", span=span, code=NUMBER_RANGE)
        if value not in dtype.integers:
            raise FusecError(f"{value} does not fit in {dtype}", span=span, code=NUMBER_RANGE)
        return value
    if isinstance(value, bool):
        raise FusecError(f"expected a number for {dtype}", span=span, code=NUMBER_RANGE)
    return complex(value) if dtype.is_complex else float(value)


def complex_number(parts: Sequence[bool | int | float | None], dtype: DType, span: Span) -> complex:
    """Return the complex number of one or two parts; FusecError if they are not numbers."""
    if len(parts) not in (1, 2) or any(isinstance(p, bool) or p is None for p in parts):
        raise FusecError(
            f"expected the real and the imaginary part of a {dtype}",
            span=span,
            help=f"write `{dtype}(1, 2)` in an op line, `[1, 2]` as a default",
        )
    return complex(*(float(p) for p in parts if p is not None))


def number_in(tree: Tree) -> int | float | None:
    """Return the value of an expression of numbers; None for others."""
    if isinstance(tree, Literal) and isinstance(tree.value, (int, float)):
        return tree.value
    if isinstance(tree, Prefix) and tree.operator == "-":
        inner = number_in(tree.operand)
        return None if inner is None else -inner
    if isinstance(tree, Infix):
        left, right = number_in(tree.left), number_in(tree.right)
        if left is not None and right is not None:
            try:
                return {"+": left + right, "-": left - right, "*": left * right}.get(
                    tree.operator, left / right if tree.operator == "/" else None
                )
            except ZeroDivisionError:
                return None
    return None
