"""Reductions and normalisations by PyTorch's names, composed of sums and extrema."""

from __future__ import annotations

import math
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.dtype import I64
from fusec.ops.composite.formulas import Term, float_formula, formula
from fusec.ops.declare import Array, Axis, Dims
from fusec.ops.lazy import np


def _logsumexp(x: Term, dims: tuple[int, ...], keepdim: bool) -> Term:
    largest = x.max(dims=dims, keepdim=True)
    # For infinities the distance would be NaN.
    finite = largest.isfinite().where(largest, 0.0)
    result = (x - finite).exp().sum(dims=dims, keepdim=True).log() + finite
    return result if keepdim or not dims else result.squeeze(dims=dims)


@float_formula(_logsumexp)
def logsumexp(x: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    """Return the logarithm of the sum of exp(x) over `dims`, without overflow."""
    largest = np.max(x, axis=dims, keepdims=True)
    finite = np.where(np.isfinite(largest), largest, 0.0)
    total = np.sum(np.exp(x - finite), axis=dims, keepdims=True)
    result = np.log(total) + finite
    return result if keepdim else np.squeeze(result, dims)


@float_formula(lambda x, dims, correction, keepdim: _variance(x, dims, correction, keepdim).sqrt())
def std(x: Array, dims: Dims = None, correction: int = 1, keepdim: bool = False) -> Array:
    """Return the standard deviation over `dims`, the root of `var`."""
    return np.std(x, axis=dims, ddof=correction, keepdims=keepdim)


def _variance(x: Term, dims: tuple[int, ...], correction: int, keepdim: bool) -> Term:
    return x.var(dims=dims, correction=correction, keepdim=keepdim)


def _norm(x: Term, p: float, dims: tuple[int, ...], keepdim: bool) -> Term:
    size = x.abs()
    how: dict[str, Any] = {"dims": dims, "keepdim": keepdim}
    if math.isinf(p):
        return size.max(**how) if p > 0 else size.min(**how)
    if p == 0:
        raise FusecError("`norm` with p=0 counts elements", help="write `count_nonzero(x, dims)`")
    if p == 1:
        return size.sum(**how)
    if p == 2:
        return (x * x).sum(**how).sqrt()
    return size.pow(p).sum(**how).pow(1 / p)


@float_formula(_norm)
def norm(x: Array, p: float = 2.0, dims: Dims = None, keepdim: bool = False) -> Array:
    """Return the p-norm over `dims`; p=inf is the largest magnitude."""
    if math.isinf(p):
        return (np.max if p > 0 else np.min)(np.abs(x), axis=dims, keepdims=keepdim)
    return np.sum(np.abs(x) ** p, axis=dims, keepdims=keepdim) ** (1 / p)


@float_formula(lambda x, eps, p, dim: x / _norm(x, p, (dim,), keepdim=True).maximum(eps))
def normalize(x: Array, p: float = 2.0, dim: Axis = 1, eps: Array = 1e-12) -> Array:
    """Return x divided by max(its p-norm along `dim`, `eps`)."""
    length = np.sum(np.abs(x) ** p, axis=dim, keepdims=True) ** (1 / p)
    return x / np.maximum(length, eps)


def _cosine(a: Term, b: Term, eps: Term, dim: int) -> Term:
    lengths = [(x * x).sum(dims=[dim]).sqrt().maximum(eps) for x in (a, b)]
    return (a * b).sum(dims=[dim]) / (lengths[0] * lengths[1])


@float_formula(_cosine)
def cosine_similarity(a: Array, b: Array, dim: Axis = 1, eps: Array = 1e-8) -> Array:
    """Return the cosine similarity along `dim`; norms are at least `eps`."""
    lengths = [np.maximum(np.sqrt(np.sum(np.square(x), axis=dim)), eps) for x in (a, b)]
    return np.sum(np.multiply(a, b), axis=dim) / (lengths[0] * lengths[1])


@formula(lambda x, dim: (-x).softmax(dim))
def softmin(x: Array, dim: Axis) -> Array:
    """Return softmax(-x)."""
    powers = np.exp(np.min(x, axis=dim, keepdims=True) - x)
    return powers / np.sum(powers, axis=dim, keepdims=True)


@formula(lambda x, dims: x.ne(0).sum(dims=dims, dtype=I64))
def count_nonzero(x: Array, dims: Dims = None) -> Array:
    """Return the number of nonzero elements over `dims`, as i64."""
    return np.asarray(np.count_nonzero(x, axis=dims), np.int64)


@formula(lambda x, dims, keepdim: x.isnan().where(0, x).sum(dims=dims, keepdim=keepdim))
def nansum(x: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    """Return the sum over `dims`, ignoring NaN."""
    return np.nansum(x, axis=dims, keepdims=keepdim)
