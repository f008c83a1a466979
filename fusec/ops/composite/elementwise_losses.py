"""Losses of predictions against targets of their shape, by PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.op import OpDef
from fusec.ops.composite.formulas import Formula, Term, float_formula
from fusec.ops.composite.losses import REDUCTIONS
from fusec.ops.declare import Array, Body
from fusec.ops.lazy import np


def _loss(form: Formula, *, domain: tuple[float, float] = (-2.0, 2.0)) -> Callable[[Body], OpDef]:
    """Declare a loss: `form` of the elements, then the reduction that `reduction` names."""

    def wrap(body: Body) -> OpDef:
        name = body.__name__

        def whole(*terms: Any, reduction: str = "mean") -> Any:
            if reduction not in REDUCTIONS:
                known = ", ".join(REDUCTIONS)
                raise FusecError(f"`{name}`: reduction is {known}, not {reduction!r}")
            elements: Term = form(*terms)
            if reduction == "none":
                return elements
            return elements.mean() if reduction == "mean" else elements.sum()

        return float_formula(whole, domain=domain)(body)

    return wrap


def _reduced(loss: Array, reduction: str) -> Array:
    return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](loss)


@_loss(lambda x, target: (x - target) * (x - target))
def mse_loss(x: Array, target: Array, reduction: str = "mean") -> Array:
    """Return the mean of squared differences, their sum, or (`none`) each of them."""
    return _reduced(np.square(np.subtract(x, target)), reduction)


@_loss(lambda x, target: (x - target).abs())
def l1_loss(x: Array, target: Array, reduction: str = "mean") -> Array:
    """Return the mean of absolute differences, their sum, or (`none`) each of them."""
    return _reduced(np.abs(np.subtract(x, target)), reduction)


def _smooth(x: Term, target: Term, beta: Term) -> Term:
    far = (x - target).abs()
    return (far < beta).where(far * far * 0.5 / beta, far - beta * 0.5)


@_loss(_smooth)
def smooth_l1_loss(x: Array, target: Array, reduction: str = "mean", beta: Array = 1.0) -> Array:
    """Return 0.5 * d * d / beta of differences d below `beta`, else |d| - 0.5 * beta."""
    far = np.abs(np.subtract(x, target))
    return _reduced(np.where(far < beta, 0.5 * far * far / beta, far - 0.5 * beta), reduction)


def _huber(x: Term, target: Term, delta: Term) -> Term:
    far = (x - target).abs()
    return (far <= delta).where(far * far * 0.5, (far - delta * 0.5) * delta)


@_loss(_huber)
def huber_loss(x: Array, target: Array, reduction: str = "mean", delta: Array = 1.0) -> Array:
    """Return 0.5 * d * d of differences d up to `delta`, else delta * (|d| - 0.5 * delta)."""
    far = np.abs(np.subtract(x, target))
    return _reduced(np.where(far <= delta, 0.5 * far * far, delta * (far - 0.5 * delta)), reduction)


def _cross(x: Term, target: Term, weight: Term | None) -> Term:
    # As in PyTorch, logarithms are clamped to at least -100.
    kept, lost = x.log().maximum(-100), (-x).log1p().maximum(-100)
    loss = (target - 1) * lost - target * kept
    return loss if weight is None else loss * weight


@_loss(_cross, domain=(0.05, 0.95))
def binary_cross_entropy(
    x: Array, target: Array, weight: Array | None = None, reduction: str = "mean"
) -> Array:
    """Return -(target * log(x) + (1 - target) * log(1 - x)); logarithms are at least -100."""
    kept, lost = np.maximum(np.log(x), -100), np.maximum(np.log1p(np.negative(x)), -100)
    loss = -(target * kept + (1 - np.asarray(target)) * lost)
    return _reduced(loss if weight is None else loss * weight, reduction)


def _cross_of_logits(x: Term, target: Term, weight: Term | None, pos_weight: Term | None) -> Term:
    softplus = (-x.abs()).exp().log1p() + (-x).maximum(0)  # log(1 + exp(-x))
    factor = softplus if pos_weight is None else softplus * (target * (pos_weight - 1) + 1)
    loss = (1 - target) * x + factor
    return loss if weight is None else loss * weight


@_loss(_cross_of_logits)
def binary_cross_entropy_with_logits(
    x: Array,
    target: Array,
    weight: Array | None = None,
    reduction: str = "mean",
    pos_weight: Array | None = None,
) -> Array:
    """Return the binary cross entropy of sigmoid(x), without overflow."""
    positive = 1.0 if pos_weight is None else pos_weight
    lost = np.logaddexp(0, np.negative(x))
    loss = positive * target * lost + (1 - np.asarray(target)) * (x + lost)
    return _reduced(loss if weight is None else loss * weight, reduction)
