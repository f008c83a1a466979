"""Shape rules shared by the families, with errors that name operands, axes and ranges."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.codes.shapes import AXIS_RANGE, AXIS_TWICE, EXTENTS_DIFFER, NO_BROADCAST, RANK
from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Call, Dim, Shape, shape_text
from fusec.ir.graph import Operand, Value


class Unequal(FusecError):
    """Operands whose extents differ but must be equal or 1."""


def described(operands: Sequence[Operand]) -> str:
    """Return `x is bf16[B, H], w is bf16[K]`."""
    return ", ".join(
        f"{o.name if isinstance(o, Value) else repr(o.value)} is {o.type}" for o in operands
    )


_RESHAPE = "reshape, or declare both with one dim"
_EQUAL_PARTS = (
    f"{_RESHAPE}; `D // 2` and `D - D // 2` are equal if D is declared with `multiple_of: 2`"
)
_COMPUTED = (
    "a slice has no more elements than its tensor: where that is never shorter, declare its extent "
    "as that of the slice plus another dim"
)


def broadcast_extents(name: str, extents: Sequence[Dim], operands: Sequence[Operand]) -> Dim:
    """Return the extent to which extents broadcast: the one that is not literally 1."""
    wide = [e for e in extents if e != 1]
    if not wide:
        return extents[0]
    for other in wide[1:]:
        if other != wide[0]:
            functions = {
                a.function for e in (wide[0], other) for a in e.atoms() if isinstance(a, Call)
            }
            raise Unequal(
                f"operands of `{name}` do not broadcast",
                notes=[described(operands), f"{wide[0]} and {other} differ"],
                facts=[f"{wide[0]} and {other} differ"],
                help="extents must be equal or literally 1; "
                + (_COMPUTED if "min" in functions else _EQUAL_PARTS if functions else _RESHAPE),
                code=NO_BROADCAST,
            )
    return wide[0]


def broadcast_shape(name: str, operands: Sequence[Operand]) -> Shape | None:
    """Return an elementwise result's shape, ranks aligned at the end; None if all are scalars."""
    shapes = [o.type.shape for o in operands if o.type.shape is not None]
    if not shapes:
        return None
    rank = max(len(s) for s in shapes)
    return tuple(
        broadcast_extents(name, [s[axis] for s in shapes if len(s) >= -axis], operands)
        for axis in range(-rank, 0)
    )


def same_rank_shape(name: str, operands: Sequence[Operand]) -> Shape | None:
    """Return the shape of an elementwise result whose tensor operands all have its rank."""
    ranks = {len(o.type.shape) for o in operands if o.type.shape is not None}
    if len(ranks) > 1:
        raise Unequal(
            f"operands of `{name}` differ in rank",
            notes=[described(operands)],
            help="write a broadcast_in_dim",
            code=NO_BROADCAST,
        )
    return broadcast_shape(name, operands)


def tensor_shape(name: str, operand: Operand) -> Shape:
    """Return the shape of an operand that must be a tensor."""
    if operand.type.shape is None:
        raise FusecError(f"`{name}` needs a tensor", notes=[described([operand])])
    return operand.type.shape


def normal_axis(name: str, axis: int, rank: int, what: str = "dim") -> int:
    """Return `axis` counted from the front; FusecError if it is out of range."""
    if not -rank <= axis < rank:
        span = "a 0-dim tensor has none" if rank == 0 else f"expected {-rank} to {rank - 1}"
        message = f"{what} {axis} of `{name}` is out of range: {span}"
        raise FusecError(message, about="axis", code=AXIS_RANGE)
    return axis % rank


def normal_axes(name: str, axes: Sequence[int], rank: int, what: str = "dim") -> tuple[int, ...]:
    """Return axes counted from the front, in the given order; FusecError for duplicates."""
    once = f"`{name}` of {rank} dim{'s' * (rank > 1)} takes each of 0 to {rank - 1} once"
    try:
        normal = tuple(normal_axis(name, axis, rank, what) for axis in axes)
    except FusecError as error:
        raise (error.changed(help=once) if 0 < rank < len(axes) else error) from None
    for axis in normal:
        if normal.count(axis) > 1:
            raise FusecError(
                f"{what} {axis} of `{name}` is specified twice",
                help=once,
                code=AXIS_TWICE,
            )
    return normal


def without_axes(shape: Shape, axes: Sequence[int]) -> Shape:
    """Return the shape without some axes."""
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def require_rank(name: str, operand: Operand, count: int, what: str) -> Shape:
    """Return the operand's shape, which must have as many dims as `what` has entries."""
    shape = tensor_shape(name, operand)
    if len(shape) != count:
        raise FusecError(
            f"{what} of `{name}` has {count} entries for {len(shape)} dims",
            notes=[described([operand])],
            code=RANK,
        )
    return shape


def mismatch(
    name: str,
    left: Dim,
    right: Dim,
    why: str,
    operands: Sequence[Operand],
    help: str | None = None,
    instead: Instead | None = None,
) -> FusecError:
    """Return the error of two extents that must be equal."""
    message, notes = f"`{name}`: {why}: {left} and {right} differ", [described(operands)]
    return FusecError(message, notes=notes, help=help, code=EXTENTS_DIFFER, instead=instead)


def text(shape: Shape) -> str:
    """Return a shape as `[B, H]`."""
    return shape_text(shape)
