"""Running sums, products and extrema along a dim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir import arrays
from fusec.ir.dtype import DType
from fusec.ir.graph import Operand, Type
from fusec.ir.op import Cost, Infer
from fusec.ir.roles import Combine
from fusec.ir.totals import running
from fusec.ops import texts
from fusec.ops.declare import Array, Axis, computes_in_result, operation
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.reduction.reductions import DefaultType, widened
from fusec.ops.shapes import described, tensor_shape


def _own(dtype: DType) -> DType:
    return dtype


def _running(name: str, default: DefaultType) -> Infer:
    def infer(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
        shape, own = tensor_shape(name, operands[0]), dtype_of(operands[0])
        for initial in operands[1:]:
            if initial.shape:
                raise FusecError(f"init of `{name}` must be a scalar", notes=[described([initial])])
            if dtype_of(initial).is_float and not default(own).is_float:
                raise FusecError(
                    f"init of `{name}` is a float, its result {default(own)}",
                    help="cast the operand, or pass an integer",
                )
        return (Type(default(own), shape),)

    return infer


def _begun(function: Any, arg: Array, dim: int, init: Array | None) -> Array:
    """Return running results; `init` contributes to each of them."""
    extrema = function in (np.maximum, np.minimum)
    results = (arrays.running_extremum if extrema else arrays.running)(function, arg, dim)
    return results if init is None else function(results, init)


@operation(
    "scan", infer=_running("cumsum", widened), compute=computes_in_result,
    cuda={"default": "Sum"}, combine=Combine.SUM, cost=Cost(2),
    text=texts.scan("add"),
)  # fmt: skip
def cumsum(arg: Array, dim: Axis, init: Array | None = None) -> Array:
    """Return the inclusive prefix sum plus init; integers and bools in i64."""
    sums = running(np.asarray(arg), dim)
    return sums if init is None else sums + init


@operation(
    "scan", infer=_running("cumprod", widened), compute=computes_in_result,
    cuda={"default": "Prod"}, combine=Combine.PRODUCT, cost=Cost(2), domain=(0.5, 1.5),
    text=texts.scan("mul"),
)  # fmt: skip
def cumprod(arg: Array, dim: Axis, init: Array | None = None) -> Array:
    """Return the inclusive prefix product times init; integers and bools in i64."""
    return _begun(np.multiply, arg, dim, init)


@operation(
    "scan", infer=_running("cummax", _own), compute=computes_in_result,
    cuda={"default": "Max"}, combine=Combine.MAXIMUM, cost=Cost(2), accuracy=0.0,
    text=texts.scan("fmax"),
)  # fmt: skip
def cummax(arg: Array, dim: Axis, init: Array | None = None) -> Array:
    """Return the running maximum, including init; propagates NaN."""
    return _begun(np.maximum, arg, dim, init)


@operation(
    "scan", infer=_running("cummin", _own), compute=computes_in_result,
    cuda={"default": "Min"}, combine=Combine.MINIMUM, cost=Cost(2), accuracy=0.0,
    text=texts.scan("fmin"),
)  # fmt: skip
def cummin(arg: Array, dim: Axis, init: Array | None = None) -> Array:
    """Return the running minimum, including init; propagates NaN."""
    return _begun(np.minimum, arg, dim, init)
