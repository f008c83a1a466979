"""The meaning of operators: an operation of the table, or a number if both operands are numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusec.codes.calls import NUMBER_RANGE
from fusec.codes.shapes import ZERO_DIVISION
from fusec.diagnostics import FusecError, Span
from fusec.ir.graph import Const, Operand
from fusec.ops.dtypes import common_type
from fusec.ops.literals import literal
from fusec.parse.syntax.operators import BINARY, COMPARISONS, UNARY

Number = int | float

_OF_NUMBERS: Mapping[str, Callable[[Number, Number], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: a / b, "//": lambda a, b: a // b, "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
}  # fmt: skip


def operation_of(sign: str, operands: Sequence[Operand]) -> str:
    """Return the operation of an operator.

    `/` is PyTorch's true division, also for integers; for floats that is `div`.
    """
    if len(operands) == 1:
        return UNARY[sign]
    if sign == "/":
        return "div" if common_type("div", operands).is_rounded else "truediv"
    if sign == "//":
        return "floor_divide"
    return BINARY.get(sign) or COMPARISONS[sign]


def folded(sign: str, operands: Sequence[Operand], span: Span) -> Const | None:
    """Return the value of an operator on numbers, as in Python; None for other operands."""
    numbers = [
        o.value
        for o in operands
        if isinstance(o, Const) and not isinstance(o.value, (bool, complex))
    ]
    if len(numbers) < len(operands):
        return None
    if len(numbers) == 1:
        return literal(-numbers[0]) if sign == "-" else None
    if sign not in _OF_NUMBERS:
        return None
    try:
        result = _OF_NUMBERS[sign](*numbers)
        return literal(result)
    except ZeroDivisionError:
        raise FusecError("division by zero", span=span, code=ZERO_DIVISION) from None
    except OverflowError:
        raise FusecError("the number does not fit in f64", span=span, code=NUMBER_RANGE) from None
    except FusecError as error:
        raise error.at(span) from None
