"""Sizes as operands: numbers computed from the sizes of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Call, Dim, Symbol
from fusec.ir.dtype import I64
from fusec.ir.graph import Const, Operand

if TYPE_CHECKING:
    from fusec.ops.build import GraphBuilder

_CALLS = {"floordiv": "div", "ceildiv": "ceilDiv", "mod": "mod", "min": "minimum", "max": "maximum"}


def operand_of_size(builder: GraphBuilder, size: Dim, span: Span | None = None) -> Operand:
    """Return a size as an i64 scalar; FusecError where no input has the dims that it is made of."""
    size = builder.bindings.size(size)
    if size.is_const:
        return Const(size.value, I64)
    known = builder.size_operands
    if size not in known:
        known[size] = _of_input(builder, size, span) or _computed(builder, size, span)
    return builder.resolve(known[size])


def _of_input(builder: GraphBuilder, size: Dim, span: Span | None) -> Operand | None:
    for value in builder.input_values:
        if value.dim == size:
            return value
        if size in (value.type.shape or ()):
            return builder.call("size", [value], {"dim": value.shape.index(size)}, span=span)[0]
    return None


def _computed(builder: GraphBuilder, size: Dim, span: Span | None) -> Operand:
    """Return the sum of a size's terms, each a product of symbols and calls."""

    def chain(op: str, operands: Sequence[Operand]) -> Operand:
        return reduce(lambda a, b: builder.call(op, [a, b], span=span)[0], operands)

    def factor(atom: Symbol | Call) -> Operand:
        if isinstance(atom, Call):
            sides = (operand_of_size(builder, s, span) for s in (atom.left, atom.right))
            return chain(_CALLS[atom.function], [*sides])
        alone = Dim((((atom,), 1),))
        if alone == size:
            message = f"`{size}` is not the size of an input, so it is no number here"
            raise FusecError(message, span=span)
        return operand_of_size(builder, alone, span)

    terms: list[Operand] = []
    for monomial, coefficient in size.terms:
        scale = [] if coefficient == 1 and monomial else [Const(coefficient, I64)]
        terms.append(chain("mul", [*map(factor, monomial), *scale]))
    return chain("add", terms)
