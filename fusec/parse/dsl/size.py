"""The dims of a script: sizes, or numbers of the fusion where arithmetic leaves the sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

from fusec.ir.dim import Dim, dim


class _WithOperations(Protocol):
    @property
    def ops(self) -> Any: ...


_MOST_FACTORS = 8
"""The largest exponent for which a power of a size is a size."""


class Size(Dim):
    """A dim that knows its definition: `D ** -0.5` and `1 / D` are scalars, `D // 2` is a size.

    Only scripts have it; the graph has plain dims (`plain`).
    """

    def __init__(self, definition: _WithOperations, size: Dim) -> None:
        """Represent a size in expressions of a definition."""
        super().__init__(size.terms)
        vars(self)["definition"] = definition


def plain(size: Dim) -> Dim:
    """Return a size in the form that the graph uses."""
    return Dim(size.terms) if isinstance(size, Size) else size


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, Dim)) and not isinstance(value, bool)


def _number(size: Size, name: str, *operands: Any) -> Any:
    """Return the result of an operation on numbers, including a size."""
    definition: _WithOperations = vars(size)["definition"]
    return getattr(definition.ops, name)(*operands)


def _install_operators() -> None:
    def define(method: str, op: str, of_sizes: Callable[[Any, Any], Any] | None) -> None:
        def apply(size: Size, left: Any, right: Any) -> Any:
            if of_sizes is None or not (_is_size(left) and _is_size(right)):
                return _number(size, op, left, right)
            made = of_sizes(*(plain(s) if isinstance(s, Dim) else dim(s) for s in (left, right)))
            return Size(vars(size)["definition"], made)

        def operation(self: Size, other: Any) -> Any:
            return apply(self, self, other)

        def reflected(self: Size, other: Any) -> Any:
            return apply(self, other, self)

        setattr(Size, f"__{method}__", operation)
        setattr(Size, f"__r{method}__", reflected)

    for method in ("add", "sub", "mul", "mod", "floordiv"):
        op = {"floordiv": "floor_divide"}.get(method, method)
        define(method, op, getattr(operator, method))
    define("truediv", "truediv", None)

    def power(self: Size, exponent: Any) -> Any:
        if type(exponent) is int and 0 < exponent <= _MOST_FACTORS:
            product = plain(self)
            for _ in range(exponent - 1):
                product = product * plain(self)
            return Size(vars(self)["definition"], product)
        return _number(self, "pow", self, exponent)

    def power_of(self: Size, base: Any) -> Any:
        return _number(self, "pow", base, self)

    def negated(self: Size) -> Size:
        return Size(vars(self)["definition"], -plain(self))

    for method in ("lt", "le", "gt", "ge"):

        def compare(self: Size, other: Any, op: str = method) -> Any:
            return _number(self, op, self, other)

        setattr(Size, f"__{method}__", compare)
    for method, function in (("pow", power), ("rpow", power_of), ("neg", negated)):
        setattr(Size, f"__{method}__", function)


_install_operators()
