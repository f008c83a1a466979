"""Creation of tensors with the shape and type of the result."""

from __future__ import annotations

from fusec.models.graph import Argument
from fusec.models.rules.build import Build, rule, size_texts


def _full(b: Build, value: str) -> str:
    return f"full({size_texts(b.shape)}, {value}, {b.result.dtype})"


@rule(
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default",
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
    "aten.empty_permuted.default", "aten.empty_strided.default", "aten.new_empty_strided.default",
    "aten.zero.default",
)  # fmt: skip
def zeros(b: Build, *args: Argument, **_: Argument) -> str:
    """Return zeros; also for uninitialized memory."""
    del args
    return _full(b, "false" if b.result.dtype.kind == "bool" else "0")


@rule("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(b: Build, *args: Argument, **_: Argument) -> str:
    """Return ones."""
    del args
    return _full(b, "true" if b.result.dtype.kind == "bool" else "1")


@rule("aten.full.default")
def full(b: Build, size: Argument, fill_value: Argument, **_: Argument) -> str:
    """Return a tensor filled with one value."""
    return _full(b, b.text(fill_value))


@rule("aten.full_like.default", "aten.fill.Scalar")
def full_like(
    b: Build, self: Argument, fill_value: Argument = None, value: Argument = None, **_: Argument
) -> str:
    """Return a tensor of the same shape filled with one value."""
    return _full(b, b.text(value if fill_value is None else fill_value))


@rule("aten.new_full.default")
def new_full(b: Build, self: Argument, size: Argument, fill_value: Argument, **_: Argument) -> str:
    """Return a tensor filled with one value."""
    return _full(b, b.text(fill_value))


@rule("aten.fill.Tensor")
def fill_tensor(b: Build, self: Argument, value: Argument) -> str:
    """Return a tensor filled with the value of a one-element tensor."""
    text = b.cast(b.text(value), b.dtype_of(value), b.result.dtype)
    return f"expand({text}, {size_texts(b.shape)})"


@rule("aten.scalar_tensor.default")
def scalar_tensor(b: Build, s: Argument, **_: Argument) -> str:
    """Return a number as a 0-d tensor."""
    return _full(b, b.text(s))


@rule("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(
    b: Build,
    start: Argument = None,
    end: Argument = None,
    step: Argument = 1,
    **_: Argument,
) -> str:
    """Return evenly spaced numbers, as many as the result has."""
    first = start
    if end is None or b.node.target == "aten.arange.default":
        first, step = 0, 1
    counts = first == 0 and step == 1
    if counts or (type(first) is int and first >= 0 and type(step) is int and step > 0):
        b.natural.add(b.node.results[0].name)
    more = "" if counts else f", {b.text(first)}, {b.text(step)}"
    kind = b.result.dtype
    dtype = "" if kind.name == "i64" else f", dtype={kind}"
    return f"iota({b.shape[0]}{more}{dtype})"
