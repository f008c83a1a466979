"""Reads and writes at index tensors: `x[i, j]`."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.dim import Dim, dim, product
from fusec.models.graph import Argument, Ref
from fusec.models.rules.build import Build, rule, size_texts


@rule("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: Build, self: Argument, indices: Sequence[Argument]) -> str:
    """Return the elements at index tensors of adjacent dims, by their flattened index."""
    place = _Places(b, self, indices)
    flat = place.flat(b.text(self))
    read = f"index_select({flat}, {place.number}, {place.axis})"
    if len(place.index_shape) == 1:
        return read
    return f"reshape({b.let(read, 'rows')}, {size_texts(b.shape)})"


@rule("aten.embedding.default")
def embedding(b: Build, weight: Argument, indices: Argument, *args: Argument, **_: Argument) -> str:
    """Return rows of the weight; other options only affect the backward pass."""
    del args
    return f"embedding_fwd({b.text(indices)}, {b.text(weight)})"


@rule("aten.embedding_bag.padding_idx", "aten.embedding_bag.default", "aten._embedding_bag.default")
def embedding_bag(
    b: Build,
    weight: Argument,
    indices: Argument,
    offsets: Argument,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Argument = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> list[str | None]:
    """Return sums or means of rows of the weight, over the indices from each offset to the next."""
    if mode not in _BAGS:
        raise b.unsupported("it returns the largest rows", "choose the mode `sum` or `mean`")
    dtype, count = b.dtype_of(weight), b.shape_of(indices)[0]
    text, at = b.text(indices), b.dtype_of(offsets)
    before = f"arange({count}, dtype={at})"
    bag = b.let(f"sum(unsqueeze({before}, 1) >= {b.text(offsets)}, [1]) - 1", "bag")
    rows = f"embedding_fwd({text}, {b.text(weight)})"
    ones = f"full([{count}], 1, {dtype})"
    if padding_idx is not None and padding_idx >= 0:
        ones = b.let(f"cast({text} != {padding_idx}, {dtype})", "counted")
        rows = f"{rows} * unsqueeze({ones}, 1)"
    if per_sample_weights is not None:
        rows = f"{rows} * unsqueeze({b.text(per_sample_weights)}, 1)"
    found = f"index_add(full({size_texts(b.shape)}, 0, {dtype}), {bag}, {rows}, 0)"
    if _BAGS[mode] == "mean":
        sizes = f"index_add(full([{b.shape[0]}], 0, {dtype}), {bag}, {ones}, 0)"
        found = f"{found} / unsqueeze(maximum({b.let(sizes, 'sizes')}, 1), 1)"
    return [found, None, None, None]


_BAGS = {0: "sum", 1: "mean"}


@rule("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    b: Build,
    self: Argument,
    indices: Sequence[Argument],
    values: Argument,
    accumulate: bool = False,
    *args: Argument,
) -> str:
    """Return a tensor with elements replaced, or added to, at index tensors."""
    del args
    place = _Places(b, self, indices)
    shape = b.shape_of(self)
    before, after = shape[: place.axis], shape[place.axis + place.count :]
    whole = (*before, *place.index_shape, *after)
    source = b.cast(b.text(values), b.dtype_of(values), b.result.dtype)
    if b.shape_of(values) != whole:
        source = f"expand({source}, {size_texts(whole)})"
    rows = (*before, product(place.index_shape), *after)
    if rows != whole:
        source = b.let(f"reshape({source}, {size_texts(rows)})", "values")
    flat = place.flat(b.text(self))
    if accumulate:
        put = f"index_add({flat}, {place.number}, {source}, {place.axis})"
    else:
        sides = [str(rows[place.axis]) if k == place.axis else "1" for k in range(len(rows))]
        number = f"reshape({place.number}, [{', '.join(sides)}])" if len(rows) > 1 else place.number
        spread = f"expand({number}, {size_texts(rows)})" if len(rows) > 1 else number
        put = f"scatter({flat}, {spread}, {source}, {place.axis})"
    if place.count == 1:
        return put
    return f"reshape({b.let(put, 'flat')}, {size_texts(shape)})"


class _Places:
    """The flattened indices selected by index tensors of adjacent dims.

    axis: the first of these dims; count: how many; index_shape: the broadcast shape of the index
    tensors; number: the name of the flattened index, in one dim.
    """

    def __init__(self, b: Build, tensor: Argument, indices: Sequence[Argument]) -> None:
        self._b, self._shape = b, b.shape_of(tensor)
        axes = [k for k, i in enumerate(indices) if i is not None]
        if not axes or axes != list(range(axes[0], axes[-1] + 1)):
            raise b.unsupported(
                "its indices are not of neighbouring dims", "permute the tensor before it"
            )
        given = [indices[k] for k in axes]
        if any(b.dtype_of(i).kind == "bool" for i in given):
            raise b.unsupported(
                "the shape of its result depends on data (a mask as an index)",
                "keep the shape: select with `torch.where`",
            )
        self.axis, self.count = axes[0], len(axes)
        self.index_shape = _broadcast([b.shape_of(i) for i in given])
        self.number = self._number(given)

    def _number(self, given: Sequence[Argument]) -> str:
        b, text = self._b, ""
        for place, index in enumerate(given):
            extent = self._shape[self.axis + place]
            own = self._counted(index, extent)
            text = own if not text else f"{_inside(text)} * {_inside(str(extent))} + {_inside(own)}"
        total = product(self.index_shape)
        if len(given) > 1:
            text = b.let(text, "number")
        shape = _broadcast([b.shape_of(i) for i in given])
        return text if len(shape) == 1 else b.let(f"reshape({text}, [{total}])", "numbers")

    def _counted(self, index: Argument, extent: Dim) -> str:
        """Return an index counted from the front: negative ones count from the end."""
        text = self._b.text(index)
        if isinstance(index, Ref) and index.name in self._b.natural:
            return text
        return self._b.let(f"where({text} < 0, {text} + {extent}, {text})", "counted")

    def flat(self, text: str) -> str:
        """Return a tensor with the indexed dims flattened to one."""
        if self.count == 1:
            return text
        end = self.axis + self.count
        merged = product(self._shape[self.axis : end])
        shape = (*self._shape[: self.axis], merged, *self._shape[end:])
        return f"reshape({text}, {size_texts(shape)})"


def _inside(text: str) -> str:
    return text if text.replace("_", "").isalnum() else f"({text})"


def _broadcast(shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    rank = max(map(len, shapes))
    padded = [(dim(1),) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(
        next((e for e in extents if e != dim(1)), dim(1)) for extents in zip(*padded, strict=True)
    )
