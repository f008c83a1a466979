"""Composites by formulas: Python's operators on the values of a graph under construction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Operand
from fusec.ir.op import Equal, OpDef
from fusec.ops.declare import Body, composite
from fusec.ops.dtypes import as_float, common_type, dtype_of

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder


class Term:
    """A value of a graph in a formula; `term.exp()` calls the operation `exp` on it."""

    def __init__(self, builder: GraphBuilder, operand: Operand) -> None:
        """Wrap `operand`."""
        self.builder, self.operand = builder, operand

    def call(self, name: str, *operands: Factor, **attributes: Any) -> Term:
        """Return the result of an operation on this value and others."""
        given = [o.operand if isinstance(o, Term) else o for o in operands]
        return Term(self.builder, self.builder.apply(name, self.operand, *given, **attributes))

    def __getattr__(self, name: str) -> Callable[..., Term]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *operands, **attributes: self.call(name, *operands, **attributes)

    def where(self, x: Factor, y: Factor) -> Term:
        """Return x where this value is true, else y."""
        return self.call("where", x, y)

    def __add__(self, other: Factor) -> Term:
        return self.call("add", other)

    def __sub__(self, other: Factor) -> Term:
        return self.call("sub", other)

    def __mul__(self, other: Factor) -> Term:
        return self.call("mul", other)

    def __truediv__(self, other: Factor) -> Term:
        return self.call("div", other)

    def __radd__(self, other: int | float) -> Term:
        return self.call("add", other)

    def __rsub__(self, other: int | float) -> Term:
        return Term(self.builder, self.builder.apply("sub", other, self.operand))

    def __rmul__(self, other: int | float) -> Term:
        return self.call("mul", other)

    def __neg__(self) -> Term:
        return self.call("neg")

    def __gt__(self, other: Factor) -> Term:
        return self.call("gt", other)

    def __ge__(self, other: Factor) -> Term:
        return self.call("ge", other)

    def __lt__(self, other: Factor) -> Term:
        return self.call("lt", other)

    def __le__(self, other: Factor) -> Term:
        return self.call("le", other)


Factor: TypeAlias = Term | Operand | int | float
Formula: TypeAlias = (
    Callable[[Any], Any]
    | Callable[[Any, Any], Any]
    | Callable[[Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any], Any]
)
"""A function of Terms and attributes that returns a Term."""


def float_formula(
    form: Formula, *, domain: tuple[float, float] = (-2.0, 2.0), equal: Equal | None = None
) -> Callable[[Body], OpDef]:
    """Declare a composite that computes floats: 16-bit ones in f32, rounded once at the end.

    form: returns the result from Terms of the operands, None for an absent one, and from the
    attributes by keyword. Integers become f32, as in PyTorch.
    """
    return _declared(form, _in_float, domain, equal)


def formula(form: Formula, *, equal: Equal | None = None) -> Callable[[Body], OpDef]:
    """Declare a composite of operations that take the operands in their own types."""
    return _declared(form, _as_given, (-2.0, 2.0), equal)


def _declared(
    form: Formula, convert: Callable[..., tuple[list[Operand | None], DType | None]],
    domain: tuple[float, float], equal: Equal | None,
) -> Callable[[Body], OpDef]:  # fmt: skip
    def wrap(body: Body) -> OpDef:
        def expand(builder: GraphBuilder, *operands: Operand | None, **attributes: Any) -> Operand:
            given, dtype = convert(builder, operands)
            terms = [None if o is None else Term(builder, o) for o in given]
            result = form(*terms, **attributes).operand
            if dtype is None or dtype_of(result) == dtype or not dtype_of(result).is_float:
                return result
            return builder.apply("cast", result, dtype=dtype)

        return composite(expand=expand, domain=domain, equal=equal)(body)

    return wrap


def _in_float(
    builder: GraphBuilder, operands: tuple[Operand | None, ...]
) -> tuple[list[Operand | None], DType | None]:
    dtype = as_float(common_type("", [o for o in operands if o is not None]), scalar=False)
    wide = dtype.compute

    def converted(operand: Operand | None) -> Operand | None:
        if operand is None or isinstance(operand, Const) or dtype_of(operand) == wide:
            return operand
        return builder.apply("cast", operand, dtype=wide)

    return [converted(o) for o in operands], dtype


def _as_given(
    builder: GraphBuilder, operands: tuple[Operand | None, ...]
) -> tuple[list[Operand | None], DType | None]:
    return list(operands), None
