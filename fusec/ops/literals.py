"""Literals: each is converted to its operation's compute type, by PyTorch's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ir.dtype import BOOL, C128, F64, I64, U64, DType
from fusec.ir.graph import Const, Operand
from fusec.ir.op import OpDef
from fusec.ops.dtypes import common_type


def literal(value: Any) -> Const:
    """Return a Python number as a Const; FusecError for an integer that exceeds 64 bits."""
    if isinstance(value, bool):
        return Const(value, BOOL)
    if isinstance(value, int):
        if not I64.integers.start <= value < U64.integers.stop:
            raise FusecError(f"the integer {value} does not fit in 64 bits")
        return _integer(value, I64)
    if isinstance(value, complex):
        return Const(value, C128)
    return Const(float(value), F64)


def typed_literals(op: OpDef, operands: Sequence[Operand], result: DType) -> tuple[Operand, ...]:
    """Return a call's operands with each literal converted to its compute type.

    Integers wrap modulo 2**bits as PyTorch's do. A number without an integer value (nan, an
    infinity, a fraction), and a fill value that the type cannot represent, are a FusecError.
    """
    if not any(isinstance(o, Const) for o in operands):
        return tuple(operands)
    names = [p.name for p in op.operands]
    computed = op.compute(tuple(operands), result)
    if BOOL in computed and op.promoted is not None:
        # Logical operations promote their operands like any other before they test for zero.
        common = common_type(op.name, op.promoted(tuple(operands)))
        computed = tuple(common if d == BOOL else d for d in computed)
    return tuple(
        _typed(op, names[min(k, len(names) - 1)], o, dtype) if isinstance(o, Const) else o
        for k, (o, dtype) in enumerate(zip(operands, computed, strict=True))
    )


def _typed(op: OpDef, name: str, given: Const, dtype: DType) -> Const:
    if not dtype.is_integer or isinstance(given.value, bool):
        return given
    value = given.value
    number = str(value).strip("()")
    if isinstance(value, (float, complex)):
        if value.imag != 0 or not float(value.real).is_integer():
            raise FusecError(
                f"`{name}` of `{op.name}` is {number}, and must be an integer",
                help="write an integer, or compute in a float type and cast the result",
            )
        value = int(value.real)
    if name == op.fills and value not in dtype.integers:
        raise FusecError(
            f"`{name}` of `{op.name}` is {number}, out of range for {dtype}",
            help=f"the range of {dtype} is {dtype.integers.start} to {dtype.integers.stop - 1}",
        )
    wrapped = dtype.wrap(value)
    is_same = isinstance(given.value, int) and wrapped == given.value
    # A mask may be written without its sign: 0xFFFFFFFF is -1 in i32.
    is_mask = -(2 ** (dtype.bits - 1)) <= value < 2**dtype.bits
    made = given if is_same else _integer(wrapped, given.dtype)
    return made if is_mask else replace(made, wrapped=value)


def _integer(value: int, preferred: DType) -> Const:
    """Return an integer as a Const of the preferred type, or of a 64-bit one that represents it."""
    fitting = (preferred, I64, U64)
    return Const(value, next(d for d in fitting if d.is_integer and value in d.integers))
