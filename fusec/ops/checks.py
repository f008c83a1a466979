"""The operation that checks an index; a pass inserts it, it is not in the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.dtype import DType
from fusec.ir.graph import Operand, Type
from fusec.ir.op import Cost, OpDef, Param

Operands = tuple[Operand, ...]


def _reference(index: Any, extent: int, number: int) -> Any:
    return index


def _infer(operands: Operands, attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    return (Type(operands[0].type.dtype, operands[0].type.shape),)


def _compute(operands: Operands, result: DType) -> tuple[DType, ...]:
    return (result.compute,)


CHECK_INDEX = OpDef(
    name="check_index",
    family="pointwise",
    params=(Param("index", "operand"), Param("extent", "size"), Param("number", "int")),
    reference=_reference,
    infer=_infer,
    compute=_compute,
    cuda={"default": "fusec::check_index({index}, {extent}, {number}, {errors})"},
    cost=Cost(3),
    accuracy=0.0,
    doc="Return an index; one outside 0 to extent - 1 is noted under a number, and becomes 0.",
)
