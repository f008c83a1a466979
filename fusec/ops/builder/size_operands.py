"""Sizes as numbers: computed from the sizes of inputs, or constants if no input has the dim."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Call, Dim, Symbol
from fusec.ir.dtype import I64
from fusec.ir.graph import Const, Operand

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

_CALLS = {"floordiv": "div", "ceildiv": "ceilDiv", "mod": "mod", "min": "minimum", "max": "maximum"}


def operand_of_size(builder: GraphBuilder, size: Dim, span: Span | None = None) -> Operand:
    """Return a size as an i64 scalar, a constant if no input has its dims."""
    size = with_constants(builder, size, span)
    if size.is_const:
        return Const(size.value, I64)
    known = builder.size_operands
    if size not in known:
        known[size] = _of_input(builder, size, span) or _computed(builder, size, span)
    return builder.resolve(known[size])


def with_constants(builder: GraphBuilder, size: Dim, span: Span | None = None) -> Dim:
    """Return a size with dims of no input replaced by their defaults, from now on in all sizes.

    Such a dim gets no value when the fusion runs, so a number computed from it is a constant.
    """
    of_inputs = {
        name
        for entry, value in zip(builder.inputs, builder.input_values, strict=True)
        for dim in (*(value.type.shape or ()), *entry.strides, *filter(None, [value.type.dim]))
        for name in dim.symbols
    }
    for name in sorted(builder.bindings.size(size).symbols - of_inputs):
        builder.make_constant(name, span)
    return builder.bindings.size(size)


def _of_input(builder: GraphBuilder, size: Dim, span: Span | None) -> Operand | None:
    for value in builder.input_values:
        if value.dim == size:
            return value
        if size in (value.type.shape or ()):
            return builder.call("size", [value], {"dim": value.shape.index(size)}, span=span)[0]
    return _of_multiple(builder, size, span)


def _of_multiple(builder: GraphBuilder, size: Dim, span: Span | None) -> Operand | None:
    """Return a size as a fraction of an input's extent: `half` if an extent is `2 * half`."""
    for value in builder.input_values:
        for axis, extent in enumerate(value.type.shape or ()):
            times = None if extent.is_const else extent.divide(size)
            if times is not None and times.is_const:
                (whole,) = builder.call("size", [value], {"dim": axis}, span=span)
                return builder.call("div", [whole, Const(times.value, I64)], span=span)[0]
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
            raise FusecError(
                f"dim `{size}` is not the extent of any input's dim and cannot be used as a value",
                span=span,
                help="inputs use it only within an extent; declare a scalar input for it",
            )
        return operand_of_size(builder, alone, span)

    terms: list[Operand] = []
    for monomial, coefficient in size.terms:
        scale = [] if coefficient == 1 and monomial else [Const(coefficient, I64)]
        terms.append(chain("mul", [*map(factor, monomial), *scale]))
    return chain("add", terms)
