"""Losses of class scores against class indices, composed of other operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Dim
from fusec.ir.dtype import F32, I64
from fusec.ir.graph import Operand
from fusec.ops.declare import Array, composite
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.movement.indexing import checked, require_index
from fusec.ops.numerics.precision import element_count, narrow, widen
from fusec.ops.shapes import described, mismatch, tensor_shape, text, without_axes

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]
REDUCTIONS = ("mean", "sum", "none")


def _axis(scores: Operand) -> int:
    """Return the dim of the classes: 1, or 0 for the scores of one sample."""
    return min(1, len(scores.shape) - 1)


def _samples(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    scores, target = operands
    if _is_probabilities(scores, target):
        yield from zip(scores.shape, target.shape, strict=True)
    elif scores.shape:
        yield from zip(without_axes(scores.shape, [_axis(scores)]), target.shape, strict=False)


def _is_probabilities(scores: Operand, target: Operand) -> bool:
    """Return whether a target holds a probability of each class instead of a class index."""
    return dtype_of(target).is_float and len(target.shape) == len(scores.shape)


def _check(
    name: str, operands: Operands, reduction: str, param: str, *, soft: bool = False
) -> None:
    """Raise FusecError unless scores, passed for `param`, and target fit; soft: probabilities."""
    scores, target = operands
    if not dtype_of(scores).is_float or not tensor_shape(name, scores):
        turned = dtype_of(scores).is_integer and dtype_of(target).is_float
        swapped = {param: "{target}", "target": f"{{{param}}}"}
        raise FusecError(
            f"`{name}` needs scores [N, C, ...] or [C] of a float type",
            notes=[described([scores])],
            instead=Instead(arguments=swapped, why="the scores come before the classes")
            if turned
            else None,
        )
    if reduction not in REDUCTIONS:
        raise FusecError(
            f"`{name}`: reduction is {', '.join(REDUCTIONS)}, not {reduction!r}",
        )
    if soft and _is_probabilities(scores, target):
        for left, right in zip(scores.shape, target.shape, strict=True):
            if left != right:
                raise mismatch(name, left, right, "scores and probabilities must agree", operands)
        return
    require_index(name, target, "target")
    wanted = tuple(without_axes(scores.shape, [_axis(scores)]))
    instead = None
    if len(scores.shape) > 2 and scores.shape[:-1] == target.shape:
        why = "the classes are dim 1: scores are [N, C, ...]"
        instead = Instead(arguments={param: f"movedim({{{param}}}, -1, 1)"}, why=why)
    if len(target.shape) != len(wanted):
        raise FusecError(
            f"`{name}`: the target has {len(target.shape)} dims, expected {len(wanted)}",
            notes=[described(operands)],
            help=f"for scores {text(scores.shape)} it is {text(wanted)}",
            instead=instead,
        )
    for left, right in _samples(operands, {}):
        if left != right:
            why = "the target has the shape of the scores without the classes, dim 1"
            help = f"for scores {text(scores.shape)} it is {text(wanted)}"
            raise mismatch(name, left, right, why, operands, help, instead)


def _picked(
    builder: GraphBuilder, scores: Operand, target: Operand, ignore_index: int
) -> tuple[Operand, Operand]:
    """Return (each sample's score of its class, with the dim of classes; which samples count)."""
    axis = _axis(scores)
    # An ignore_index out of range of the target's type is not a class: it must not wrap into one.
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
    builder: GraphBuilder, logits: Operand, target: Operand, ignore_index: int, reduction: str,
    label_smoothing: float,
) -> Operand:  # fmt: skip
    _check("cross_entropy", (logits, target), reduction, "logits", soft=True)
    if not 0 <= label_smoothing <= 1:
        raise FusecError(f"`cross_entropy`: label_smoothing is 0 to 1, not {label_smoothing}")
    wide, axis = widen(builder, logits), _axis(logits)
    largest = builder.apply("max", wide, dims=[axis], keepdim=True)
    powers = builder.apply("exp", builder.apply("sub", wide, largest))
    total = builder.apply("log", builder.apply("sum", powers, dims=[axis], keepdim=True))
    if _is_probabilities(logits, target):
        return _of_probabilities(
            builder, builder.apply("sub", builder.apply("sub", wide, largest), total), logits,
            target, reduction, label_smoothing,
        )  # fmt: skip
    # The score is read from the logits themselves: one load instead of a row of differences.
    picked, counts = _picked(builder, logits, target, ignore_index)
    picked = builder.apply("sub", picked, largest)
    if label_smoothing:
        shifted = builder.apply("sub", wide, largest)
        mean = builder.apply("mean", shifted, dims=[axis], keepdim=True)
        picked = builder.apply("mul", picked, 1.0 - label_smoothing)
        picked = builder.apply("add", picked, builder.apply("mul", mean, label_smoothing))
    loss = builder.apply("sub", total, picked)
    return _reduced(builder, loss, counts, logits, reduction)


def _of_probabilities(
    builder: GraphBuilder, log_probs: Operand, scores: Operand, target: Operand, reduction: str,
    label_smoothing: float,
) -> Operand:  # fmt: skip
    """Return the cross entropy of log-probabilities and a probability of each class."""
    axis, wide = _axis(scores), widen(builder, target)
    if label_smoothing:
        classes = element_count(builder, scores, (axis,))
        spread = builder.apply("truediv", label_smoothing, classes)
        wide = builder.apply("mul", wide, 1.0 - label_smoothing)
        wide = builder.apply("add", wide, spread)
    products = builder.apply("mul", wide, log_probs)
    loss = builder.apply("neg", builder.apply("sum", products, dims=[axis]))
    if reduction == "mean":
        loss = builder.apply("mean", loss)
    elif reduction == "sum":
        loss = builder.apply("sum", loss)
    return narrow(builder, loss, scores)


def _expand_nll(
    builder: GraphBuilder, log_probs: Operand, target: Operand, ignore_index: int, reduction: str
) -> Operand:
    _check("nll_loss", (log_probs, target), reduction, "log_probs")
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
    logits: Array,
    target: Array,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Return the cross entropy of softmax(logits) [N, C, ...] and class indices [N, ...].

    Samples whose target is `ignore_index` are ignored, also in the mean. A target out
    of bounds is an error in the reference and with --check-bounds, else undefined. A target of
    floats in the shape of the logits holds a probability of each class. Label smoothing gives a
    part of the target's probability to all classes alike.
    """
    axis = min(1, np.ndim(logits) - 1)
    shifted = logits - np.max(logits, axis=axis, keepdims=True)
    log_probs = shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
    smooth = label_smoothing
    if np.ndim(target) == np.ndim(logits) and np.asarray(target).dtype.kind == "f":
        wanted = np.multiply(target, 1 - smooth) + smooth / np.shape(logits)[axis]
        losses = -np.sum(wanted * log_probs, axis=axis)
        return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](losses)
    mean = np.mean(log_probs, axis=axis, keepdims=True)
    smoothed = log_probs * (1 - smooth) + mean * smooth if smooth else log_probs
    return _loss("cross_entropy", smoothed, target, ignore_index, reduction)


@composite(expand=_expand_nll, equal=_samples)
def nll_loss(
    log_probs: Array, target: Array, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Return the negative of log_probs [N, C, ...] at class indices [N, ...].

    Samples whose target is `ignore_index` are ignored, also in the mean. A target out
    of bounds is an error in the reference and with --check-bounds, else undefined.
    """
    return _loss("nll_loss", log_probs, target, ignore_index, reduction)
