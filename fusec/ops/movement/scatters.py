"""Writing at positions in an integer tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Operand, Type
from fusec.ir.op import Cost, Infer
from fusec.ir.roles import Combine
from fusec.ops import texts
from fusec.ops.declare import Array, Axis, composite, operation
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.movement import links
from fusec.ops.movement.indexing import (
    ELEMENTS,
    SLICES,
    checked,
    fits_inside,
    require_index,
    same_rank,
)
from fusec.ops.shapes import described, mismatch, require_rank, tensor_shape

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _computes(operands: Operands, result: DType) -> tuple[DType, ...]:
    return (result.compute, dtype_of(operands[1]), result.compute)


def _require_type(name: str, operands: Operands) -> None:
    """Raise FusecError unless the source has the tensor's type, or is a scalar that converts."""
    own, source = dtype_of(operands[0]), dtype_of(operands[2])
    if operands[2].type.shape is None:
        if source.is_float and not own.is_float:
            raise FusecError(f"`{name}` of a float into {own}", notes=[described(operands)])
    elif source != own:
        raise FusecError(
            f"`{name}` of {source} into {own}", notes=[described(operands)], help="cast the source"
        )


def _refuse_rows(name: str, operands: Operands, axis: int) -> None:
    """Raise FusecError for a 1-dim index with a source of whole slices; suggest another call."""
    arg, index, source = (operand.type.shape or () for operand in operands[:3])
    if len(arg) < 2 or len(index) != 1 or len(source) != len(arg):
        return
    keys = ", ".join(":" if place == axis else "none" for place in range(len(arg)))
    sizes = ", ".join(map(str, source))
    text = f"{name}({{arg}}, expand({{index}}[{keys}], [{sizes}]), {{src}}, {axis})"
    why = "an index has the rank of the tensor"
    if name == "scatter_add":
        text = f"index_add({{arg}}, {{index}}, {{src}}, {axis})"
        why = "`index_add` adds slices at a 1-dim index"
    raise FusecError(
        f"`{name}`: the index has 1 dim, the tensor {len(arg)}",
        notes=[described(operands)],
        help=f"{why}, and an entry for each slice of the source along dim {axis}",
        instead=Instead(text, why=why) if index[0] == source[axis] else None,
    )


def _scattered(name: str) -> Infer:
    def infer(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
        require_index(name, operands[1], "index")
        _refuse_rows(name, operands, attributes["dim"])
        rank = same_rank(name, operands, attributes["dim"])
        _require_type(name, operands)
        fits_inside(name, operands, attributes["dim"], 0, 1)
        if operands[2].type.shape is not None:
            require_rank(name, operands[2], rank, "the index")
            fits_inside(name, operands, -1, 2, 1)
        return (Type(dtype_of(operands[0]), operands[0].shape),)

    return infer


def _places(name: str, arg: Array, index: Array, dim: int) -> tuple[Any, ...]:
    """Return NumPy's index of the elements written, in the shape of the index."""
    array, chosen = np.asarray(arg), checked(name, index, np.shape(arg)[dim])
    for axis, (small, large) in enumerate(zip(chosen.shape, array.shape, strict=True)):
        if axis != dim and small > large:
            raise FusecError(
                f"`{name}`: an index of shape {list(chosen.shape)} exceeds {list(array.shape)} in "
                f"a dim other than {dim}"
            )
    places = list(np.ogrid[tuple(slice(e) for e in chosen.shape)])
    places[dim] = chosen
    return tuple(places)


def _written(name: str, src: Array, index: Array) -> Array:
    """Return the part of the source that an index covers: its first elements in every dim."""
    source, shape = np.asarray(src), np.shape(index)
    if not source.ndim:
        return np.broadcast_to(source, shape)
    part = source[tuple(slice(e) for e in shape)]
    if part.shape != shape:
        raise FusecError(
            f"`{name}`: an index of shape {list(shape)} exceeds a source of {list(source.shape)}"
        )
    return part


@operation(
    "scatter", infer=_scattered("scatter"), compute=_computes, cost=Cost(1), accuracy=0.0,
    links=links.link_other_axes, lookup=ELEMENTS,
    text=texts.SCATTER, fills="src",
)  # fmt: skip
def scatter(arg: Array, index: Array, src: Array, dim: Axis) -> Array:
    """Return `arg` with src[i, j] at [i, index[i, j]], the index in place of `dim`.

    For colliding indices, the last element along `dim` is written. The source may be a number. An
    index out of bounds is an error in the reference and with --check-bounds, else undefined.
    """
    result = np.array(arg)
    places, source = _places("scatter", arg, index, dim), _written("scatter", src, index)
    wide = [np.moveaxis(np.broadcast_to(p, source.shape), dim, 0) for p in (*places, source)]
    # One slice along `dim` at a time: indices within it do not collide.
    for *part, values in zip(*wide, strict=True):
        result[tuple(part)] = values
    return result


@operation(
    "scatter", infer=_scattered("scatter_add"), compute=_computes, cost=Cost(2),
    combine=Combine.SUM, links=links.link_other_axes, lookup=ELEMENTS,
    text=texts.SCATTER_ADD,
)  # fmt: skip
def scatter_add(
    arg: Array, index: Array, src: Array, dim: Axis, deterministic: bool = True
) -> Array:
    """Return `arg` with src[i, j] added at [i, index[i, j]], the index in place of `dim`.

    Sums are taken in source order and are bitwise reproducible; with
    deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
    error in the reference and with --check-bounds, else undefined.
    """
    result = np.array(arg)
    places, source = _places("scatter_add", arg, index, dim), _written("scatter_add", src, index)
    np.add.at(result, places, source)
    return result


def _rows(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    arg, index, src = (o.shape for o in operands)
    axis = attributes["dim"]
    for k, (left, right) in enumerate(zip(arg, src, strict=False)):
        if k != axis:
            yield left, right
    if index and axis < len(src):
        yield index[0], src[axis]


def _infer_index_add(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    name = "index_add"
    shape, index = tensor_shape(name, operands[0]), tensor_shape(name, operands[1])
    require_index(name, operands[1], "index")
    _require_type(name, operands)
    if len(index) != 1:
        raise FusecError(
            f"the index of `{name}` has {len(index)} dims, expected 1", notes=[described(operands)]
        )
    require_rank(name, operands[2], len(shape), "the tensor")
    for left, right in _rows(operands, attributes):
        if left != right:
            raise mismatch(name, left, right, "extents of the source must agree", operands)
    return (Type(dtype_of(operands[0]), shape),)


@operation(
    "scatter", infer=_infer_index_add, compute=_computes, equal=_rows, cost=Cost(2),
    combine=Combine.SUM, links=links.link_other_axes, lookup=SLICES,
    text=texts.SCATTER_ADD,
)  # fmt: skip
def index_add(arg: Array, index: Array, src: Array, dim: Axis, deterministic: bool = True) -> Array:
    """Return `arg` with slice i of the source added to its slice index[i] along `dim`.

    Sums are taken in source order and are bitwise reproducible; with
    deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
    error in the reference and with --check-bounds, else undefined.
    """
    result = np.array(arg)
    chosen = checked("index_add", index, result.shape[dim])
    np.add.at(result, (*(slice(None),) * dim, chosen), src)
    return result


def _expand_index_put(
    builder: GraphBuilder, arg: Operand, index: Operand, value: Operand, deterministic: bool
) -> Operand:
    """Drop dims of extent 1 after the first one of the index, which broadcast over a row."""
    shape = tensor_shape("index_put_accumulate", index)
    if len(shape) > 1:
        index = builder.apply("squeeze", index, dims=list(range(1, len(shape))))
    return builder.apply("index_add", arg, index, value, dim=0, deterministic=deterministic)


@composite(expand=_expand_index_put)
def index_put_accumulate(
    arg: Array, index: Array, value: Array, deterministic: bool = True
) -> Array:
    """Return `arg` with row i of `value` added to its row index[i]; the index is [N] or [N, 1].

    As `index_add` along dim 0.
    """
    result = np.array(arg)
    chosen = checked("index_put_accumulate", index, result.shape[0])
    np.add.at(result, np.reshape(chosen, -1), value)
    return result
