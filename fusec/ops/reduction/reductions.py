"""Sums, products, extrema and means over dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.dtype import BOOL, I64, DType
from fusec.ir.graph import Operand, Type
from fusec.ir.op import Canonical, Infer
from fusec.ir.roles import Combine, Text
from fusec.ir.totals import total
from fusec.ops.builder.inputs import check_dtype
from fusec.ops.declare import Array, Dims, reduction
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.shapes import tensor_shape, without_axes

DefaultType = Callable[[DType], DType]


def widened(dtype: DType) -> DType:
    """Return the type of a sum: i64 for integers and bools, else the operand's."""
    return dtype if dtype.is_rounded else I64


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
        if dtype_of(operands[0]).is_complex and not dtype.is_complex:
            raise FusecError(f"`{name}` of complex numbers cannot be {dtype}", help="cast it first")
        return (Type(dtype, shape),)

    return infer


def _without_default(default: DefaultType) -> Canonical:
    """Return the rule that omits a `dtype` equal to the default."""

    def canonical(
        operands: tuple[Operand, ...], attributes: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        usual = attributes["dtype"] == default(dtype_of(operands[0]))
        return {"dtype": None if usual else attributes["dtype"]}

    return canonical


def _extremum(name: str, numpy_name: str, arg: Array, dims: Dims, keepdim: bool) -> Array:
    """Return the extremum over dims; over no elements, the identity of the operation."""
    array = np.asarray(arg)
    function = getattr(np, numpy_name)
    if array.dtype.kind == "f":
        return function(array, axis=dims, keepdims=keepdim, initial=_worst(name, float("inf")))
    if array.dtype.kind == "b":
        return function(array, axis=dims, keepdims=keepdim, initial=name == "min")
    limits = np.iinfo(array.dtype)
    worst = limits.max if name == "min" else limits.min
    return function(array, axis=dims, keepdims=keepdim, initial=worst)


def _worst(name: str, infinity: float) -> float:
    return infinity if name == "min" else -infinity


@reduction(
    infer=_reduced("sum", widened),
    canonical=_without_default(widened),
    combine=Combine.SUM,
    cuda="Sum",
    text=Text(reduction=("add", 0.0)),
)
def sum(arg: Array, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Sum over `dims` (default: all); integers and bools are summed in i64."""
    return total(np.asarray(arg), dims, keepdims=keepdim)


@reduction(
    infer=_reduced("prod", widened),
    canonical=_without_default(widened),
    combine=Combine.PRODUCT,
    cuda="Prod",
    domain=(0.5, 1.5),
    text=Text(reduction=("mul", 1.0)),
)
def prod(arg: Array, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Multiply over `dims` (default: all); integers and bools in i64."""
    return np.prod(arg, axis=dims, keepdims=keepdim)


@reduction(
    infer=_reduced("max", _own),
    canonical=_without_default(_own),
    combine=Combine.MAXIMUM,
    cuda="Max",
    text=Text(reduction=("fmax", float("-inf"))),
)
def max(arg: Array, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Return the maximum over `dims`; propagates NaN. It is an error for no elements."""
    return _extremum("max", "max", arg, dims, keepdim)


@reduction(
    infer=_reduced("min", _own),
    canonical=_without_default(_own),
    combine=Combine.MINIMUM,
    cuda="Min",
    text=Text(reduction=("fmin", float("inf"))),
)
def min(arg: Array, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Return the minimum over `dims`; propagates NaN. It is an error for no elements."""
    return _extremum("min", "min", arg, dims, keepdim)


@reduction(
    infer=_reduced("any", _boolean),
    combine=Combine.SOME,
    cuda="Any",
    accuracy=0,
    text=Text(reduction=("||", False)),
)
def any(arg: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    """Return whether any value over `dims` is nonzero or true."""
    return np.any(arg, axis=dims, keepdims=keepdim)


@reduction(
    infer=_reduced("all", _boolean),
    combine=Combine.EVERY,
    cuda="All",
    accuracy=0,
    text=Text(reduction=("&&", True)),
)
def all(arg: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    """Return whether all values over `dims` are nonzero or true."""
    return np.all(arg, axis=dims, keepdims=keepdim)
