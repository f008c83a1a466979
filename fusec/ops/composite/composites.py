"""Normalisations and activations, composed of other operations when they are called."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.codes.shapes import EXTENTS_DIFFER
from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Dim
from fusec.ir.dtype import F32, DType
from fusec.ir.graph import Operand
from fusec.ops.declare import Array, Axis, Dims, Shape, composite
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.numerics import special
from fusec.ops.numerics.precision import element_count, narrow, widen
from fusec.ops.shapes import described, tensor_shape, text

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _expand_mean(
    builder: GraphBuilder, arg: Operand, dims: tuple[int, ...], keepdim: bool, dtype: DType | None
) -> Operand:
    own = dtype_of(arg)
    result = dtype or (own if own.is_rounded else F32)
    if not result.is_rounded:
        raise FusecError(f"`mean` cannot be {result}: it is a float")
    total = builder.apply("sum", arg, dims=dims, keepdim=keepdim, dtype=result.compute)
    mean = builder.apply("div", total, element_count(builder, arg, dims))
    return mean if dtype_of(mean) == result else builder.apply("cast", mean, dtype=result)


@composite(expand=_expand_mean)
def mean(arg: Array, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Return the mean over `dims`; f32 for integers."""
    return np.mean(arg, axis=dims, keepdims=keepdim)


def _expand_softmax(builder: GraphBuilder, x: Operand, dim: int) -> Operand:
    wide = widen(builder, x)
    shifted = builder.apply("sub", wide, builder.apply("max", wide, dims=[dim], keepdim=True))
    powers = builder.apply("exp", shifted)
    total = builder.apply("sum", powers, dims=[dim], keepdim=True)
    return narrow(builder, builder.apply("div", powers, total), x)


@composite(expand=_expand_softmax)
def softmax(x: Array, dim: Axis) -> Array:
    """Return exp(x) divided by its sum along `dim`."""
    powers = np.exp(x - np.max(x, axis=dim, keepdims=True))
    return powers / np.sum(powers, axis=dim, keepdims=True)


def _expand_prelu(builder: GraphBuilder, x: Operand, weight: Operand) -> Operand:
    rank, own = len(tensor_shape("prelu", x)), weight.type.shape or ()
    if len(own) == 1 and rank > 2:
        kept = [False, *[True] * (rank - 2)]
        weight = builder.apply("broadcast", weight, is_broadcast_dim=kept)
    positive = builder.apply("gt", x, 0)
    return builder.apply("where", positive, x, builder.apply("mul", weight, x))


def _channels(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    shape, own = operands[0].shape, operands[1].type.shape or ()
    if len(own) == 1 and own[0] != 1 and len(shape) > 1:
        yield shape[1], own[0]


@composite(expand=_expand_prelu, equal=_channels)
def prelu(x: Array, weight: Array) -> Array:
    """Return x where it is above 0, else x times the weight: one, or one per channel (dim 1)."""
    own = np.reshape(weight, (*np.shape(weight), *[1] * builtins.max(np.ndim(x) - 2, 0)))
    return np.where(np.greater(x, 0), x, np.multiply(own, x))


def _expand_log_softmax(builder: GraphBuilder, x: Operand, dim: int) -> Operand:
    wide = widen(builder, x)
    shifted = builder.apply("sub", wide, builder.apply("max", wide, dims=[dim], keepdim=True))
    total = builder.apply("sum", builder.apply("exp", shifted), dims=[dim], keepdim=True)
    return narrow(builder, builder.apply("sub", shifted, builder.apply("log", total)), x)


@composite(expand=_expand_log_softmax)
def log_softmax(x: Array, dim: Axis) -> Array:
    """Return the logarithm of softmax."""
    shifted = x - np.max(x, axis=dim, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))


def _normalized(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    shape, inner = operands[0].shape, attributes["norm_shape"]
    yield from zip(reversed(shape), reversed(inner), strict=False)


def _last_extents(shape: Sequence[Dim]) -> Instead | None:
    """Return the call that normalises the last dim."""
    if not shape:
        return None
    why = "they are the last extents of the tensor"
    return Instead(arguments={"norm_shape": text(tuple(shape[-1:]))}, why=why)


def _check_norm(name: str, x: Operand, norm_shape: Sequence[Dim]) -> list[int]:
    """Return the dims that `norm_shape` names: the last ones."""
    shape = tensor_shape(name, x)
    first = len(shape) - len(norm_shape)
    if first < 0 or not norm_shape or tuple(shape[first:]) != tuple(norm_shape):
        raise FusecError(
            f"norm_shape {text(tuple(norm_shape))} of `{name}` is not a suffix of the shape",
            notes=[described([x])],
            instead=_last_extents(shape),
        )
    return list(range(first, len(shape)))


def _check_scales(
    builder: GraphBuilder,
    name: str,
    norm_shape: Sequence[Dim],
    given: Mapping[str, Operand | None],
) -> None:
    """Raise FusecError unless weight and bias broadcast over the dims that are normalised."""
    for param, operand in given.items():
        shape = () if operand is None else operand.shape
        pairs = zip(reversed(shape), reversed(norm_shape), strict=False)
        fits = all(a == 1 or builder.bindings.unify(a, b) for a, b in pairs)
        if len(shape) > len(norm_shape) or not fits:
            raise FusecError(
                f"the {param} of `{name}` has shape {text(shape)}, expected the shape of the "
                f"normalised dims, {text(tuple(norm_shape))}",
                notes=[described([operand])] if operand is not None else (),
                code=EXTENTS_DIFFER,
                help=f"declare it as {text(tuple(norm_shape))}, or normalise other dims",
            )


def _expand_layer_norm(
    builder: GraphBuilder,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    eps: Operand,
    norm_shape: Sequence[Dim],
) -> Operand:
    dims = _check_norm("layer_norm", x, norm_shape)
    _check_scales(builder, "layer_norm", norm_shape, {"weight": weight, "bias": bias})
    wide = widen(builder, x)
    attributes = {"dims": dims, "correction": 0, "keepdim": True}
    var, mean = builder.call("var_mean", [wide], attributes)
    rstd = builder.apply("rsqrt", builder.apply("add", var, eps))
    y = builder.apply("mul", builder.apply("sub", wide, mean), rstd)
    if weight is not None:
        y = builder.apply("mul", y, weight)
    if bias is not None:
        y = builder.apply("add", y, bias)
    return narrow(builder, y, x)


@composite(expand=_expand_layer_norm, equal=_normalized)
def layer_norm(
    x: Array,
    norm_shape: Shape,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: Array = 1e-5,
) -> Array:
    """Return x with mean 0 and variance 1 over the last dims, times the weight, plus the bias."""
    dims = tuple(range(np.ndim(x) - len(norm_shape), np.ndim(x)))
    centred = x - np.mean(x, axis=dims, keepdims=True)
    y = centred / np.sqrt(np.mean(np.square(centred), axis=dims, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _expand_rms_norm(
    builder: GraphBuilder,
    x: Operand,
    weight: Operand | None,
    eps: Operand,
    norm_shape: Sequence[Dim],
) -> Operand:
    dims = _check_norm("rms_norm", x, norm_shape)
    _check_scales(builder, "rms_norm", norm_shape, {"weight": weight})
    wide = widen(builder, x)
    square = builder.apply("mul", wide, wide)
    mean = builder.apply("mean", square, dims=dims, keepdim=True)
    y = builder.apply("mul", wide, builder.apply("rsqrt", builder.apply("add", mean, eps)))
    if weight is not None:
        y = builder.apply("mul", y, weight)
    return narrow(builder, y, x)


@composite(expand=_expand_rms_norm, equal=_normalized)
def rms_norm(x: Array, norm_shape: Shape, weight: Array | None = None, eps: Array = 1e-5) -> Array:
    """Return x divided by its root mean square over the last dims, times the weight."""
    dims = tuple(range(np.ndim(x) - len(norm_shape), np.ndim(x)))
    y = x / np.sqrt(np.mean(np.square(x), axis=dims, keepdims=True) + eps)
    return y if weight is None else y * weight


_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


def _expand_gelu(builder: GraphBuilder, x: Operand, approximate: str) -> Operand:
    if approximate not in ("none", "tanh"):
        raise FusecError(f"`gelu`: approximate is 'none' or 'tanh', not {approximate!r}")
    wide = widen(builder, x)
    if approximate == "none":
        inner = builder.apply("erf", builder.apply("mul", wide, math.sqrt(0.5)))
    else:
        cube = builder.apply("mul", builder.apply("mul", wide, wide), wide)
        sum = builder.apply("add", wide, builder.apply("mul", cube, _TANH_CUBE))
        inner = builder.apply("tanh", builder.apply("mul", sum, _TANH_SCALE))
    half = builder.apply("mul", wide, 0.5)
    return narrow(builder, builder.apply("mul", half, builder.apply("add", inner, 1.0)), x)


@composite(expand=_expand_gelu)
def gelu(x: Array, approximate: str = "none") -> Array:
    """Return x * Phi(x), Phi the standard normal CDF; `tanh` selects the tanh approximation."""
    if approximate == "none":
        return 0.5 * x * (1 + special.erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + np.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x)))
