"""Variances: reductions whose state is a mean and a sum of squared deviations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.dtype import I64
from fusec.ir.graph import Node, Operand, Type
from fusec.ir.op import Cost, Infer
from fusec.ir.roles import Combine
from fusec.ir.totals import total
from fusec.ops.declare import Array, Dims, computes_in_own, reduction
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.shapes import tensor_shape, without_axes


def _spread(name: str, results: int) -> Infer:
    """Return the type rule of a variance: `results` floats, and a count if there are three."""

    def infer(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
        dtype = dtype_of(operands[0])
        if not dtype.is_rounded:
            raise FusecError(f"`{name}` needs floats, got {dtype}", help="cast the operand first")
        shape = without_axes(tensor_shape(name, operands[0]), attributes["dims"])
        # Squared distances are real; of var_mean the second result is the mean.
        kinds = (dtype, dtype, I64) if name == "welford" else (dtype.part, dtype)
        return tuple(Type(kind, shape) for kind in kinds[:results])

    return infer


def _moments(arg: Array, dims: Dims, keepdim: bool) -> tuple[Array, Array, int]:
    array = np.asarray(arg)
    axes: Sequence[int] = range(array.ndim) if dims is None else dims
    count = 1
    for axis in axes:
        count *= array.shape[axis]
    mean = total(array, axes, keepdims=True) / np.float64(count)
    squares = total(_squared(array - mean), axes, keepdims=True)
    if keepdim:
        return mean, squares, count
    return np.squeeze(mean, tuple(axes)), np.squeeze(squares, tuple(axes)), count


def _squared(x: Array) -> Array:
    """Return |x|**2."""
    whole = not np.iscomplexobj(x)
    return np.square(x) if whole else np.square(np.real(x)) + np.square(np.imag(x))


def _divided(squares: Array, count: int, correction: int) -> Array:
    return squares / np.float64(count - correction if count > correction else 0)


@reduction(
    infer=_spread("var", 1),
    compute=computes_in_own,
    combine=Combine.MOMENTS,
    cuda="WelfordMerge",
    cost=Cost(6),
)
def var(arg: Array, dims: Dims = None, correction: int = 1, keepdim: bool = False) -> Array:
    """Return the variance over `dims`, divided by the count minus `correction`."""
    _, squares, count = _moments(arg, dims, keepdim)
    return _divided(squares, count, correction)


@reduction(
    infer=_spread("var_mean", 2),
    compute=computes_in_own,
    combine=Combine.MOMENTS,
    cuda="WelfordMerge",
    results=("var", "mean"),
    cost=Cost(6),
)
def var_mean(arg: Array, dims: Dims = None, correction: int = 1, keepdim: bool = False) -> Array:
    """Return the variance and the mean over `dims`."""
    mean, squares, count = _moments(arg, dims, keepdim)
    return _divided(squares, count, correction), mean


@reduction(
    infer=_spread("welford", 3),
    combine=Combine.MOMENTS,
    cuda="WelfordMerge",
    results=("avg", "var_sum", "n"),
    cost=Cost(6),
)
def welford(arg: Array, dims: Dims) -> Array:
    """Return the mean, the sum of squared deviations and the count over `dims`."""
    mean, squares, count = _moments(arg, dims, keepdim=False)
    return mean, squares, np.full(np.shape(mean), count, np.int64)


def results_of(node: Node) -> tuple[str, ...]:
    """Return the kind of each result of a node: `mean`, `m2`, `var` or `count`."""
    names = {"avg": "mean", "mean": "mean", "var": "var", "var_sum": "m2", "n": "count"}
    return tuple(names.get(result, "var") for result in node.op.results)
