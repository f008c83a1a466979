"""Reading at positions in an integer tensor: gathers, selects and embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fusec.diagnostics import FusecError, Instead, Unsupported
from fusec.ir.access import sample
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Const, Node, Operand, Type
from fusec.ir.roles import Lookup
from fusec.ops import texts
from fusec.ops.declare import Array, Axis, computes_in_own, operation
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.literals import literal
from fusec.ops.movement import access, links
from fusec.ops.shapes import broadcast_extents, described, mismatch, tensor_shape
from fusec.ops.table import TABLE

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _along_dim(node: Node) -> Dim:
    axis: int = node.attributes["dim"]
    return node.operands[0].shape[axis]


def _rows(node: Node) -> Dim:
    return node.operands[1].shape[0]


ELEMENTS = Lookup(1, 0, _along_dim)
"""An index of elements along `dim`."""
SLICES = Lookup(1, 0, _along_dim, slices=True)
ROWS = Lookup(0, 1, _rows, slices=True)


def require_index(name: str, index: Operand, param: str = "", other: Operand | None = None) -> None:
    """Raise FusecError unless an index holds integers.

    param: the parameter that it is passed for. other: the tensor that it indexes, which may have
    been passed in its place.
    """
    if not dtype_of(index).is_integer:
        instead = Instead(arguments={param: f"cast({{{param}}}, i64)"}) if param else None
        if param and other is not None and dtype_of(other).is_integer:
            tensor = TABLE[name].operands[0 if param != TABLE[name].operands[0].name else 1].name
            why = f"`{name}` takes ({', '.join(p.name for p in TABLE[name].params[:3])})"
            swapped = {param: f"{{{tensor}}}", tensor: f"{{{param}}}"}
            instead = Instead(arguments=swapped, why=why)
        raise FusecError(
            f"the index of `{name}` must be integers, got {dtype_of(index)}",
            notes=[described([index])],
            help="cast it to i64",
            instead=instead,
        )


def checked(name: str, index: Array, extent: int) -> Array:
    """Return an index as i64; FusecError names the first one outside 0 to extent - 1."""
    array = np.asarray(index)
    outside = (array < 0) | (array >= extent)
    if np.any(outside):
        place = tuple(int(i) for i in np.argwhere(outside)[0])
        what = f"index {int(array[place])}" + (f" at {list(place)}" if place else "")
        raise FusecError(
            f"`{name}`: {what} is out of bounds for an extent of {extent}",
            help=f"expected 0 to {extent - 1}" if extent else "the tensor has no elements",
        )
    return array.astype(np.int64)


def same_rank(name: str, operands: Operands, axis: int) -> int:
    """Return the rank that a tensor and its index along `axis` share."""
    rank, other = (len(tensor_shape(name, o)) for o in operands[:2])
    if rank != other:
        raise FusecError(
            f"`{name}`: the index has {other} dims, the tensor {rank}",
            notes=[described(operands)],
            help="index and tensor have one rank; `index_select` takes a 1-dim index",
            instead=_as_column(name, operands, axis) if other == rank - 1 else None,
        )
    return rank


def _as_column(name: str, operands: Operands, axis: int) -> Instead | None:
    """Return the call with an index for each row of the tensor, if the index has one per row."""
    tensor, index = operands[0].shape, operands[1].shape
    if any(o.shape for o in operands[2:]):
        return None  # a source in the shape of the index
    if (*tensor[:axis], *tensor[axis + 1 :]) != tuple(index):
        return None
    why = f"`{name}` takes an index of the tensor's rank"
    return Instead(arguments={"index": f"unsqueeze({{index}}, {axis})"}, why=why)


def _as_subscript(axis: int) -> Instead:
    """Return an index of several dims as a subscript, as in files and scripts."""
    keys = ":, " * axis
    return Instead(f"{{arg}}[{keys}{{index}}]", why="a subscript takes an index of any rank")


def fits_inside(name: str, operands: Operands, axis: int, outer: int, inner: int) -> None:
    """Raise FusecError if `inner` has a larger constant extent than `outer` except at `axis`."""
    pairs = zip(operands[inner].shape, operands[outer].shape, strict=True)
    for position, (small, large) in enumerate(pairs):
        if position != axis and small.is_const and large.is_const and small.value > large.value:
            raise FusecError(
                f"`{name}`: extent {small} of dim {position} of `{_label(operands[inner])}`"
                f" exceeds {large} of `{_label(operands[outer])}`",
                notes=[described(operands)],
            )


def _label(operand: Operand) -> str:
    return getattr(operand, "name", "the literal")


def _infer_index_select(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    name, axis = "index_select", attributes["dim"]
    shape, index = tensor_shape(name, operands[0]), tensor_shape(name, operands[1])
    require_index(name, operands[1], "index", operands[0])
    if len(index) > 1:
        raise FusecError(
            f"the index of `{name}` has {len(index)} dims, expected at most 1",
            notes=[described(operands)],
            help="`x[i]` takes an index of any rank, `take_along_axis` and `gather` one of the "
            "tensor's rank",
            instead=_as_subscript(axis),
        )
    count = index[0] if index else dim(1)
    return (Type(dtype_of(operands[0]), (*shape[:axis], count, *shape[axis + 1 :])),)


@operation(
    "indexing", infer=_infer_index_select, compute=computes_in_own, accuracy=0.0,
    access=access.INDEX_SELECT, samples=sample("f32[2, 2]", "i64[3]", dim=1),
    links=links.index_select, lookup=SLICES,
    text=texts.INDEX_SELECT,
)  # fmt: skip
def index_select(arg: Array, index: Array, dim: Axis) -> Array:
    """Return the slices of `arg` along `dim` selected by a 1-dim, non-negative index.

    An index out of bounds is an error in the reference and with --check-bounds, else undefined.
    """
    array = np.asarray(arg)
    places = np.reshape(checked("index_select", index, array.shape[dim]), -1)
    return np.take(array, places, axis=dim)


def _prepare_select(builder: Any, slots: list[list[Operand] | None], given: Attributes) -> None:
    """Count a negative literal from the front."""
    tensor, index = slots[0], slots[1]
    if tensor is None or index is None or not isinstance(index[0], Const):
        return
    require_index("select", index[0])
    axis: int = given["dim"]
    position, extent = int(index[0].value.real), tensor[0].shape[axis]
    if extent.is_const and not -extent.value <= position < extent.value:
        raise FusecError(
            f"`select`: index {position} is out of bounds for dim {axis} of extent {extent}",
            notes=[described(tensor)],
            help=f"elements are numbered from 0: the last one is {extent.value - 1}"
            if extent.value
            else "the dim has no elements",
        )
    if position < 0:
        size = builder.apply("size", tensor[0], dim=axis)
        index[0] = builder.apply("add", size, position)
        if extent.is_const:
            index[0] = literal(extent.value + position)


def _infer_select(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    axis: int = attributes["dim"]
    shape, index = tensor_shape("select", operands[0]), operands[1]
    require_index("select", index)
    if index.shape:
        raise FusecError(
            "the index of `select` must be a scalar or a 0-dim tensor",
            notes=[described(operands)],
            help="`index_select` takes a 1-dim index",
        )
    place, extent = index.type.dim, shape[axis]
    if place is not None and not place.is_const and place.at_least(extent):
        raise FusecError(
            f"`select`: index {place} is out of bounds for dim {axis} of extent {extent}",
            notes=[described(operands)],
            help=f"elements are numbered from 0: the last one is {extent - 1}",
        )
    return (Type(dtype_of(operands[0]), (*shape[:axis], *shape[axis + 1 :])),)


@operation(
    "indexing", infer=_infer_select, compute=computes_in_own, prepare=_prepare_select,
    accuracy=0.0, access=access.SELECT, samples=sample("f32[2, 3]", "i64", dim=0),
    links=links.select, lookup=SLICES,
    text=texts.SELECT,
)  # fmt: skip
def select(arg: Array, index: Array, dim: Axis) -> Array:
    """Return one slice of `arg` along `dim`, without that dim; a literal may be negative.

    An index out of bounds is an error; of a 0-dim tensor only in the reference and with
    --check-bounds, else it is undefined.
    """
    array = np.asarray(arg)
    return np.take(array, int(checked("select", index, array.shape[dim])), axis=dim)


def _infer_gather(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    require_index("gather", operands[1], "index", operands[0])
    same_rank("gather", operands, attributes["dim"])
    fits_inside("gather", operands, attributes["dim"], 0, 1)
    return (Type(dtype_of(operands[0]), operands[1].shape),)


@operation(
    "indexing", infer=_infer_gather, compute=computes_in_own, accuracy=0.0,
    access=access.GATHER, samples=sample("f32[2, 3]", "i64[2, 2]", dim=1),
    links=links.link_other_axes, lookup=ELEMENTS,
    text=texts.GATHER,
)  # fmt: skip
def gather(arg: Array, index: Array, dim: Axis) -> Array:
    """Return, in the shape of the index, arg[i, index[i, j], ...] with the index in place of `dim`.

    In other dims the index may be smaller than `arg`, and then reads its first elements.
    An index out of bounds is an error in the reference and with --check-bounds, else undefined.
    """
    array, places = np.asarray(arg), checked("gather", index, np.shape(arg)[dim])
    within = array[tuple(slice(None if k == dim else e) for k, e in enumerate(places.shape))]
    if within.shape != _with(places.shape, dim, within.shape[dim]):
        raise FusecError(
            f"`gather`: an index of shape {list(places.shape)} exceeds {list(array.shape)} in a "
            f"dim other than {dim}"
        )
    return np.take_along_axis(within, places, axis=dim)


def _link_other_axes(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    pairs = zip(operands[0].shape, operands[1].shape, strict=False)
    for axis, (left, right) in enumerate(pairs):
        if axis != attributes["dim"] and left != 1 and right != 1:
            yield left, right


def _infer_take(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    name, axis = "take_along_axis", attributes["dim"]
    require_index(name, operands[1], "index", operands[0])
    rank = same_rank(name, operands, attributes["dim"])
    for left, right in _link_other_axes(operands, attributes):
        if left != right:
            raise mismatch(
                name, left, right, f"extents of all dims except {axis} must agree", operands
            )
    shape, index = operands[0].shape, operands[1].shape
    extents = (
        index[k] if k == axis else broadcast_extents(name, [shape[k], index[k]], operands)
        for k in range(rank)
    )
    return (Type(dtype_of(operands[0]), tuple(extents)),)


@operation(
    "indexing", infer=_infer_take, compute=computes_in_own, equal=_link_other_axes, accuracy=0.0,
    access=access.GATHER, samples=sample("f32[2, 3]", "i64[2, 2]", dim=1),
    links=links.link_other_axes, lookup=ELEMENTS,
    text=texts.TAKE_ALONG_AXIS,
)  # fmt: skip
def take_along_axis(arg: Array, index: Array, dim: Axis) -> Array:
    """Return arg[i, index[i, j], ...] with the index in place of `dim`.

    Extents of other dims are equal, or 1 and broadcast.
    An index out of bounds is an error in the reference and with --check-bounds, else undefined.
    """
    array, places = np.asarray(arg), checked("take_along_axis", index, np.shape(arg)[dim])
    outer = np.broadcast_shapes(_with(array.shape, dim, 1), _with(places.shape, dim, 1))
    wide = np.broadcast_to(array, _with(outer, dim, array.shape[dim]))
    return np.take_along_axis(
        wide, np.broadcast_to(places, _with(outer, dim, places.shape[dim])), axis=dim
    )


def _with(shape: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _prepare_embedding(builder: Any, slots: list[list[Operand] | None], given: Attributes) -> None:
    if slots[3] is not None:
        raise Unsupported(
            "`embedding_fwd` with max_norm: it rescales rows of the weight in place",
            help="clip the norms of the rows before the embedding",
        )
    # The others only affect the backward: nodes that differ in nothing else are equal.
    slots[2:] = [None] * len(slots[2:])


def _infer_embedding(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    index, weight = (tensor_shape("embedding_fwd", o) for o in operands)
    require_index("embedding_fwd", operands[0], "input", operands[1])
    if len(weight) != 2:
        raise FusecError(
            f"the weight of `embedding_fwd` has {len(weight)} dims, expected [rows, columns]",
            notes=[described(operands)],
        )
    return (Type(dtype_of(operands[1]), (*index, weight[1])),)


@operation(
    "indexing", infer=_infer_embedding, compute=computes_in_own, prepare=_prepare_embedding,
    accuracy=0.0, access=access.EMBEDDING, samples=sample("i64[2, 2]", "f32[3, 2]"),
    links=links.embedding, lookup=ROWS,
)  # fmt: skip
def embedding_fwd(
    input: Array,
    weight: Array,
    padding_idx: Array | None = None,
    max_norm: Array | None = None,
    norm_type: Array | None = None,
    scale_grad_by_freq: Array | None = None,
    sparse: Array | None = None,
) -> Array:
    """Return the rows of the weight selected by the input; backward-only options are ignored.

    An index out of bounds is an error in the reference and with --check-bounds, else undefined.
    """
    table = np.asarray(weight)
    return table[checked("embedding_fwd", input, table.shape[0])]
