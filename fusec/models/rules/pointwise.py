"""Elementwise operations and reductions whose op line depends on types or arguments."""

from __future__ import annotations

from fusec.ir.dtype import I64
from fusec.models.graph import Argument, Ref
from fusec.models.rules.build import Build, axes_of, axis_of, rule, size_texts


@rule("aten.dropout.default", "aten.feature_dropout.default")
def dropout(b: Build, input: Argument, p: float, train: bool) -> str:
    """Return the operand in evaluation mode; in training, with random elements zeroed."""
    if not train or p == 0:
        return b.text(input)
    return b.let_all(f"dropout({b.text(input)}, {p})", ("output", "mask"))[0]


@rule("aten.native_dropout.default")
def native_dropout(b: Build, input: Argument, p: float, train: bool | None = True) -> list[str]:
    """Return the output and the mask."""
    if train is False or p == 0:
        return [b.text(input), f"full({size_texts(b.shape)}, true, bool)"]
    return b.let_all(f"dropout({b.text(input)}, {p})", ("output", "mask"))


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def divide(b: Build, self: Argument, other: Argument, rounding_mode: Argument = None) -> str:
    """Divide, and round down or towards zero."""
    operands = f"{b.text(self)}, {b.text(other)}"
    if rounding_mode is None:
        return f"truediv({operands})"
    if rounding_mode == "floor":
        return f"floor_divide({operands})"
    if b.result.dtype.kind in ("int", "uint"):
        return f"div({operands})"
    return f"trunc(truediv({operands}))"


@rule("aten.cumsum.default", "aten.cumprod.default")
def scan(b: Build, self: Argument, dim: int, dtype: Argument = None) -> str:
    """Return running sums or products, after conversion."""
    operand = b.cast(b.text(self), b.dtype_of(self), b.result.dtype)
    axis = axis_of(dim, len(b.shape_of(self)))
    text = f"{b.node.operation}({operand}, {axis})"
    is_small = b.result.dtype.kind in ("int", "uint") and b.result.dtype != I64
    return f"cast({text}, {b.result.dtype})" if is_small else text


@rule(
    "aten._softmax.default", "aten._log_softmax.default", "aten.softmax.int",
    "aten.log_softmax.int",
)  # fmt: skip
def softmax(b: Build, self: Argument, dim: int, *args: Argument, **_: Argument) -> str:
    """Return softmax or its logarithm, of the operand converted to the type of the result."""
    del args
    operand = b.cast(b.text(self), b.dtype_of(self), b.result.dtype)
    return f"{b.node.operation.lstrip('_')}({operand}, {dim})"


@rule("aten._safe_softmax.default")
def safe_softmax(b: Build, self: Argument, dim: int, dtype: Argument = None) -> str:
    """Return softmax, 0 in rows whose elements are all -inf."""
    operand = b.let(b.cast(b.text(self), b.dtype_of(self), b.result.dtype), "scores")
    rank = len(b.shape_of(self))
    if not rank:
        return f"cast({operand} != -inf, {b.result.dtype})"
    largest = b.let(f"max({operand}, [{axis_of(dim, rank)}], true)", "largest")
    return f"where({largest} == -inf, 0.0, softmax({operand}, {dim}))"


@rule("aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim",
      "aten.prod.default", "aten.prod.dim_int")  # fmt: skip
def reduce(
    b: Build,
    self: Argument,
    dim: Argument = None,
    keepdim: bool = False,
    dtype: Argument = None,
) -> str:
    """Return a sum, mean or product, of the operand converted to the type of the result."""
    if b.node.target.endswith(".default"):
        dim = None
    operand = b.cast(b.text(self), b.dtype_of(self), b.result.dtype)
    rank = len(b.shape_of(self))
    axes = axes_of(dim, rank)
    if not rank:
        return operand
    dims = f", {axes}" if axes else ""
    return f"{b.node.operation}({operand}{dims}{', keepdim=true' * keepdim})"


@rule("aten.pow.Tensor_Scalar")
def power(b: Build, self: Argument, exponent: Argument) -> str:
    """Return a power; squares are multiplications."""
    operand = b.cast(b.text(self), b.dtype_of(self), b.result.dtype)
    if exponent in (2, 2.0) and operand.isidentifier():
        return f"{operand} * {operand}"
    return f"pow({operand}, {b.text(exponent)})"


@rule("aten.scatter.value", "aten.scatter.src", "aten.scatter_add.default")
def scatter(
    b: Build,
    self: Argument,
    dim: int,
    index: Argument,
    value: Argument = None,
    src: Argument = None,
) -> str:
    """Return a tensor with elements replaced, or added to, at indices."""
    source = src if value is None else value
    shape = b.shape_of(index)
    if isinstance(source, Ref):
        text = b.cast(b.text(source), b.dtype_of(source), b.result.dtype)
        if b.shape_of(source) != shape:
            zeros = ", ".join("0" for _ in shape)
            text = f"slice({text}, [{zeros}], {size_texts(shape)})"
    else:
        text = f"full({size_texts(shape)}, {b.text(source)}, {b.result.dtype})"
    name = "scatter_add" if b.node.operation == "scatter_add" else "scatter"
    operands = f"{b.text(self)}, {b.text(index)}, {text}"
    return f"{name}({operands}, {axis_of(dim, len(b.shape_of(self)))})"


@rule("aten.histc.default")
def histogram(b: Build, self: Argument, bins: int = 100, min: float = 0, max: float = 0) -> str:
    """Return how many elements fall in each of equal bins; the last bin includes its end."""
    if min >= max:
        raise b.unsupported("its limits depend on data", "give `histc` its min and max")
    flat = b.let(f"reshape({b.in_f32(self)}, [{_count(b, self)}])", "flat")
    place = b.let(f"floor(({flat} - {min}) * {bins / (max - min)})", "bin")
    place = b.let(f"where({flat} == {max}, {bins - 1}, {place})", "place")
    number = f"unsqueeze({place}, 1) == iota({bins}, dtype=f32)"
    return f"cast(sum(cast({number}, i64), [0]), {b.result.dtype})"


def _count(b: Build, tensor: Argument) -> str:
    count = "1"
    for extent in b.shape_of(tensor):
        count = f"{count} * ({extent})"
    return count.removeprefix("1 * ")
