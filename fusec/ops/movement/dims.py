"""Operations on dims by PyTorch's names, composed of reshapes and permutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusec.codes.shapes import EXTENTS_DIFFER
from fusec.diagnostics import FusecError, Instead, Unsupported
from fusec.ir.dim import Call, Dim, dim, floordiv, mod, product
from fusec.ir.graph import Operand
from fusec.ops.builder.size_operands import with_constants
from fusec.ops.builder.wording import equating, multiple, multiple_help
from fusec.ops.declare import Array, Axis, Ints, Shape, Size, composite
from fusec.ops.lazy import np
from fusec.ops.shapes import described, normal_axes, normal_axis, tensor_shape, text

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder


def _expand_unsqueeze(builder: GraphBuilder, arg: Operand, dim: int) -> Operand:
    rank = len(tensor_shape("unsqueeze", arg))
    place = normal_axis("unsqueeze", dim, rank + 1)
    return builder.apply("broadcast", arg, is_broadcast_dim=[k == place for k in range(rank + 1)])


@composite(expand=_expand_unsqueeze)
def unsqueeze(arg: Array, dim: int) -> Array:
    """Insert a dim of extent 1 at `dim` of the result."""
    return np.expand_dims(arg, dim)


def _expand_transpose(builder: GraphBuilder, arg: Operand, dim0: int, dim1: int) -> Operand:
    order = list(range(len(tensor_shape("transpose", arg))))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return builder.apply("permute", arg, dims=order)


@composite(expand=_expand_transpose)
def transpose(arg: Array, dim0: Axis, dim1: Axis) -> Array:
    """Transpose two dims."""
    return np.swapaxes(arg, dim0, dim1)


def _expand_movedim(
    builder: GraphBuilder, arg: Operand, source: Sequence[int], destination: Sequence[int]
) -> Operand:
    rank = len(tensor_shape("movedim", arg))
    if len(source) != len(destination):
        raise FusecError(
            f"`movedim`: {len(source)} dims to {len(destination)} positions",
            notes=[described([arg])],
        )
    moved = dict(
        zip(
            normal_axes("movedim", destination, rank, "destination"),
            normal_axes("movedim", source, rank, "source"),
            strict=True,
        )
    )
    rest = iter(k for k in range(rank) if k not in moved.values())
    order = [moved[k] if k in moved else next(rest) for k in range(rank)]
    return builder.apply("permute", arg, dims=order)


@composite(expand=_expand_movedim)
def movedim(arg: Array, source: Ints, destination: Ints) -> Array:
    """Move dims to new positions; the others keep their order."""
    return np.moveaxis(arg, tuple(source), tuple(destination))


def _expand_flatten(builder: GraphBuilder, arg: Operand, start_dim: int, end_dim: int) -> Operand:
    shape = tensor_shape("flatten", arg)
    if not shape:
        return builder.apply("reshape", arg, new_shape=[1])
    first = normal_axis("flatten", start_dim, len(shape))
    last = normal_axis("flatten", end_dim, len(shape))
    if first > last:
        raise FusecError(f"`flatten` from dim {first} to {last}", notes=[described([arg])])
    joined = [*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]]
    return builder.apply("reshape", arg, new_shape=joined)


@composite(expand=_expand_flatten)
def flatten(arg: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Flatten the dims from `start_dim` to `end_dim` (inclusive) into one."""
    shape = np.shape(arg) or (1,)
    last = end_dim % len(shape)
    return np.reshape(arg, (*shape[: start_dim % len(shape)], -1, *shape[last + 1 :]))


def _expand_unflatten(
    builder: GraphBuilder, arg: Operand, dim: int, sizes: Sequence[Dim]
) -> Operand:
    shape, known = tensor_shape("unflatten", arg), product(s for s in sizes if s != -1)
    parts = [builder.bindings.size(floordiv(shape[dim], known)) if s == -1 else s for s in sizes]
    try:
        return builder.apply("reshape", arg, new_shape=[*shape[:dim], *parts, *shape[dim + 1 :]])
    except FusecError as error:
        constant = [k for k, s in enumerate(sizes) if s.is_const]
        same = known.evaluate(builder.hints) == shape[dim].evaluate(builder.hints)
        if -1 in sizes or not same or not constant or shape[dim].is_const:
            raise
        texts = ["-1" if k == constant[-1] else str(s) for k, s in enumerate(sizes)]
        why = f"{known} equals {shape[dim]} only at the default sizes"
        instead = Instead(arguments={"sizes": f"[{', '.join(texts)}]"}, why=why)
        raise error.changed(instead=instead, operation="") from None


@composite(expand=_expand_unflatten)
def unflatten(arg: Array, dim: Axis, sizes: Shape) -> Array:
    """Split a dim into several; one of `sizes` may be -1."""
    shape, axis = np.shape(arg), dim % np.ndim(arg)
    return np.reshape(arg, (*shape[:axis], *sizes, *shape[axis + 1 :]))


def _expand_stack(builder: GraphBuilder, *tensors: Operand, dim: int) -> Operand:
    for operand in tensors[1:]:
        shapes = [tensor_shape("stack", o) for o in (tensors[0], operand)]
        if shapes[0] != shapes[1] and not _may_unify(builder, *shapes):
            pairs = zip(*shapes, strict=False)
            found = (equating(builder.dims, one, other) for one, other in pairs if one != other)
            raise FusecError(
                f"`stack` takes tensors of one shape: {text(shapes[0])} and {text(shapes[1])} "
                "differ",
                notes=[described(tensors)],
                help=_of_slices((*shapes[0], *shapes[1]), builder)
                or next((fact.text(builder.words) for fact in found if fact), None)
                or "`cat` joins tensors along a dim that they have; `expand` broadcasts one",
                code=EXTENTS_DIFFER,
            )
    return builder.apply("cat", [builder.apply("unsqueeze", t, dim=dim) for t in tensors], dim=dim)


def _of_slices(extents: Sequence[Dim], builder: GraphBuilder) -> str | None:
    """Return how to declare dims so that `x[:R]` of D elements has R; None for other extents."""
    hints = builder.hints
    calls = [atom for extent in extents for atom in extent.atoms() if isinstance(atom, Call)]
    for call in calls:
        sides = (call.left, call.right)
        if call.function == "min" and hints.keys() >= {*map(str, sides)}:
            part, whole = sorted(sides, key=lambda side: side.evaluate(hints))
            spare = next(n for n in ("P", "R", "P_2", "P_3") if n not in hints)
            more = whole.evaluate(hints) - part.evaluate(hints)
            longer = builder.words.sum(str(whole), part, spare, more)
            why = f"a slice has min({part}, {whole}) elements, as dims are dynamic"
            return f"{why}: where {whole} is never less, {longer}"
    return None


def _may_unify(builder: GraphBuilder, left: Sequence[Dim], right: Sequence[Dim]) -> bool:
    """Return whether two shapes are equal after unifying their anonymous sizes."""
    pairs = zip(left, right, strict=False)
    return len(left) == len(right) and all([builder.bindings.unify(a, b) for a, b in pairs])


@composite(expand=_expand_stack)
def stack(*tensors: Array, dim: int = 0) -> Array:
    """Concatenate tensors of one shape along a new dim."""
    return np.stack(tensors, axis=dim)


def _sliced(builder: GraphBuilder, arg: Operand, axis: int, start: Dim, end: Dim) -> Operand:
    starts, ends = [dim(0)] * len(arg.shape), list(arg.shape)
    starts[axis], ends[axis] = start, end
    return builder.apply("slice", arg, start_indices=starts, end_indices=ends)


def _expand_narrow(
    builder: GraphBuilder, arg: Operand, dim: int, start: Dim, length: Dim
) -> Operand:
    extent = tensor_shape("narrow", arg)[dim]
    if start.is_const and start.value < 0:
        start = extent + start
    end = start + length
    beyond = end.is_const and extent.is_const and end.value > extent.value
    if beyond or (length.is_const and length.value < 0):
        raise FusecError(
            f"`narrow` from {start} by {length} leaves the extent {extent}",
            notes=[described([arg])],
        )
    return _sliced(builder, arg, dim, start, end)


@composite(expand=_expand_narrow)
def narrow(arg: Array, dim: Axis, start: Size, length: Size) -> Array:
    """Return `length` elements along `dim` from `start`."""
    first = start % np.shape(arg)[dim] if start < 0 else start
    return np.take(arg, range(first, first + length), axis=dim)


def _parts(
    builder: GraphBuilder, arg: Operand, axis: int, lengths: Sequence[Dim]
) -> tuple[Operand, ...]:
    """Return slices of the given lengths, one after another."""
    parts: list[Operand] = []
    start = dim(0)
    for length in lengths:
        parts.append(_sliced(builder, arg, axis, start, start + length))
        start = builder.bindings.size(start + length)
    return tuple(parts)


def _expand_split(
    builder: GraphBuilder, arg: Operand, split_size: Sequence[Dim], dim: int
) -> tuple[Operand, ...]:
    extent = tensor_shape("split", arg)[dim]
    negative = [size for size in split_size if size.is_const and size.value < 0]
    if negative or not split_size:
        raise FusecError(
            f"`split` into parts of {negative[0] if negative else 'no sizes'}",
            notes=[described([arg])],
        )
    if len(split_size) == 1:
        try:
            lengths = _equal_parts("split", builder, extent, split_size[0])
        except FusecError as error:
            raise _in_chunks(error, builder, extent, split_size[0], dim) from None
        return _parts(builder, arg, dim, lengths)
    total = builder.bindings.size(sum(split_size, start=split_size[0] * 0))
    if total != extent:
        default = extent.evaluate(builder.hints)
        size = f"{extent}" if extent.is_const else f"{extent}, {default} by default"
        first = builder.bindings.size(sum(split_size[:-1], start=split_size[0] * 0))
        rest = extent - first
        instead, count = None, len(split_size)
        whole = multiple(builder.dims, extent, count)
        if len(set(split_size)) == 1 and (whole is not None or default % count == 0):
            exact = (
                extent.is_const or builder.bindings.size(floordiv(extent, count)) * count == extent
            )
            instead = Instead(
                f"chunk({{arg}}, {count}, {dim})",
                why="equal parts are chunks",
                declares=None if exact else whole,
                also="" if exact or whole is None else whole.text(builder.words),
            )
        elif rest.evaluate(builder.hints) >= 0:
            parts = f"[{', '.join(map(str, [*split_size[:-1], rest]))}]"
            instead = Instead(arguments={"split_size": parts}, why="the last part is the rest")
        raise FusecError(
            f"`split`: the parts add up to {total}, and dim {dim} is {size}",
            notes=[described([arg])],
            instead=instead,
        )
    return _parts(builder, arg, dim, split_size)


def _equal_parts(name: str, builder: GraphBuilder, extent: Dim, length: Dim) -> list[Dim]:
    """Return the lengths of the parts of an extent; the last part may be shorter."""
    if extent.is_const and length.is_const and length.value > 0:
        whole, rest = divmod(extent.value, length.value)
        return [length] * whole + [dim(rest)] * (rest > 0)
    count = extent.divide(length)
    if count is None or not count.is_const or count.value < 1:
        raise Unsupported(
            f"`{name}` of an extent {extent} by {length}: the number of parts is not a constant",
            help=f"`chunk(x, n, dim)` splits into n parts; or write slices, or declare the dim "
            f"`{extent}` as a multiple of a named part",
        )
    return [length] * count.value


def _in_chunks(
    error: FusecError, builder: GraphBuilder, extent: Dim, length: Dim, axis: int
) -> FusecError:
    """Return the error of a split, suggesting the equivalent chunks at the default sizes."""
    whole, part = extent.evaluate(builder.hints), length.evaluate(builder.hints)
    if part < 1 or whole % part:
        return error
    count = whole // part
    declared = multiple(builder.dims, extent, count)
    exact = builder.bindings.size(floordiv(extent, count)) * count == extent
    instead = Instead(
        f"chunk({{arg}}, {count}, {axis})",
        why=f"{part} is {extent} // {count} at the default sizes",
        declares=None if exact else declared,
        also="" if exact or declared is None else declared.text(builder.words),
    )
    return error.changed(instead=instead)


@composite(expand=_expand_split, many=True)
def split(arg: Array, split_size: Shape, dim: Axis = 0) -> Array:
    """Split a tensor along `dim` into parts of one size, or of the sizes listed.

    There are as many results as parts; the last of parts of one size may be shorter.
    """
    sizes = list(split_size)
    if len(sizes) == 1:
        extent = np.shape(arg)[dim]
        places = range(sizes[0], extent, sizes[0])
    else:
        places = np.cumsum(sizes)[:-1]
    return tuple(np.split(arg, places, axis=dim))


def _expand_chunk(
    builder: GraphBuilder, arg: Operand, chunks: Dim, dim: int
) -> tuple[Operand, ...]:
    extent, count = tensor_shape("chunk", arg)[dim], with_constants(builder, chunks)
    if not count.is_const or count.value < 1:
        raise FusecError(f"`chunk` into {count}", help="the number of chunks is an integer above 0")
    if extent.is_const:
        length = -(-extent.value // count.value)
        return _parts(builder, arg, dim, _equal_parts("chunk", builder, extent, _dim(length)))
    length = builder.bindings.size(floordiv(extent, count.value))
    if length * count.value != extent:
        raise FusecError(
            f"`chunk` into {count.value}: {extent} is not known to be a multiple of it",
            notes=[described([arg])],
            help=multiple_help(builder.words, builder.dims, extent, count.value),
        )
    return _parts(builder, arg, dim, [length] * count.value)


def _dim(value: int) -> Dim:
    return dim(max(value, 1))


@composite(expand=_expand_chunk, many=True)
def chunk(arg: Array, chunks: Size, dim: Axis = 0) -> Array:
    """Split a tensor along `dim` into `chunks` equal parts, one result each.

    A number that is not a multiple of `chunks` gives a shorter last part, and may give fewer parts.
    """
    extent = np.shape(arg)[dim]
    length = max(-(-extent // chunks), 1)
    return tuple(np.split(arg, range(length, extent, length), axis=dim))


def _expand_unbind(builder: GraphBuilder, arg: Operand, dim: int) -> tuple[Operand, ...]:
    extent = tensor_shape("unbind", arg)[dim]
    if not extent.is_const:
        raise Unsupported(
            f"`unbind` of an extent {extent}: the number of results is not a constant",
            help="`select(x, index, dim)` is one of them; declare the extent as a number",
        )
    return tuple(builder.apply("select", arg, k, dim=dim) for k in range(extent.value))


@composite(expand=_expand_unbind, many=True)
def unbind(arg: Array, dim: Axis = 0) -> Array:
    """Return all slices along `dim`, without that dim, one result each."""
    return tuple(np.moveaxis(arg, dim, 0))


def _expand_roll(
    builder: GraphBuilder, arg: Operand, shifts: Sequence[int], dims: Sequence[int]
) -> Operand:
    shape = tensor_shape("roll", arg)
    if len(shifts) != len(dims):
        raise FusecError(
            f"`roll`: {len(shifts)} shifts for {len(dims)} dims",
            notes=[described([arg])],
            help="name a dim for each shift; without dims PyTorch rolls the flattened tensor",
        )
    axes = normal_axes("roll", dims, len(shape))
    for shift, axis in zip(shifts, axes, strict=True):
        extent = shape[axis]
        turned = dim(shift)
        if extent.is_const and extent != 0:
            turned = dim(shift % extent.value)
        elif abs(shift) > 1:
            turned = mod(dim(shift), extent)
        if turned == 0 or extent == 0:
            continue
        cut = -turned if turned == -1 else extent - turned
        ends = [_sliced(builder, arg, axis, cut, extent), _sliced(builder, arg, axis, dim(0), cut)]
        arg = builder.apply("cat", ends, dim=axis)
    return arg


@composite(expand=_expand_roll)
def roll(arg: Array, shifts: Ints, dims: Ints) -> Array:
    """Shift elements along dims; elements shifted past the end wrap to the front."""
    return np.roll(arg, tuple(shifts), tuple(dims))


def _expand_repeat_interleave(
    builder: GraphBuilder, arg: Operand, repeats: Dim, dim: int
) -> Operand:
    shape = tensor_shape("repeat_interleave", arg)
    around = [*shape[: dim + 1], repeats, *shape[dim + 1 :]]
    places = [k for k in range(len(around)) if k != dim + 1]
    wide = builder.apply("broadcast_in_dim", arg, shape=around, broadcast_dims=places)
    result = [*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]]
    return builder.apply("reshape", wide, new_shape=result)


@composite(expand=_expand_repeat_interleave)
def repeat_interleave(arg: Array, repeats: Size, dim: Axis) -> Array:
    """Repeat each element along `dim` consecutively."""
    return np.repeat(arg, repeats, axis=dim)
