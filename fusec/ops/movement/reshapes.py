"""Reshape and permute: the same elements in another shape or order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from fusec.codes.shapes import ELEMENTS_DIFFER, RANK
from fusec.diagnostics import FusecError, Instead
from fusec.ir.access import sample
from fusec.ir.dim import Call, Dim, dim, floordiv, product
from fusec.ir.graph import Operand, Type
from fusec.ops import texts
from fusec.ops.builder.wording import multiple_help, multiple_of
from fusec.ops.declare import Array, Ints, Shape, movement
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.movement import access, links
from fusec.ops.shapes import described, normal_axes, require_rank, tensor_shape, text

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _canonical_reshape(operands: Operands, attributes: Attributes) -> Attributes:
    shape: tuple[Dim, ...] = attributes["new_shape"]
    unknown = [i for i, extent in enumerate(shape) if extent == -1]
    if not unknown:
        return {}
    if len(unknown) > 1:
        raise FusecError(f"`reshape`: only one extent of {text(shape)} may be -1")
    total = product(tensor_shape("reshape", operands[0]))
    rest = product(extent for extent in shape if extent != -1)
    if rest == 0:
        raise FusecError(f"`reshape`: the -1 in {text(shape)} is ambiguous, as another extent is 0")
    if total.is_const and rest.is_const and total.value % rest.value:
        raise _sizes_differ(operands, shape)
    at = unknown[0]
    return {"new_shape": (*shape[:at], floordiv(total, rest), *shape[at + 1 :])}


def _sizes_differ(
    operands: Operands, shape: tuple[Dim, ...], sizes: Mapping[str, int] | None = None
) -> FusecError:
    """Return the error for a changed number of elements, with the numbers if sizes are known."""
    before, after = product(operands[0].shape), product(shape)
    notes = [described(operands), f"{before} elements, not {after}"]
    if sizes is not None and before.evaluate(sizes) != after.evaluate(sizes):
        told = [f"{name} is {sizes[name]}" for name in sorted(before.symbols ^ after.symbols)]
        counts = f"{before.evaluate(sizes)} elements, not {after.evaluate(sizes)}"
        notes += [f"by default {' and '.join(told)}: {counts}"] if told else []
    if sizes is None or _may_be_inferred(before, shape, sizes):
        notes.append("an extent of -1 is inferred")
    return FusecError(
        f"`reshape` to {text(shape)} changes the number of elements",
        notes=notes,
        code=ELEMENTS_DIFFER,
    )


def _may_be_inferred(total: Dim, shape: tuple[Dim, ...], sizes: Mapping[str, int]) -> bool:
    """Return whether one number of a shape may be replaced by -1."""
    extents = [extent.evaluate(sizes) for extent in shape]
    rest = (prod(extents[:k] + extents[k + 1 :]) for k, e in enumerate(shape) if e.is_const)
    return any(size > 0 and total.evaluate(sizes) % size == 0 for size in rest)


def _infer_reshape(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    shape: tuple[Dim, ...] = attributes["new_shape"]
    before, after = product(tensor_shape("reshape", operands[0])), product(shape)
    if any(e.is_const and e.value < 0 for e in shape):
        raise FusecError(f"`reshape` to {text(shape)}: extents are at least 0")
    if before != after and not _may_agree(before, after):
        raise _sizes_differ(operands, shape)
    return (Type(dtype_of(operands[0]), shape),)


def _check_elements(
    builder: GraphBuilder, slots: Sequence[list[Operand] | None], attributes: Attributes
) -> None:
    """Raise FusecError for a changed number of elements at the default sizes.

    Sizes without a default, as a `-1` of a script, are checked when they are known.
    """
    ((arg,),) = (slot or [] for slot in slots)
    shape: tuple[Dim, ...] = attributes["new_shape"]
    before, after = product(tensor_shape("reshape", arg)), product(shape)
    named = builder.dims
    if before == after or not (before.symbols | after.symbols) <= named.keys():
        return
    sizes = builder.hints
    if not _may_agree(before, after):
        raise _sizes_differ((arg,), shape, sizes)
    if before.evaluate(sizes) == after.evaluate(sizes):
        return
    rounded = (a for size in (after, before) for a in size.atoms() if isinstance(a, Call))
    remainders = (
        (a.left, a.right, divisor)
        for a in rounded
        if a.function == "floordiv"
        and (divisor := a.right.evaluate(sizes))
        and a.left.evaluate(sizes) % divisor
    )
    left, right, divisor = next(remainders, (None, None, 0))
    cause = f"{before.evaluate(sizes)} elements, not {after.evaluate(sizes)}, at default sizes"
    help = None
    if left is not None and right is not None:
        by = f"{divisor}" if right.is_const else f"{right}, {divisor}"
        cause = f"{left} is {left.evaluate(sizes)}, not a multiple of {by}"
        if right.is_const:
            help = multiple_help(builder.words, named, left, divisor, already_reported=True)
        elif declared := multiple_of(named, left, right):
            help = declared.text(builder.words)
    raise FusecError(
        f"`reshape` to {text(shape)}: {cause}",
        notes=[described([arg])],
        help=help,
        cause=cause,
        code=ELEMENTS_DIFFER,
    )


def _may_agree(before: Dim, after: Dim) -> bool:
    """Return whether symbolic element counts may be equal at run time.

    Integer divisions (`//`) do not cancel in the normal form: `N // 4 * 4` is N for a multiple of 4
    only.
    """
    if before.is_const and after.is_const:
        return False
    return any("//" in str(size) for size in (before, after))


@movement(
    infer=_infer_reshape, canonical=_canonical_reshape, access=access.RESHAPE,
    samples=sample("f32[2, 3]", new_shape=(dim(3), dim(2))),
    links=links.reshape, extents="new_shape", prepare=_check_elements,
    text=texts.RESHAPE,
)  # fmt: skip
def reshape(arg: Array, new_shape: Shape) -> Array:
    """Return the same elements in row-major order in another shape; one extent may be -1."""
    return np.reshape(arg, tuple(new_shape))


def _canonical_permute(operands: Operands, attributes: Attributes) -> Attributes:
    rank = len(tensor_shape("permute", operands[0]))
    return {"dims": normal_axes("permute", attributes["dims"], rank)}


def _infer_permute(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    order: tuple[int, ...] = attributes["dims"]
    shape = tensor_shape("permute", operands[0])
    left = [axis for axis in range(len(shape)) if axis not in order]
    if left and len(order) < len(shape):
        dims = f"dim {left[0]} is" if len(left) == 1 else f"dims {', '.join(map(str, left))} are"
        raise FusecError(
            f"dims of `permute` has {len(order)} entries for {len(shape)} dims",
            notes=[described(operands)],
            instead=Instead(arguments={"dims": str([*order, *left])}, why=f"{dims} not listed"),
            code=RANK,
        )
    require_rank("permute", operands[0], len(order), "dims")
    return (Type(dtype_of(operands[0]), tuple(shape[axis] for axis in order)),)


@movement(
    infer=_infer_permute,
    canonical=_canonical_permute,
    access=access.PERMUTE,
    samples=sample("f32[1, 2, 3]", dims=(2, 0, 1)),
    text=texts.PERMUTE,
)
def permute(arg: Array, dims: Ints) -> Array:
    """Reorder dims: dim i of the result is dim `dims[i]` of the operand."""
    return np.transpose(arg, tuple(dims))


def _infer_same(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    return (operands[0].type,)


@movement(
    infer=_infer_same, access=access.SET, samples=sample("f32[2, 3]"), copies=True, text=texts.SET
)
def set_(arg: Array) -> Array:
    """Copy the operand."""
    return arg


@movement(
    infer=_infer_same,
    access=access.SEGMENT_SET,
    samples=sample("f32[2, 3]"),
    copies=True,
    ends_segment=True,
    text=texts.SEGMENT_SET,
)
def segment_set(arg: Array) -> Array:
    """Copy the operand and force a segment boundary between producer and consumers."""
    return arg
