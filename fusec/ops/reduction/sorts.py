"""Order along a dim: sort, argsort and top-k. The order of equal elements is stable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Dim
from fusec.ir.dtype import I64
from fusec.ir.graph import Operand, Type
from fusec.ir.op import Cost
from fusec.ops import texts
from fusec.ops.declare import Array, Axis, Size, computes_in_own, operation
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.shapes import described, tensor_shape

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _order(arg: Array, dim: int, descending: bool) -> Array:
    """Return the stable order; NaN counts as larger than everything, as in PyTorch."""
    array = np.asarray(arg)
    if not descending:
        return np.argsort(array, axis=dim, kind="stable")
    # The order of the reversed row, reversed: equal elements keep their order.
    reversed_order = np.argsort(np.flip(array, dim), axis=dim, kind="stable")
    return array.shape[dim] - 1 - np.flip(reversed_order, dim)


def _canonical_stable(operands: Operands, attributes: Attributes) -> Attributes:
    return {"stable": True}


def _infer_argsort(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    return (Type(I64, tensor_shape("argsort", operands[0])),)


@operation(
    "sort", infer=_infer_argsort, compute=computes_in_own, canonical=_canonical_stable,
    cost=Cost(20), accuracy=0.0,
    text=texts.ARGSORT,
)  # fmt: skip
def argsort(arg: Array, dim: Axis = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return the indices that sort the elements, as i64; always stable."""
    return _order(arg, dim, descending)


def _infer_sort(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    shape = tensor_shape("sort", operands[0])
    return Type(dtype_of(operands[0]), shape), Type(I64, shape)


@operation(
    "sort", infer=_infer_sort, compute=computes_in_own, canonical=_canonical_stable,
    results=("values", "indices"), cost=Cost(20), accuracy=0.0,
)  # fmt: skip
def sort(arg: Array, dim: Axis = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return (the sorted elements, their indices as i64); always stable."""
    order = _order(arg, dim, descending)
    return np.take_along_axis(np.asarray(arg), order, axis=dim), order


def _canonical_topk(operands: Operands, attributes: Attributes) -> Attributes:
    return {"sorted": True}


def _infer_topk(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    shape, axis = tensor_shape("topk", operands[0]), int(attributes["dim"])
    k: Dim = attributes["k"]
    extent = shape[axis]
    if k.is_const and k.value < 0:
        raise FusecError(f"`topk`: k is {k}, it must be at least 0")
    if k.is_const and extent.is_const and k.value > extent.value:
        raise too_large(k.value, extent.value, axis, [described(operands)])
    result = (*shape[:axis], k, *shape[axis + 1 :])
    return Type(dtype_of(operands[0]), result), Type(I64, result)


def too_large(k: int, extent: int, axis: int, notes: list[str]) -> FusecError:
    """Return the error of a top-k with more elements than the row has."""
    return FusecError(
        f"`topk`: k is {k}, larger than the extent {extent} of dim {axis}",
        notes=notes,
        instead=Instead(arguments={"k": str(extent)}, why=f"k is at most {extent}"),
    )


def _check_k(
    builder: GraphBuilder, slots: Sequence[list[Operand] | None], attributes: Attributes
) -> None:
    """Raise FusecError if k is larger than the row at the default sizes."""
    ((arg,),) = (slot or [] for slot in slots)
    k, axis = attributes["k"], int(attributes["dim"])
    extent, named = tensor_shape("topk", arg)[axis], builder.dims
    if (extent.is_const and k.is_const) or not (k.symbols | extent.symbols) <= named.keys():
        return
    most, wanted = extent.evaluate(builder.hints), k.evaluate(builder.hints)
    if not 0 <= wanted <= most:
        size = f"{k}" if k.is_const else f"{k}, {wanted} by default"
        of = f"{extent}" if extent.is_const else f"{extent}, {most} by default"
        raise FusecError(
            f"`topk`: k is {size}, and dim {axis} has {of}",
            notes=[described([arg])],
            instead=Instead(
                arguments={"k": str(extent)}, why="k is at most the number of elements of the dim"
            ),
        )


@operation(
    "sort", infer=_infer_topk, compute=computes_in_own, canonical=_canonical_topk,
    results=("values", "indices"), cost=Cost(10), accuracy=0.0,
    text=texts.TOPK, prepare=_check_k,
)  # fmt: skip
def topk(arg: Array, k: Size, dim: Axis = -1, largest: bool = True, sorted: bool = True) -> Array:
    """Return (the k largest or smallest elements, their indices as i64); always sorted.

    Ties take the first elements; NaN compares greater than all numbers.
    """
    array = np.asarray(arg)
    if k > array.shape[dim]:
        raise too_large(k, array.shape[dim], dim, [])
    order = np.take(_order(array, dim, largest), np.arange(k), axis=dim)
    return np.take_along_axis(array, order, axis=dim), order
