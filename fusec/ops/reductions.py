"""Sums, products, extrema and means over dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusec.ir.dtype import BOOL, I64, DType
from fusec.ir.graph import Operand, Type
from fusec.ir.op import Canonical, Infer
from fusec.ops.declare import Array, Dims, reduction
from fusec.ops.dtypes import dtype_of
from fusec.ops.inputs import check_dtype
from fusec.ops.lazy import np
from fusec.ops.shapes import tensor_shape, without_axes

DefaultType = Callable[[DType], DType]


def widened(dtype: DType) -> DType:
    """Return the type of a sum: i64 for integers and bools, else the operand's."""
    return dtype if dtype.is_float else I64


def _own(dtype: DType) -> DType:
    return dtype


def _boolean(dtype: DType) -> DType:
    return BOOL


def _reduced(name: str, default: DefaultType) -> Infer:
    """Return the rule: `dims` removed, the type from `dtype` or from the operand's."""

    def infer(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
        shape = without_axes(tensor_shape(name, operands[0]), attributes["dims"])
        dtype: DType = attributes.get("dtype") or default(dtype_of(operands[0]))
        check_dtype(dtype)
        return (Type(dtype, shape),)

    return infer


def _without_default(default: DefaultType) -> Canonical:
    """Return the rule: a `dtype` that is the default anyway is left out."""

    def canonical(
        operands: tuple[Operand, ...], attributes: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        usual = attributes["dtype"] == default(dtype_of(operands[0]))
        return {"dtype": None if usual else attributes["dtype"]}

    return canonical


@reduction(infer=_reduced("sum", widened), canonical=_without_default(widened), combine="add")
def sum(arg: Array, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Sum over `dims` (all if left out); integers and bools are summed in i64."""
    return np.sum(arg, axis=dims, keepdims=keepdim)
