"""Losses of class scores against class numbers, made of other operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim
from fusec.ir.dtype import F32, I64
from fusec.ir.graph import Operand
from fusec.ops.declare import Array, composite
from fusec.ops.dtypes import dtype_of
from fusec.ops.indexing import checked, require_index
from fusec.ops.lazy import np
from fusec.ops.precision import narrow, widen
from fusec.ops.shapes import described, mismatch, tensor_shape, without_axes

if TYPE_CHECKING:
    from fusec.ops.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]
REDUCTIONS = ("mean", "sum", "none")


def _axis(scores: Operand) -> int:
    """Return the dim of the classes: 1, or 0 for the scores of one sample."""
    return min(1, len(scores.shape) - 1)


def _samples(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    scores, target = operands
    if scores.shape:
        yield from zip(without_axes(scores.shape, [_axis(scores)]), target.shape, strict=False)


def _check(name: str, operands: Operands, reduction: str) -> None:
    scores, target = operands
    require_index(name, target)
    if not dtype_of(scores).is_float or not tensor_shape(name, scores):
        raise FusecError(
            f"`{name}` needs scores [N, C, ...] or [C] of a float type", notes=[described([scores])]
        )
    if len(target.shape) != len(scores.shape) - 1:
        raise FusecError(
            f"`{name}`: the target has {len(target.shape)} dims, expected {len(scores.shape) - 1}",
            notes=[described(operands)],
        )
    for left, right in _samples(operands, {}):
        if left != right:
            raise mismatch(name, left, right, "samples must agree", operands)
    if reduction not in REDUCTIONS:
        raise FusecError(
            f"`{name}`: reduction is {', '.join(REDUCTIONS)}, not {reduction!r}",
        )


def _picked(
    builder: GraphBuilder, scores: Operand, target: Operand, ignore_index: int
) -> tuple[Operand, Operand]:
    """Return (each sample's score of its class, with the dim of classes; which samples count)."""
    axis = _axis(scores)
    # A number beyond the target's type is no class: it must not wrap into one.
    is_held = ignore_index in dtype_of(target).integers
    compared = target if is_held else builder.apply("cast", target, I64)
    counts = builder.apply("ne", compared, ignore_index)
    index = builder.apply("where", counts, target, 0)
    mask = [k == axis for k in range(len(scores.shape))]
    index = builder.apply("broadcast", index, is_broadcast_dim=mask)
    return widen(builder, builder.apply("gather", scores, index, dim=axis)), counts


def _reduced(
    builder: GraphBuilder, loss: Operand, counts: Operand, scores: Operand, reduction: str
) -> Operand:
    loss = builder.apply("squeeze", loss, dims=[_axis(scores)])
    loss = builder.apply("where", counts, loss, 0.0)
    if reduction != "none":
        loss = builder.apply("sum", loss)
    if reduction == "mean":
        loss = builder.apply("div", loss, builder.apply("sum", builder.apply("cast", counts, F32)))
    return narrow(builder, loss, scores)


def _expand_cross_entropy(
    builder: GraphBuilder, logits: Operand, target: Operand, ignore_index: int, reduction: str
) -> Operand:
    _check("cross_entropy", (logits, target), reduction)
    wide, axis = widen(builder, logits), _axis(logits)
    largest = builder.apply("max", wide, dims=[axis], keepdim=True)
    powers = builder.apply("exp", builder.apply("sub", wide, largest))
    total = builder.apply("log", builder.apply("sum", powers, dims=[axis], keepdim=True))
    # The score is read from the logits themselves: one load instead of a row of differences.
    picked, counts = _picked(builder, logits, target, ignore_index)
    loss = builder.apply("sub", total, builder.apply("sub", picked, largest))
    return _reduced(builder, loss, counts, logits, reduction)


def _expand_nll(
    builder: GraphBuilder, log_probs: Operand, target: Operand, ignore_index: int, reduction: str
) -> Operand:
    _check("nll_loss", (log_probs, target), reduction)
    picked, counts = _picked(builder, log_probs, target, ignore_index)
    return _reduced(builder, builder.apply("neg", picked), counts, log_probs, reduction)


def _loss(name: str, log_probs: Array, target: Array, ignore_index: int, reduction: str) -> Array:
    axis = min(1, np.ndim(log_probs) - 1)
    counts = np.not_equal(target, ignore_index)
    index = checked(name, np.where(counts, target, 0), np.shape(log_probs)[axis])
    picked = np.take_along_axis(log_probs, np.expand_dims(index, axis), axis=axis)
    loss = np.where(counts, -np.squeeze(picked, axis), 0.0)
    if reduction == "none":
        return loss
    return np.sum(loss) / (np.sum(counts) if reduction == "mean" else 1)


@composite(expand=_expand_cross_entropy, equal=_samples)
def cross_entropy(
    logits: Array, target: Array, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Return the cross entropy of softmax(logits) [N, C, ...] and class indices [N, ...].

    Samples whose target is `ignore_index` are ignored, also in the mean. A target out
    of bounds is an error in the reference and with --check-bounds, else undefined.
    """
    axis = min(1, np.ndim(logits) - 1)
    shifted = logits - np.max(logits, axis=axis, keepdims=True)
    log_probs = shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
    return _loss("cross_entropy", log_probs, target, ignore_index, reduction)


@composite(expand=_expand_nll, equal=_samples)
def nll_loss(
    log_probs: Array, target: Array, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Return the negative of log_probs [N, C, ...] at class indices [N, ...].

    Samples whose target is `ignore_index` are ignored, also in the mean. A target out
    of bounds is an error in the reference and with --check-bounds, else undefined.
    """
    return _loss("nll_loss", log_probs, target, ignore_index, reduction)
