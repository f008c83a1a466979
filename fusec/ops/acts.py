"""The arithmetic of operations, for passes that match forms composed of several of them."""

from __future__ import annotations

from enum import Enum

from fusec.ir.op import OpDef


class Act(Enum):
    """What an elementwise operation computes from its operands, in their order."""

    ADD = "a + b"
    SUBTRACT = "a - b"
    MULTIPLY = "a * b"
    DIVIDE = "a / b"
    EXPONENTIATE = "e to the power a"
    SELECT = "b where a is true, else c"
    BOTH = "a and b"
    EQUAL = "a == b"
    LESS = "a < b"
    AT_MOST = "a <= b"
    GREATER = "a > b"
    AT_LEAST = "a >= b"


_ACTS = {
    "add": Act.ADD,
    "sub": Act.SUBTRACT,
    "mul": Act.MULTIPLY,
    "div": Act.DIVIDE,
    "truediv": Act.DIVIDE,
    "exp": Act.EXPONENTIATE,
    "exp_approx": Act.EXPONENTIATE,
    "where": Act.SELECT,
    "logical_and": Act.BOTH,
    "bitwise_and": Act.BOTH,
    "eq": Act.EQUAL,
    "lt": Act.LESS,
    "le": Act.AT_MOST,
    "gt": Act.GREATER,
    "ge": Act.AT_LEAST,
}


def act_of(op: OpDef) -> Act | None:
    """Return what an operation computes, None for others, such as integer division."""
    return _ACTS.get(op.name)
