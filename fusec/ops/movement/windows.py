"""Slices, pads and concatenations: windows onto larger and smaller index ranges."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any

from fusec.codes.shapes import RANK
from fusec.diagnostics import FusecError, Instead
from fusec.ir.access import sample
from fusec.ir.dim import Call, Dim, ceildiv, dim, maximum, minimum
from fusec.ir.graph import Const, Operand, Type
from fusec.ops import texts
from fusec.ops.declare import Array, Axis, Ints, Shape, movement
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.movement import access, links
from fusec.ops.shapes import described, mismatch, require_rank, tensor_shape

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _canonical_slice(operands: Operands, attributes: Attributes) -> Attributes:
    starts, ends, strides = (attributes[k] for k in ("start_indices", "end_indices", "strides"))
    shape = require_rank("slice", operands[0], len(starts), "start_indices")
    require_rank("slice", operands[0], len(ends), "end_indices")
    steps = (1,) * len(shape) if strides is None else strides
    require_rank("slice", operands[0], len(steps), "strides")
    if builtins.any(step < 1 for step in steps):
        raise FusecError(f"strides of `slice` must be at least 1, got {list(steps)}")
    manual = attributes["manual_normalization"]
    if manual and builtins.all(_lie_within(indices, shape) for indices in (starts, ends)):
        manual = False  # no guarantee needed: one form of equal slices
    if not manual:
        for axis, (start, end, extent) in enumerate(zip(starts, ends, shape, strict=True)):
            ordered = start.is_const and end.is_const and 0 <= end.value < start.value
            if ordered and not extent.is_const:
                raise FusecError(
                    f"`slice` {start}:{end} of dim {axis} ends before it begins",
                    notes=[described(operands)],
                    help=f"write the smaller first: `{end}:{start}`; `flip` reverses a dim",
                )
        starts = tuple(_inside(s, e) for s, e in zip(starts, shape, strict=True))
        ends = tuple(_inside(s, e) for s, e in zip(ends, shape, strict=True))
    return {"start_indices": starts, "end_indices": ends, "strides": steps,
            "manual_normalization": manual}  # fmt: skip


def _lie_within(indices: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Return whether indices are constants from 0 to the extent."""
    return builtins.all(
        i.is_const and i.value >= 0 and _at_most(i, e) for i, e in zip(indices, shape, strict=True)
    )


def _inside(index: Dim, extent: Dim) -> Dim:
    """Return an index counted from the front and clamped to the range from 0 to the extent."""
    if index.is_const and index.value < 0:
        index = maximum(extent + index, 0)
    elif dim(0).at_least(index) and index != 0:
        raise FusecError(
            f"`slice` up to or from {index}, which is 0 or negative",
            help=f"counted from the start that is {extent + index}",
        )
    return index if _at_most(index, extent) else minimum(index, extent)


def _at_most(size: Dim, limit: Dim) -> bool:
    """Return whether `size` is provably at most `limit`; a // c counts as at most a / c."""
    if limit.at_least(size):
        return True
    divisors = [_divisor(m[0]) for m, c in size.terms if len(m) == 1 and c > 0]
    scale = math.lcm(*(d for d in divisors if d))
    total = dim(0)
    for monomial, coefficient in size.terms:
        single = monomial[0] if len(monomial) == 1 and coefficient > 0 else None
        by = _divisor(single) if single is not None else 0
        if by and isinstance(single, Call):
            total = total + single.left * (coefficient * (scale // by))
        else:
            total = total + Dim(((monomial, coefficient * scale),))
    return (limit * scale).at_least(total)


def _divisor(atom: Any) -> int:
    """Return the positive constant divisor of an integer division, or 0 for other atoms."""
    if isinstance(atom, Call) and atom.function == "floordiv" and atom.right.is_const:
        return builtins.max(atom.right.value, 0)
    return 0


def _infer_slice(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    shape = require_rank("slice", operands[0], len(attributes["strides"]), "strides")
    extents: list[Dim] = []
    for axis, (start, end, step, extent) in enumerate(
        zip(
            attributes["start_indices"],
            attributes["end_indices"],
            attributes["strides"],
            shape,
            strict=True,
        )
    ):
        if builtins.any(i.is_const and i.value < 0 for i in (start, end)) or (
            end.is_const and extent.is_const and end.value > extent.value
        ):
            raise FusecError(
                f"`slice` of dim {axis} from {start} to {end} leaves its extent {extent}",
                notes=[described(operands)],
            )
        length = end - start
        empty = length.is_const and length.value <= 0
        extents.append(dim(0) if empty else ceildiv(length, step))
    return (Type(dtype_of(operands[0]), tuple(extents)),)


@movement(
    infer=_infer_slice,
    canonical=_canonical_slice,
    access=access.SLICE,
    samples=sample(
        "f32[3, 4]", start_indices=(dim(1), dim(0)), end_indices=(dim(3), dim(4)), strides=(1, 2)
    ),
    extents="end_indices",
    text=texts.SLICE,
)
def slice(
    arg: Array,
    start_indices: Shape,
    end_indices: Shape,
    strides: Ints | None = None,
    manual_normalization: bool = False,
) -> Array:
    """Return the elements from start (inclusive) to end (exclusive) with a step, as in Python.

    With `manual_normalization` the caller guarantees 0 <= start <= end <= extent.
    """
    steps = (1,) * len(start_indices) if strides is None else strides
    index = tuple(
        builtins.slice(s, e, k) for s, e, k in zip(start_indices, end_indices, steps, strict=True)
    )
    return np.asarray(arg)[index]


def _canonical_pad(operands: Operands, attributes: Attributes) -> Attributes:
    """Return the widths of all dims: omitted dims, the first ones, get none."""
    rank = len(tensor_shape("pad", operands[0]))
    widths: tuple[Dim, ...] = attributes["pad_widths"]
    if len(widths) % 2 or len(widths) > 2 * rank:
        raise FusecError(
            f"pad_widths of `pad` holds {len(widths)} numbers: two per dim, at most {2 * rank}",
            notes=[described(operands)],
        )
    return {"pad_widths": ((dim(0),) * (2 * rank - len(widths)) + widths)}


def _infer_pad(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    widths: tuple[Dim, ...] = attributes["pad_widths"]
    if len(operands) != 2 or operands[1].type.shape is not None:
        raise FusecError("the value of `pad` must be a scalar", notes=[described(operands)])
    shape = require_rank("pad", operands[0], len(widths) // 2, "pad_widths")
    extents: list[Dim] = []
    for axis, extent in enumerate(shape):
        padded = extent + widths[2 * axis] + widths[2 * axis + 1]
        if padded.is_const and padded.value < 0:
            raise FusecError(
                f"`pad` shrinks dim {axis} to {padded}", notes=[described(operands[:1])]
            )
        extents.append(padded)
    return (Type(dtype_of(operands[0]), tuple(extents)),)


@movement(
    infer=_infer_pad,
    canonical=_canonical_pad,
    access=access.PAD,
    samples=sample("f32[3]", 0.0, pad_widths=(dim(1), dim(-1))),
    links=links.pad,
    text=texts.PAD,
    fills="value",
)
def pad(arg: Array, pad_widths: Shape, value: Array = 0) -> Array:
    """Pad with `value`: (before, after) pairs, last dim first; negative widths crop.

    The attribute of a node, and so this reference, holds a pair for every dim in order.
    """
    array = np.asarray(arg)
    pairs = [(pad_widths[2 * i], pad_widths[2 * i + 1]) for i in range(array.ndim)]
    added = [(builtins.max(low, 0), builtins.max(high, 0)) for low, high in pairs]
    shape = [e + low + high for e, (low, high) in zip(array.shape, added, strict=True)]
    padded = np.full(shape, np.asarray(value, array.dtype), array.dtype)
    inside = (builtins.slice(low, low + e) for e, (low, _) in zip(array.shape, added, strict=True))
    padded[tuple(inside)] = array
    cut = tuple(
        builtins.slice(builtins.max(-low, 0), size - builtins.max(-high, 0))
        for (low, high), size in zip(pairs, padded.shape, strict=True)
    )
    return padded[cut]


def _link_other_axes(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    first = operands[0].shape
    for operand in operands[1:]:
        for axis, (left, right) in enumerate(zip(first, operand.shape, strict=False)):
            if axis != attributes["dim"]:
                yield left, right


def _with_dim(operands: Operands, axis: int) -> Instead | None:
    """Return the call with one more dim in tensors that lack it; None if more is wrong."""
    shapes = [o.shape for o in operands]
    rank = max(map(len, shapes))
    wide = next(s for s in shapes if len(s) == rank)
    rest = (*wide[:axis], *wide[axis + 1 :])
    if any(tuple(s) not in (rest, tuple(wide)) and len(s) != rank for s in shapes):
        return _with_copies(shapes, axis) if len(shapes) == 2 else None
    items = [f"{{tensors_{k}}}" if len(s) == rank else f"unsqueeze({{tensors_{k}}}, {axis})"
             for k, s in enumerate(shapes)]  # fmt: skip
    return Instead(arguments={"tensors": f"[{', '.join(items)}]"}, why="all need the same rank")


def _with_copies(shapes: Sequence[Sequence[Dim]], axis: int) -> Instead | None:
    """Return the call with a tensor copied along a dim that only the other of two has."""
    few, many = sorted(shapes, key=len)
    from_end = axis + len(many) - len(shapes[0])
    copied = "expand(unsqueeze({{tensors_{}}}, {}), {})"
    for at, place in ((at, place) for at in (from_end, axis) for place in range(len(many))):
        filled = (*few[:place], many[place], *few[place:])
        if place == at or len(filled) != len(many) or filled[:at] != tuple(many[:at]):
            continue
        if filled[at + 1 :] == tuple(many[at + 1 :]):
            listed = f"[{', '.join(map(str, filled))}]"
            items = [
                f"{{tensors_{k}}}" if s is many else copied.format(k, place, listed)
                for k, s in enumerate(shapes)
            ]
            arguments = {"tensors": f"[{', '.join(items)}]", "dim": str(at)}
            return Instead(arguments=arguments, why=f"dim {place} is of one of them alone")
    return None


def _cat_instead(operands: Operands, axis: int) -> Instead | None:
    """Return the call along the dim in which tensors differ, or with one permuted to fit."""
    first, *others = (o.shape for o in operands)
    differing = {k for s in others for k, e in enumerate(s) if e != first[k]}
    if len(differing) == 1:
        (other,) = differing
        return Instead(arguments={"dim": str(other)}, why=f"they differ in dim {other} alone")
    if len(others) != 1 or len(first) > 4:
        return None
    for order in permutations(range(len(first))):
        turned = [others[0][k] for k in order]
        if all(turned[k] == e for k, e in enumerate(first) if k != axis):
            permuted = f"[{{tensors_0}}, permute({{tensors_1}}, {list(order)})]"
            return Instead(arguments={"tensors": permuted}, why="their dims are in another order")
    return None


def _fewest(operands: Operands) -> str:
    """Return the name of the operand that has the fewest dims."""
    least = min(operands, key=lambda o: len(o.shape))
    return "x" if isinstance(least, Const) else least.name


def _infer_cat(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    axis: int = attributes["dim"]
    first = tensor_shape("cat", operands[0])
    for operand in operands[1:]:
        if len(tensor_shape("cat", operand)) != len(first):
            raise FusecError(
                f"the tensors of `cat` have {len(first)} and {len(operand.shape)} dims",
                notes=[described(operands)],
                help=f"all need the same number: `unsqueeze({_fewest(operands)}, 0)` "
                "inserts a dim; `stack` a new one",
                code=RANK,
                instead=_with_dim(operands, axis),
            )
        if dtype_of(operand) != dtype_of(operands[0]):
            own = dtype_of(operands[0])
            items = [f"{{tensors_{k}}}" if dtype_of(o) == own else f"cast({{tensors_{k}}}, {own})"
                     for k, o in enumerate(operands)]  # fmt: skip
            raise FusecError(
                f"`cat` of {own} and {dtype_of(operand)}",
                notes=[described(operands)],
                help="cast to one type first",
                instead=Instead(arguments={"tensors": f"[{', '.join(items)}]"}),
            )
    for left, right in _link_other_axes(operands, attributes):
        if left != right:
            why = f"extents of all dims except {axis} must agree"
            raise mismatch("cat", left, right, why, operands, instead=_cat_instead(operands, axis))
    total = dim(0)
    for operand in operands:
        total = total + operand.shape[axis]
    return (Type(dtype_of(operands[0]), (*first[:axis], total, *first[axis + 1 :])),)


@movement(
    infer=_infer_cat, equal=_link_other_axes, access=access.CAT,
    samples=sample("f32[2, 1]", "f32[2, 1]", dim=1), links=links.cat, text=texts.CAT,
)  # fmt: skip
def cat(*tensors: Array, dim: Axis = 0) -> Array:
    """Concatenate tensors along `dim`."""
    return np.concatenate(tensors, axis=dim)


def _infer_update(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    name, starts = "update_slice", attributes["start_indices"]
    shape = require_rank(name, operands[0], len(starts), "start_indices")
    require_rank(name, operands[1], len(shape), "the tensor")
    if dtype_of(operands[0]) != dtype_of(operands[1]):
        raise FusecError(
            f"`{name}` of {dtype_of(operands[1])} into {dtype_of(operands[0])}",
            notes=[described(operands)],
            help="cast the source",
        )
    for axis, (start, inner, outer) in enumerate(
        zip(starts, operands[1].shape, shape, strict=True)
    ):
        if not _may_lie(start, inner, outer):
            raise FusecError(
                f"`{name}` of dim {axis} from {start} to {start + inner} leaves its extent {outer}",
                notes=[described(operands)],
            )
    return (Type(dtype_of(operands[0]), shape),)


def _may_lie(start: Dim, inner: Dim, outer: Dim) -> bool:
    """Return False if a range certainly exceeds an extent."""
    beyond = start + inner - outer
    return not (start.is_const and start.value < 0) and not (beyond.is_const and beyond.value > 0)


@movement(
    infer=_infer_update,
    access=access.UPDATE_SLICE,
    samples=sample("f32[3]", "f32[2]", start_indices=(dim(1),)),
    links=links.update_slice,
    text=texts.UPDATE_SLICE,
)
def update_slice(arg: Array, src: Array, start_indices: Shape) -> Array:
    """Return `arg` with a slice replaced by `src`, at non-negative start indices.

    The slice must be within `arg`. If the output aliases `arg`, only the slice is written.
    """
    result = np.array(arg)
    ends = tuple(s + e for s, e in zip(start_indices, np.shape(src), strict=True))
    for axis, (start, end, extent) in enumerate(
        zip(start_indices, ends, result.shape, strict=True)
    ):
        if start < 0 or end > extent:
            raise FusecError(
                f"`update_slice` of dim {axis} from {start} to {end} leaves its extent {extent}"
            )
    result[tuple(map(builtins.slice, start_indices, ends))] = src
    return result
