"""Values of expressions at known sizes: trip counts of loops, widths of accesses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne

from fusec.dataclasses import dataclass, field
from fusec.kernel.device import CONSTANTS, NAMESPACE
from fusec.kernel.nodes import (
    FALSE,
    TRUE,
    Binary,
    Call,
    Cast,
    Constexpr,
    Expression,
    Grouped,
    Integer,
    Let,
    Name,
    Select,
    Sum,
    Unary,
)

CONFIG = "Config::"
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    "<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne,
}  # fmt: skip
_CEILING = frozenset(NAMESPACE + name for name in ("tile_count", "ceil_divide"))


@dataclass
class Values:
    """The values of sizes, by parameter, and of constants, as they are declared."""

    sizes: Mapping[str, int]
    _declared: dict[str, Expression] = field(default_factory=dict[str, Expression])

    def declare(self, node: Constexpr | Let) -> None:
        """Record the value of a constant; a later one of the same name replaces it."""
        if node.value is not None:
            self._declared[node.name] = node.value
            if isinstance(node, Constexpr) and node.is_member:
                self._declared[CONFIG + node.name] = node.value

    def number(self, value: Expression, *, whole: bool = False) -> float | None:
        """Return the value of an expression; None if it depends on data.

        whole: whether `/` is an integer division rather than an average.
        """
        if isinstance(value, Integer):
            return value.value
        if value in (TRUE, FALSE):
            return value == TRUE
        if isinstance(value, Name):
            return self._named(value.name)
        if isinstance(value, Grouped):
            return self.number(value.inside, whole=whole)
        if isinstance(value, Cast):
            return self.number(value.operand, whole=whole)
        if isinstance(value, Select):
            test = self.number(value.test, whole=whole)
            return None if test is None else self.number(value.yes if test else value.no)
        return self._computed(value, whole)

    def _named(self, name: str) -> float | None:
        if name in self._declared:
            return self.number(self._declared[name], whole=True)
        return self.sizes.get(name, CONSTANTS.get(name))

    def _computed(self, value: Expression, whole: bool) -> float | None:
        if isinstance(value, Unary):
            parts = (value.operand,)
        elif isinstance(value, Binary):
            parts = (value.left, value.right)
        elif isinstance(value, Sum):
            parts = value.terms
        elif isinstance(value, Call):
            parts = value.arguments
        else:
            return None
        numbers = [self.number(part, whole=whole) for part in parts]
        known = [number for number in numbers if number is not None]
        return _result(value, known, whole) if len(known) == len(numbers) else None


def _result(value: Expression, numbers: list[float], whole: bool) -> float | None:
    """Return the result of an operator or a function on the values of its operands."""
    if isinstance(value, Sum):
        return sum(numbers)
    if isinstance(value, Unary):
        return -numbers[0] if value.operator == "-" else None
    if isinstance(value, Call):
        if value.function in _CEILING:
            return math.ceil(numbers[0] / numbers[1])
        return {"min": min, "max": max}[value.function](numbers) if _is_extreme(value) else None
    assert isinstance(value, Binary)
    left, right = numbers
    sign = value.operator
    if sign in _COMPARED:
        return _COMPARED[sign](left, right)
    if sign in ("/", "%") and right == 0:
        return None
    if sign == "/":
        return left // right if whole else left / right
    if sign == "%":
        return left % right
    if sign == "*":
        return left * right
    return left + right if sign == "+" else left - right if sign == "-" else None


def _is_extreme(value: Call) -> bool:
    return value.function in ("min", "max") and bool(value.arguments)
