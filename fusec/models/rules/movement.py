"""Slices, copies and views, whose form depends on the shapes of operands and results."""

from __future__ import annotations

from fusec.ir.dim import Dim
from fusec.models.graph import Argument, Ref
from fusec.models.rules.build import Build, as_dim, axes_of, axis_of, rule, size_texts


@rule(
    "aten.alias.default", "aten.detach.default", "aten.clone.default", "aten.contiguous.default",
    "aten.lift_fresh_copy.default", "aten.detach_.default", "aten.to.dtype",
    "aten.to.dtype_layout", "aten.to.device", "aten.to.other", "aten._to_copy.default",
    "aten.type_as.default", "prims.convert_element_type.default", "aten.positive.default",
    "aten.resolve_conj.default", "aten.resolve_neg.default",
    "prims.device_put.default", "aten.to.prim_Device",
)  # fmt: skip
def convert(b: Build, self: Argument = None, a: Argument = None, **_: Argument) -> str:
    """Return a tensor converted to the type of the result."""
    source = a if self is None else self
    return b.cast(b.text(source), b.dtype_of(source), b.result.dtype)


@rule("aten._conj.default")
def conjugate(b: Build, self: Argument) -> str:
    """Return the complex conjugate, which is a lazy bit of PyTorch's tensors."""
    text = b.text(self)
    return f"complex(real({text}), -imag({text}))"


@rule(
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default",
    "aten.flatten.using_ints", "aten.unflatten.int", "aten.view_copy.default",
    "aten._reshape_alias.default", "aten.reshape_as.default", "aten.view_as.default",
    "aten.squeeze.default",
)  # fmt: skip
def reshape(b: Build, self: Argument, *args: Argument, **_: Argument) -> str:
    """Reshape to the shape of the result."""
    del args
    if b.shape_of(self) == b.shape:
        return b.text(self)
    return f"reshape({b.text(self)}, {size_texts(b.shape)})"


@rule("aten.view.dtype")
def view_as_type(b: Build, self: Argument, dtype: Argument) -> str:
    raise b.unsupported("it reads bits as another type", "convert them where the model is traced")


@rule("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default")
def expand(b: Build, self: Argument, *args: Argument, **_: Argument) -> str:
    """Expand to the shape of the result."""
    del args
    if b.shape_of(self) == b.shape:
        return b.text(self)
    return f"expand({b.text(self)}, {size_texts(b.shape)})"


@rule("aten.copy.default")
def copy(b: Build, self: Argument, src: Argument, non_blocking: Argument = False) -> str:
    """Return the source with the shape and type of the target."""
    text = b.cast(b.text(src), b.dtype_of(src), b.result.dtype)
    return text if b.shape_of(src) == b.shape else f"expand({text}, {size_texts(b.shape)})"


@rule("aten.slice.Tensor")
def take_slice(
    b: Build,
    self: Argument,
    dim: int = 0,
    start: Argument = None,
    end: Argument = None,
    step: Argument = 1,
) -> str:
    """Return a slice; bounds are clipped as in Python."""
    shape = b.shape_of(self)
    axis = axis_of(dim, len(shape))
    stride = b.integer(step, "step")
    length = b.shape[axis]
    if length == shape[axis] and stride == 1:
        return b.text(self)
    first = _start(b, start, shape[axis])
    if stride == 1:
        return f"narrow({b.text(self)}, {axis}, {first}, {length})"
    starts, steps = ["0"] * len(shape), ["1"] * len(shape)
    ends = [str(s) for s in shape]
    starts[axis], steps[axis] = str(first), str(stride)
    ends[axis] = str(first + (length - 1) * stride + 1)
    lists = (f"[{', '.join(words)}]" for words in (starts, ends, steps))
    return f"slice({b.text(self)}, {', '.join(lists)})"


def _start(b: Build, start: Argument, extent: Dim) -> Dim:
    """Return the start of a slice, counted from the front."""
    if isinstance(start, Ref):
        raise b.unsupported("a bound of the slice depends on data")
    first = as_dim(0 if start is None else start)
    if first.is_const and first.value < 0:
        first = first + extent
        return as_dim(max(first.value, 0)) if first.is_const else first
    if first.is_const and extent.is_const:
        return as_dim(min(first.value, extent.value))
    return first


@rule("aten.select.int", "aten.select_copy.int")
def select(b: Build, self: Argument, dim: int, index: Argument) -> str:
    """Return one slice without its dim."""
    return f"select({b.text(self)}, {b.text(index)}, {axis_of(dim, len(b.shape_of(self)))})"


@rule("aten.slice_scatter.default")
def slice_scatter(
    b: Build,
    self: Argument,
    src: Argument,
    dim: int = 0,
    start: Argument = None,
    end: Argument = None,
    step: Argument = 1,
) -> str:
    """Return a tensor with a slice replaced."""
    shape, part = b.shape_of(self), b.shape_of(src)
    axis, stride = axis_of(dim, len(shape)), b.integer(step, "step")
    source = b.cast(b.text(src), b.dtype_of(src), b.result.dtype)
    if part == shape and stride == 1:
        return source
    first = _start(b, start, shape[axis])
    if stride == 1:
        starts = ["0"] * len(shape)
        starts[axis] = str(first)
        return f"update_slice({b.text(self)}, {source}, [{', '.join(starts)}])"
    # Each element checks whether it is in the slice, and reads its replacement.
    ahead = b.let(f"arange({shape[axis]}) - {_factor(first)}", "offset")
    count = part[axis]
    place = f"clamp(floor_divide({ahead}, {stride}), 0, {count - 1})"
    read = b.let(f"index_select({source}, {place}, {axis})", "source")
    is_in = f"({ahead} >= 0) & ({ahead} < {_factor(count * stride)}) & "
    mask = b.let(f"{is_in}(remainder({ahead}, {stride}) == 0)", "mask")
    sides = [str(shape[axis]) if k == axis else "1" for k in range(len(shape))]
    return f"where(reshape({mask}, [{', '.join(sides)}]), {read}, {b.text(self)})"


def _factor(size: Dim) -> str:
    return str(size) if size.is_const else f"({size})"


@rule("aten.select_scatter.default")
def select_scatter(b: Build, self: Argument, src: Argument, dim: int, index: Argument) -> str:
    """Return a tensor with one slice replaced."""
    shape = b.shape_of(self)
    axis = axis_of(dim, len(shape))
    starts = ["0"] * len(shape)
    starts[axis] = str(_start(b, index, shape[axis]))
    source = b.cast(b.text(src), b.dtype_of(src), b.result.dtype)
    return f"update_slice({b.text(self)}, unsqueeze({source}, {axis}), [{', '.join(starts)}])"


@rule("aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(b: Build, self: Argument, dim: Argument) -> str:
    """Drop dims of extent 1; others stay, as in PyTorch."""
    shape = b.shape_of(self)
    axes = [d for d in axes_of(dim, len(shape)) if shape[d] == as_dim(1)]
    return f"squeeze({b.text(self)}, {axes})" if axes else b.text(self)


@rule("aten.diff.default")
def diff(
    b: Build,
    self: Argument,
    n: Argument = 1,
    dim: int = -1,
    prepend: Argument = None,
    append: Argument = None,
) -> str:
    """Return the differences of adjacent elements along a dim."""
    shape = b.shape_of(self)
    axis = axis_of(dim, len(shape))
    parts = [a for a in (prepend, self, append) if a is not None]
    length = sum((b.shape_of(p)[axis] for p in parts), as_dim(0))
    whole = b.text(self)
    if len(parts) > 1:
        whole = b.let(f"cat([{', '.join(map(b.text, parts))}], {axis})", "whole")
    is_bool = b.dtype_of(self).kind == "bool"
    for k in range(b.integer(n, "n")):
        length = length - 1
        left, right = (f"narrow({whole}, {axis}, {at}, {length})" for at in (0, 1))
        whole = b.let(f"{right} ^ {left}" if is_bool else f"{right} - {left}", f"order{k + 1}")
    return whole
