"""Attention, forward and backward, composed of GEMMs and softmax.

The products of queries and keys, and of gradients and values, stay in f32, as do scale, mask and
softmax. The probabilities, the gradients of the scores and the results are rounded to the operands'
type, once each (decision 152).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fusec.codes.shapes import EXTENTS_DIFFER, NO_BROADCAST
from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Dim, Shape, symbol
from fusec.ir.dtype import F32, I32, I64, U64
from fusec.ir.graph import Const, Operand
from fusec.ops.builder.wording import multiple_of
from fusec.ops.declare import Array, composite
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.numerics import philox
from fusec.ops.numerics.precision import narrow, widen
from fusec.ops.random import generator_pair, kept_elements
from fusec.ops.shapes import described, mismatch, tensor_shape, text
from fusec.ops.table import TABLE

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]
FORWARD = ("out", "logsumexp", "philox_seed", "philox_offset")
BACKWARD = ("grad_query", "grad_key", "grad_value")
LOWEST = -math.inf


def _agreeing(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    """Return pairs of query, key and value: batches and heads, features, and rows of key, value."""
    query, key, value = (o.shape for o in operands[:3])
    for other in (key, value):
        yield from zip(query[:-2], other[:-2], strict=False)
    if query and key:
        yield query[-1], key[-1]
    if len(key) > 1 and len(value) > 1:
        yield key[-2], value[-2]


def _agreeing_backward(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    grad, query, _, value, output, lse = (o.shape for o in operands[:6])
    yield from _agreeing(operands[1:4], attributes)
    for other in (grad, output):
        yield from zip(query[:-1], other[:-1], strict=False)
        if value and other:
            yield value[-1], other[-1]
    yield from zip(query[:-1], lse, strict=False)


def _agreeing_or_grouped(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    """Return the pairs without those of heads, if heads of keys serve several of queries."""
    if not attributes["enable_gqa"]:
        yield from _agreeing(operands, attributes)
        return
    query, key, value = (o.shape for o in operands[:3])
    for other in (key, value):
        yield from zip(query[:-3], other[:-3], strict=False)
    if query and key:
        yield query[-1], key[-1]
    yield from zip(key[-3:-1], value[-3:-1], strict=False)


def _check_extents(
    builder: GraphBuilder, name: str, operands: Operands, mask: Operand | None
) -> None:
    """Raise FusecError, in terms of query, key, value and mask, unless these fit."""
    query, key, value = operands
    for param, other in (("key", key), ("value", value)):
        for axis, (left, right) in enumerate(zip(query.shape[:-2], other.shape, strict=False)):
            if left != right:
                are_heads = axis == len(query.shape) - 3
                what = f"{left} and {right} heads" if are_heads else f"batches {left} and {right}"
                why = f"query and {param} have {what} (dim {axis})"
                instead = _grouped(builder, name, operands) if are_heads else None
                help = "they are [..., heads, rows, features]"
                raise _unfit(name, why, operands, help, instead)
    if query.shape[-1] != key.shape[-1]:
        why = f"query and key have {query.shape[-1]} and {key.shape[-1]} features"
        help = "scores are products over the features: declare both with one size of features"
        raise _unfit(name, why, operands, help)
    if key.shape[-2] != value.shape[-2]:
        why = f"key and value have {key.shape[-2]} and {value.shape[-2]} rows"
        help = "each key has a value: declare both with one size of rows"
        raise _unfit(name, why, operands, help)
    if mask is not None:
        _check_mask(builder, name, mask, (*query.shape[:-1], key.shape[-2]))


def _unfit(
    name: str, why: str, operands: Operands, help: str, instead: Instead | None = None
) -> FusecError:
    return FusecError(
        f"`{name}`: {why}",
        notes=[described(operands)],
        help=help,
        code=EXTENTS_DIFFER,
        instead=instead,
    )


def _grouped(builder: GraphBuilder, name: str, operands: Operands) -> Instead | None:
    """Return the call with enable_gqa, if the heads of queries are a multiple of those of keys."""
    heads, fewer, others = (o.shape[-3] for o in operands)
    times, declared, sizes = heads.divide(fewer), None, builder.hints
    if times is None and not heads.evaluate(sizes) % max(fewer.evaluate(sizes), 1):
        declared = multiple_of(builder.dims, heads, fewer)
        times = None if declared is None else symbol(declared.spare)
    if fewer != others or times is None:
        return None
    repeated = {p: f"repeat_interleave({{{p}}}, {times}, -3)" for p in ("key", "value")}
    grouped = {"enable_gqa": "true"} if name == "scaled_dot_product_attention" else repeated
    return Instead(
        arguments=grouped,
        why="where heads of keys serve several of queries",
        declares=declared,
        also="" if declared is None else declared.text(builder.words),
    )


def _check_mask(builder: GraphBuilder, name: str, mask: Operand, scores: Shape) -> None:
    """Raise FusecError unless a mask broadcasts to the scores [..., rows, columns]."""
    shape = mask.shape
    pairs = list(zip(reversed(shape), reversed(scores), strict=False))
    if len(shape) <= len(scores) and all(
        1 in (a, b) or builder.bindings.unify(a, b) for a, b in pairs
    ):
        return
    why = f"the mask broadcasts to the scores {text(scores)}"
    instead = None
    param = "attn_mask" if name == "scaled_dot_product_attention" else "mask"
    batch, columns = scores[0], scores[-1]
    if len(shape) == 2 and len(scores) > 2 and tuple(shape) == (batch, columns):
        new = ", ".join(["none"] * (len(scores) - 2))
        instead = Instead(arguments={param: f"{{{param}}}[:, {new}, :]"}, why=why)
    elif len(shape) == 3 and len(scores) == 4 and tuple(shape) == (batch, *scores[2:]):
        instead = Instead(arguments={param: f"unsqueeze({{{param}}}, 1)"}, why=why)
    message = f"`{name}`: the mask {text(shape)} does not broadcast to the scores {text(scores)}"
    help = "a mask has their dims, or 1: for one of keys, [batch, 1, 1, columns]"
    notes = [described([mask])]
    raise FusecError(message, notes=notes, help=help, code=NO_BROADCAST, instead=instead)


def _check(name: str, operands: Operands, pairs: Iterable[tuple[Dim, Dim]]) -> None:
    ranks = {len(tensor_shape(name, o)) for o in operands}
    if len(ranks) != 1 or min(ranks) < 3:
        raise FusecError(
            f"`{name}` needs query, key and value [..., heads, rows, features] of one rank",
            notes=[described(operands)],
        )
    if len({dtype_of(o) for o in operands}) != 1 or not dtype_of(operands[0]).is_float:
        raise FusecError(
            f"`{name}` needs query, key and value of one float type", notes=[described(operands)]
        )
    for left, right in pairs:
        if left != right:
            raise mismatch(name, left, right, "extents of its operands must agree", operands)


def _transposed(builder: GraphBuilder, x: Operand) -> Operand:
    rank = len(x.shape)
    return builder.apply("permute", x, dims=[*range(rank - 2), rank - 1, rank - 2])


def _product(builder: GraphBuilder, left: Operand, right: Operand) -> Operand:
    """Return a GEMM in f32 (f64 for f64), not rounded to its operands' type."""
    return builder.apply("matmul", widen(builder, left), widen(builder, right))


def _scores(
    builder: GraphBuilder, query: Operand, key: Operand, scale: Operand | None,
    is_causal: Operand | None,
) -> Operand:  # fmt: skip
    """Return scale * query @ key^T in f32 (f64 for f64), -inf at masked positions."""
    product = _product(builder, query, _transposed(builder, key))
    scores = builder.apply("mul", product, _scale(builder, query, scale))
    if is_causal is None or (isinstance(is_causal, Const) and not is_causal.value):
        return scores
    if is_causal.type.shape is not None or dtype_of(is_causal).kind != "bool":
        raise FusecError("is_causal must be a bool", notes=[described([is_causal])])
    rows, columns = scores.shape[-2], scores.shape[-1]
    small = rows.is_const and columns.is_const and rows.value + columns.value < 2**30
    dtype = I32 if small else I64
    row = builder.apply("iota", rows, dtype=dtype)
    row = builder.apply("broadcast", row, is_broadcast_dim=[False, True])
    column = builder.apply("iota", columns, dtype=dtype)
    column = builder.apply("broadcast", column, is_broadcast_dim=[True, False])
    seen = builder.apply("le", column, row)
    if not isinstance(is_causal, Const):
        seen = builder.apply("logical_or", seen, builder.apply("logical_not", is_causal))
    return builder.apply("where", seen, scores, LOWEST)


def _masked(builder: GraphBuilder, scores: Operand, mask: Operand | None) -> Operand:
    """Return scores with a mask added, or set to minus infinity where a bool mask is false."""
    if mask is None:
        return scores
    if dtype_of(mask).kind == "bool":
        return builder.apply("where", mask, scores, LOWEST)
    return builder.apply("add", scores, mask)


def _scale(builder: GraphBuilder, query: Operand, scale: Operand | None) -> Operand | float:
    if scale is not None:
        return scale
    features = query.shape[-1]
    if features.is_const:
        return 1.0 / math.sqrt(max(features.value, 1))
    return builder.apply("rsqrt", builder.apply("size", query, dim=len(query.shape) - 1))


def _drops(p: Operand | None) -> bool:
    """Return whether a dropout has an effect: a literal 0 does not."""
    return p is not None and not (isinstance(p, Const) and p.value == 0)


def _expand_forward(
    builder: GraphBuilder, query: Operand, key: Operand, value: Operand, bias: Operand | None,
    mask: Operand | None, dropout_p: Operand | None, is_causal: Operand | None,
    scale: Operand | None,
) -> tuple[Operand, ...]:  # fmt: skip
    return _attention(
        builder, "sdpfa_fwd", (query, key, value), bias, mask, dropout_p, is_causal, scale
    )


def _attention(
    builder: GraphBuilder, name: str, operands: Operands, bias: Operand | None,
    mask: Operand | None, dropout_p: Operand | None, is_causal: Operand | None,
    scale: Operand | None,
) -> tuple[Operand, ...]:  # fmt: skip
    """Return the results of an attention; name: the operation, for errors."""
    query, key, value = operands
    _check(name, operands, ())
    _check_extents(builder, name, operands, mask)
    scores = _masked(builder, _scores(builder, query, key, scale, is_causal), mask)
    if bias is not None:
        scores = builder.apply("add", scores, bias)
    last = len(scores.shape) - 1
    largest = builder.apply("max", scores, dims=[last], keepdim=True)
    nothing: Operand | None = None
    if mask is not None or bias is not None:
        # A fully masked row is 0, not NaN.
        nothing = builder.apply("eq", largest, LOWEST)
        largest = builder.apply("where", nothing, 0.0, largest)
    powers = builder.apply("exp", builder.apply("sub", scores, largest))
    total = builder.apply("sum", powers, dims=[last], keepdim=True)
    divisor = total if nothing is None else builder.apply("where", nothing, 1.0, total)
    shares = builder.apply("div", powers, divisor)
    logsumexp = builder.apply("add", largest, builder.apply("log", total))
    logsumexp = builder.apply("squeeze", logsumexp, dims=[last])
    if scores.shape[last] == 0:  # without keys, there is no largest score, and the sum is 0
        logsumexp = builder.apply("full", logsumexp.shape, -math.inf, dtype=F32)
    if dtype_of(logsumexp) != F32:
        logsumexp = builder.apply("cast", logsumexp, dtype=F32)
    if dropout_p is None or not _drops(dropout_p):
        seed = offset = builder.apply("full", [], 0, dtype=U64)
    else:
        seed, offset = generator_pair(builder)
        kept, factor = kept_elements(builder, shares, dropout_p, seed, offset)
        scaled = builder.apply("mul", shares, factor)
        shares = builder.apply("where", kept, scaled, 0.0)
    out = builder.apply("matmul", narrow(builder, shares, query), value)
    seeds = builder.apply("broadcast_in_dim", seed, shape=[2], broadcast_dims=[])
    return out, logsumexp, seeds, offset


def _with_mask(scores: Array, mask: Array) -> Array:
    """Return scores with a mask added, or set to minus infinity where a bool mask is false."""
    is_bool = np.asarray(mask).dtype.kind == "b"
    return np.where(mask, scores, -np.inf) if is_bool else scores + mask


@composite(expand=_expand_forward, equal=_agreeing, results=FORWARD)
def sdpfa_fwd(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    dropout_p: Array | None = None,
    is_causal: Array | None = None,
    scale: Array | None = None,
) -> Array:
    """Return (softmax(scale * query @ key^T + mask) @ value, the log-sum-exp of the rows).

    A bool mask keeps scores where it is true, other masks are added; causal row i attends to keys
    up to i. Two more results are the seed [2] and the offset [] of the dropout, for the backward.
    """
    p = 0.0 if dropout_p is None else float(dropout_p)
    scores = np.matmul(query, np.swapaxes(key, -1, -2))
    scores = scores * (1 / np.sqrt(np.shape(query)[-1]) if scale is None else scale)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = _with_mask(scores, mask)
    scores = scores if bias is None else scores + bias
    largest = np.max(scores, axis=-1, keepdims=True)
    largest = np.where(np.isneginf(largest), 0.0, largest)
    powers = np.exp(scores - largest)
    total = np.sum(powers, axis=-1, keepdims=True)
    shares = powers / np.where(total == 0, 1.0, total)
    if p:
        random_text = philox.uniforms(0, 0, shares.size, double=False).reshape(shares.shape)
        shares = np.where(random_text < 1 - p, shares / (1 - p), 0.0)
    seeds = np.zeros(2, np.uint64), np.zeros((), np.uint64)
    return np.matmul(shares, value), (largest + np.log(total))[..., 0], *seeds


def _expand_scaled_dot_product_attention(
    builder: GraphBuilder, query: Operand, key: Operand, value: Operand,
    attn_mask: Operand | None, dropout_p: Operand, is_causal: Operand, scale: Operand | None,
    enable_gqa: bool,
) -> Operand:  # fmt: skip
    name = "scaled_dot_product_attention"
    _check(name, (query, key, value), ())
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        key, value = (_shared(builder, query, o) for o in (key, value))
    given = (None, attn_mask, dropout_p, is_causal, scale)
    return _attention(builder, name, (query, key, value), *given)[0]


def _shared(builder: GraphBuilder, query: Operand, other: Operand) -> Operand:
    """Return keys or values with each head repeated for the heads of queries that it serves."""
    heads, fewer = query.shape[-3], other.shape[-3]
    times = heads.divide(fewer)
    if times is None and heads.is_const and fewer.is_const:
        raise FusecError(f"{heads} heads of queries are not a multiple of {fewer} heads of keys")
    if times is None:
        declared = multiple_of(builder.dims, heads, fewer)
        raise FusecError(
            f"{heads} heads of queries are not known to be a multiple of {fewer} heads of keys",
            help=f"the heads of the query must be a multiple of {fewer}"
            if declared is None
            else declared.text(builder.words),
        )
    return builder.apply("repeat_interleave", other, times, dim=len(other.shape) - 3)


@composite(expand=_expand_scaled_dot_product_attention, equal=_agreeing_or_grouped)
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: Array = 0.0,
    is_causal: Array = False,
    scale: Array | None = None,
    enable_gqa: bool = False,
) -> Array:
    """Return softmax(scale * query @ key^T + mask) @ value, the first result of `sdpfa_fwd`.

    A bool mask keeps scores where it is true, other masks are added; causal row i attends to keys
    up to i. Without a scale it is 1 / sqrt(features). With enable_gqa a head of keys and values
    serves several heads of queries, in order.
    """
    if enable_gqa:
        times = np.shape(query)[-3] // np.shape(key)[-3]
        key, value = (np.repeat(x, times, axis=-3) for x in (key, value))
    given = (query, key, value, None, attn_mask, dropout_p, is_causal, scale)
    return TABLE["sdpfa_fwd"].reference(*given)[0]


def _expand_backward(
    builder: GraphBuilder, grad: Operand, query: Operand, key: Operand, value: Operand,
    output: Operand, logsumexp: Operand, dropout_p: Operand | None, is_causal: Operand | None,
    philox_seed: Operand | None, philox_offset: Operand | None, scale: Operand | None,
    mask: Operand | None,
) -> tuple[Operand, ...]:  # fmt: skip
    operands = (grad, query, key, value, output)
    _check("sdpfa_bwd", operands, _agreeing_backward((*operands, logsumexp), {}))
    last = len(query.shape) - 1
    scores = _scores(builder, query, key, scale, is_causal)
    if mask is not None:
        _check_mask(builder, "sdpfa_bwd", mask, scores.shape)
        scores = _masked(builder, scores, mask)
        # A fully masked row has no gradients: its weights are 0, not NaN.
        nothing = builder.apply("eq", logsumexp, LOWEST)
        logsumexp = builder.apply("where", nothing, math.inf, logsumexp)
    column = [axis == last for axis in range(last + 1)]
    sums = builder.apply("broadcast", logsumexp, is_broadcast_dim=column)
    shares = builder.apply("exp", builder.apply("sub", scores, sums))
    dropped = shares
    moved = _product(builder, grad, _transposed(builder, value))
    if dropout_p is not None and _drops(dropout_p):
        if philox_seed is None or philox_offset is None:
            raise FusecError("`sdpfa_bwd` with a dropout needs philox_seed and philox_offset")
        seed = philox_seed
        if seed.shape:
            seed = builder.apply("select", seed, 0, dim=0)
        kept, factor = kept_elements(builder, shares, dropout_p, seed, philox_offset)
        dropped = builder.apply("where", kept, builder.apply("mul", shares, factor), 0.0)
        moved = builder.apply("where", kept, builder.apply("mul", moved, factor), 0.0)
    product = builder.apply("mul", widen(builder, grad), widen(builder, output))
    share = builder.apply("sum", product, dims=[last], keepdim=True)
    centred = builder.apply("mul", shares, builder.apply("sub", moved, share))
    pull = narrow(builder, builder.apply("mul", centred, _scale(builder, query, scale)), query)
    kept_shares = narrow(builder, dropped, query)
    return (
        builder.apply("matmul", pull, key),
        builder.apply("matmul", _transposed(builder, pull), query),
        builder.apply("matmul", _transposed(builder, kept_shares), grad),
    )


@composite(expand=_expand_backward, equal=_agreeing_backward, results=BACKWARD)
def sdpfa_bwd(
    grad_output: Array,
    query: Array,
    key: Array,
    value: Array,
    output: Array,
    logsumexp: Array,
    dropout_p: Array | None = None,
    is_causal: Array | None = None,
    philox_seed: Array | None = None,
    philox_offset: Array | None = None,
    scale: Array | None = None,
    mask: Array | None = None,
) -> Array:
    """Return the gradients of query, key and value from the operands and results of `sdpfa_fwd`."""
    factor = 1 / np.sqrt(np.shape(query)[-1]) if scale is None else scale
    p = 0.0 if dropout_p is None else float(dropout_p)
    scores = np.matmul(query, np.swapaxes(key, -1, -2)) * factor
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    sums = np.asarray(logsumexp)[..., None]
    if mask is not None:
        scores = _with_mask(scores, mask)
        sums = np.where(np.isneginf(sums), np.inf, sums)
    shares = np.exp(scores - sums)
    moved, dropped = np.matmul(grad_output, np.swapaxes(value, -1, -2)), shares
    if p:
        seed, offset = int(np.ravel(philox_seed)[0]), int(np.ravel(philox_offset)[0])
        random_text = philox.uniforms(seed, offset, shares.size, double=False).reshape(shares.shape)
        dropped, moved = (np.where(random_text < 1 - p, x / (1 - p), 0.0) for x in (shares, moved))
    share = np.sum(np.multiply(grad_output, output), axis=-1, keepdims=True)
    pull = shares * (moved - share) * factor
    turned = np.swapaxes(pull, -1, -2), np.swapaxes(dropped, -1, -2)
    return np.matmul(pull, key), np.matmul(turned[0], query), np.matmul(turned[1], grad_output)
