"""Matmul, linear and other contractions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Dim, Shape, product
from fusec.ir.graph import Operand, Type
from fusec.ir.roles import Product
from fusec.ops import texts
from fusec.ops.declare import Array, contraction
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.movement import links
from fusec.ops.shapes import broadcast_extents, described, mismatch, tensor_shape
from fusec.ops.table import TABLE

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _require_one_type(name: str, operands: Operands) -> None:
    first = dtype_of(operands[0])
    if first.kind == "bool":
        raise FusecError(f"`{name}` of bools", help="cast the operands first")
    if any(dtype_of(o) != first for o in operands):
        raise FusecError(
            f"operands of `{name}` differ in type",
            notes=[described(operands)],
            help="cast them to one type first",
            instead=_in_one_type(name, operands),
        )


def _in_one_type(name: str, operands: Operands) -> Instead | None:
    """Return the call with its operands in the type of the first; None if that is not a float."""
    first = dtype_of(operands[0])
    params = [p.name for p in TABLE[name].operands]
    other = [(p, o) for p, o in zip(params, operands, strict=False) if dtype_of(o) != first]
    if not first.is_rounded:
        return None
    return Instead(arguments={p: f"cast({{{p}}}, {first})" for p, _ in other})


def _with_heads_moved(left: Shape, right: Shape) -> str | None:
    """Return the matmul with the heads of one operand moved before its rows.

    Heads follow the rows in [B, S, N, E]. None if no such matmul fits, or if the batch dims of the
    operands already fit.
    """
    if min(len(left), len(right)) < 3 or _is_one_batch(left, right):
        return None
    for (a, rows), (b, columns) in (
        (("transpose({a}, -3, -2)", _transposed(left, -3, -2)), ("{b}", right)),
        (("{a}", left), ("transpose({b}, -3, -2)", _transposed(right, -3, -2))),
    ):
        if not _is_one_batch(rows, columns):
            continue
        if rows[-1] == columns[-2]:
            return f"{a} @ {b}"
        if rows[-1] == columns[-1]:
            return f"{a} @ transpose({b}, -2, -1)"
    return None


def _transposed(shape: Shape, first: int, second: int) -> Shape:
    """Return a shape with two of its dims swapped."""
    sizes = [*shape]
    sizes[first], sizes[second] = sizes[second], sizes[first]
    return tuple(sizes)


def _is_one_batch(left: Shape, right: Shape) -> bool:
    """Return whether the dims before the matrices broadcast."""
    pairs = zip(reversed(left[:-2]), reversed(right[:-2]), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def _product_instead(a: Operand, b: Operand) -> Instead:
    """Return the GEMM that was probably meant for operands whose summed extents differ."""
    left, right = a.shape, b.shape
    why = "`a @ b` sums over the last dim of `a` and the last but one of `b`"
    if len(left) > 2 and len(right) == 2 and right == (left[0], left[-1]):
        return Instead("{a} @ unsqueeze({b}, -1)", why=why)
    if (moved := _with_heads_moved(left, right)) is not None:
        return Instead(moved, why=why)
    if len(right) > 1 and left[-1:] == right[-1:]:
        return Instead("{a} @ transpose({b}, -2, -1)", why=why)
    if len(left) > 1 and left[-2] == right[-2 if len(right) > 1 else 0]:
        return Instead("transpose({a}, -2, -1) @ {b}", why=why)
    return Instead(why=why)


def _rows(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    left, right = operands[0].shape, operands[1].shape
    if left and right:
        yield left[-1], right[-2 if len(right) > 1 else 0]
        for a, b in zip(reversed(left[:-2]), reversed(right[:-2]), strict=False):
            if a != 1 and b != 1:
                yield a, b


def _infer_matmul(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    left, right = (tensor_shape("matmul", o) for o in operands)
    _require_one_type("matmul", operands)
    if not left or not right:
        raise FusecError("`matmul` of a 0-dim tensor", notes=[described(operands)])
    inner, rows = left[-1], right[-2 if len(right) > 1 else 0]
    if inner != rows:
        instead, why = _product_instead(*operands), "the summed extents must agree"
        help, known = instead.why, instead if instead.text else None
        raise mismatch("matmul", inner, rows, why, operands, help, known)
    outer = [left[:-2], right[:-2]]
    rank = max(len(s) for s in outer)
    batch = tuple(
        broadcast_extents("matmul", [s[axis] for s in outer if len(s) >= -axis], operands)
        for axis in range(-rank, 0)
    )
    m = left[-2:-1]
    n = right[-1:] if len(right) > 1 else ()
    return (Type(dtype_of(operands[0]), (*batch, *m, *n)),)


@contraction(
    infer=_infer_matmul,
    equal=_rows,
    product=Product(),
    links=links.matmul,
    text=texts.PRODUCT,
)
def matmul(a: Array, b: Array) -> Array:
    """Multiply matrices; leading dims are a batch and broadcast, 1-dim operands are vectors."""
    return np.matmul(a, b)


def _features(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    x, weight = operands[0].shape, operands[1].shape
    if x and weight:
        yield x[-1], weight[-1]
        if len(operands) > 2 and operands[2].shape and len(weight) > 1:
            yield operands[2].shape[0], weight[0]


_WEIGHT = "`linear` takes a weight [out, in]"


def _check_bias(operands: Operands) -> None:
    """Raise FusecError unless the bias has the dims of the weight except K."""
    weight, bias = operands[1].shape, operands[2].shape
    if len(bias) != len(weight) - 1:
        swapped = Instead("linear({x}, {bias}, {weight})", why="the weight comes before the bias")
        raise FusecError(
            f"the bias of `linear` must have {len(weight) - 1} dims",
            notes=[described(operands)],
            help=_WEIGHT,
            instead=swapped if len(weight) == 1 and len(bias) == 2 else None,
        )


def _check_features(operands: Operands) -> None:
    """Raise FusecError unless the weight fits the features of x, and the bias the weight."""
    x, weight = operands[0].shape, operands[1].shape
    if x[-1:] != weight[-1:]:
        instead = None
        if len(weight) == 2 and x[-1:] == weight[:1]:
            sum = "{x} @ {weight}" + (" + {bias}" if len(operands) > 2 else "")
            instead = Instead(sum, why=_WEIGHT)
        why, help = "features of x and the weight must agree", f"{_WEIGHT}, and x [..., in]"
        raise mismatch("linear", x[-1], weight[-1], why, operands, help, instead)
    if len(operands) > 2 and len(weight) > 1 and operands[2].shape[0] != weight[0]:
        have, rows = operands[2].shape[0], weight[0]
        help = f"{_WEIGHT} and a bias [out], here [{rows}]"
        raise mismatch("linear", have, rows, "the bias must have a number for each row of the "
                       "weight", operands, help)  # fmt: skip


def _merge_weight_dims(
    builder: GraphBuilder, slots: Sequence[Sequence[Operand] | None], attributes: Attributes
) -> tuple[Operand, ...] | None:
    """Return x[*B, K] times weight[*L, N, K] as [*L, *B, N], computed as one GEMM of all rows.

    None if the weight has no dims before N.
    """
    given = [slot[0] for slot in slots if slot is not None]
    x, weight = (tensor_shape("linear", o) for o in given[:2])
    if not x or len(weight) < 3:
        return None
    *leading, rows, inner = weight
    if len(given) > 2:
        _check_bias(tuple(given))
        if given[2].shape != weight[:-1]:
            raise FusecError(
                "the bias of `linear` must have the dims of the weight except K",
                notes=[described(given)],
            )
    merged = product((*leading, rows))
    shapes = ((merged, inner), (merged,))
    flat = [
        builder.apply("reshape", o, new_shape=list(shape))
        for o, shape in zip(given[1:], shapes, strict=False)
    ]
    columns = builder.apply("linear", given[0], *flat)
    batch = len(x) - 1
    split = builder.apply("reshape", columns, new_shape=[*x[:-1], *leading, rows])
    order = [*range(batch, batch + len(leading)), *range(batch), batch + len(leading)]
    return (builder.apply("permute", split, dims=order),)


def _infer_linear(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    x, weight, *bias = (tensor_shape("linear", o) for o in operands)
    _require_one_type("linear", operands)
    if not x or len(weight) not in (1, 2):
        raise FusecError(
            "`linear` needs x[..., K] and weight[..., N, K] or weight[K]",
            notes=[described(operands)],
        )
    if bias:
        _check_bias(operands)
    _check_features(operands)
    return (Type(dtype_of(operands[0]), (*x[:-1], *weight[:-1])),)


@contraction(
    infer=_infer_linear,
    equal=_features,
    instead=_merge_weight_dims,
    product=Product(transposed=True, bias=2),
    links=links.linear,
    text=texts.PRODUCT,
)
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Multiply x by the transposed weight, and add the bias.

    Of weight[*L, N, K] the dims *L come first in the result: [*L, *B, N] for x[*B, K]. Files refuse
    such a weight.
    """
    product = np.matmul(x, np.swapaxes(weight, -1, -2) if np.ndim(weight) > 1 else weight)
    return product if bias is None else product + bias
