"""Norms over batches, instances and groups of channels, composed of other operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, dim, floordiv, mod
from fusec.ir.graph import Operand
from fusec.ops.builder.size_operands import with_constants
from fusec.ops.declare import Array, Size, composite
from fusec.ops.lazy import np
from fusec.ops.numerics.precision import element_count, narrow, widen
from fusec.ops.shapes import described, tensor_shape, text

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Attributes = Mapping[str, Any]
RESULTS = ("out", "mean", "invstd", "running_mean", "running_var")


@dataclass(frozen=True)
class _Channels:
    """A tensor with channels: its name in errors, the axis, and the dims of the statistics."""

    name: str
    axis: int
    rank: int
    dims: tuple[int, ...]

    def spread(self, builder: GraphBuilder, value: Operand) -> Operand:
        """Return statistics, or one number per channel, in the rank of the tensor."""
        kept = {self.axis}
        if value.shape and len(value.shape) == self.rank - len(self.dims):
            kept = set(range(self.rank)) - set(self.dims)
        mask = [axis not in kept for axis in range(self.rank)]
        return builder.apply("broadcast", value, is_broadcast_dim=mask)


def _channels(name: str, x: Operand, channels_last: bool, *, batch: bool) -> _Channels:
    shape = tensor_shape(name, x)
    least = 2 if batch else 3
    if len(shape) < least:
        raise FusecError(f"`{name}` needs at least {least} dims", notes=[described([x])])
    axis = len(shape) - 1 if channels_last else 1
    kept = {axis} if batch else {0, axis}
    return _Channels(
        name, axis, len(shape), tuple(k for k in range(len(shape)) if k not in kept)
    )  # fmt: skip


_PARAMETERS = ("weight", "bias", "running_mean", "running_var")


def _check_parameters(place: _Channels, x: Operand, given: Sequence[Operand | None]) -> None:
    """Raise FusecError unless every parameter holds one number per channel."""
    channels = x.shape[place.axis]
    for param, operand in zip(_PARAMETERS, given, strict=True):
        if operand is not None and operand.type.shape != (channels,):
            raise FusecError(
                f"the {param} of `{place.name}` has shape {text(operand.shape)}, expected "
                f"[{channels}]: one number for each of the channels, dim {place.axis}",
                notes=[described([x, operand])],
                help=f"declare it as [{channels}]",
            )
    if (given[2] is None) != (given[3] is None):
        raise FusecError(f"`{place.name}`: pass both running_mean and running_var, or neither")


def _normalised(
    builder: GraphBuilder, place: _Channels, x: Operand, given: Sequence[Operand | None],
    scalars: tuple[Operand, Operand], own: bool,
) -> tuple[Operand, ...]:  # fmt: skip
    """Return the results of batch or instance norm; `own`: with the tensor's own statistics."""
    _check_parameters(place, x, given)
    weight, bias, running_mean, running_var = given
    momentum, eps = scalars
    wide = widen(builder, x)
    if own or running_mean is None or running_var is None:
        attributes = {"dims": place.dims, "correction": 0}
        var, mean = builder.call("var_mean", [wide], attributes)
    else:
        mean, var = widen(builder, running_mean), widen(builder, running_var)
    invstd = builder.apply("rsqrt", builder.apply("add", var, eps))
    centred = builder.apply("sub", wide, place.spread(builder, mean))
    y = builder.apply("mul", centred, place.spread(builder, invstd))
    if weight is not None:
        y = builder.apply("mul", y, place.spread(builder, weight))
    if bias is not None:
        y = builder.apply("add", y, place.spread(builder, bias))
    results = (narrow(builder, y, x), mean, invstd)
    if not own or running_mean is None or running_var is None:
        return results
    free = _without_bias(builder, wide, place.dims, var)
    moved = (
        _moved(builder, running_mean, _over_batch(builder, place, mean), momentum),
        _moved(builder, running_var, _over_batch(builder, place, free), momentum),
    )
    return (*results, *moved)


def _without_bias(builder: GraphBuilder, x: Operand, dims: Sequence[int], var: Operand) -> Operand:
    """Return the variance with correction 1 from the one with correction 0."""
    count = element_count(builder, x, dims)
    if isinstance(count, int):
        if count < 2:
            raise FusecError("a running variance needs more than one value per channel")
        return builder.apply("mul", var, count / (count - 1))
    factor = builder.apply("truediv", count, builder.apply("sub", count, 1))
    return builder.apply("mul", var, factor)


def _over_batch(builder: GraphBuilder, place: _Channels, value: Operand) -> Operand:
    """Return statistics of instances averaged over the batch."""
    return value if len(value.shape) == 1 else builder.apply("mean", value, dims=[0])


def _moved(builder: GraphBuilder, running: Operand, new: Operand, momentum: Operand) -> Operand:
    """Return (1 - momentum) * running + momentum * new in the type of the running value."""
    old = builder.apply("mul", widen(builder, running), builder.apply("sub", 1.0, momentum))
    moved = builder.apply("add", old, builder.apply("mul", new, momentum))
    return narrow(builder, moved, running)


def _expand_batch_norm(
    builder: GraphBuilder, arg: Operand, weight: Operand | None, bias: Operand | None,
    running_mean: Operand | None, running_var: Operand | None, momentum: Operand, eps: Operand,
    training: bool, channels_last: bool,
) -> tuple[Operand, ...]:  # fmt: skip
    place = _channels("batch_norm", arg, channels_last, batch=True)
    given = (weight, bias, running_mean, running_var)
    if not training and running_mean is None:
        raise FusecError("`batch_norm` with training=false needs running_mean and running_var")
    return _normalised(builder, place, arg, given, (momentum, eps), training)


def _same_channels(
    operands: tuple[Operand, ...], attributes: Attributes
) -> Iterable[tuple[Dim, Dim]]:
    shape = operands[0].shape
    axis = len(shape) - 1 if attributes["channels_last"] else 1
    for operand in operands[1:]:
        if len(operand.shape) == 1 and len(shape) > axis:
            yield operand.shape[0], shape[axis]


def _reference(
    arg: Array, given: Sequence[Array | None], scalars: tuple[Array, Array],
    dims: tuple[int, ...], axis: int, own: bool,
) -> Array:  # fmt: skip
    weight, bias, running_mean, running_var = given
    momentum, eps = scalars
    x = np.asarray(arg)
    channel = [1] * x.ndim
    channel[axis] = x.shape[axis]
    kept = tuple(1 if k in dims else e for k, e in enumerate(x.shape))
    if own or running_mean is None or running_var is None:
        mean, var = np.mean(x, axis=dims), np.var(x, axis=dims)
        wide_mean, wide_var = mean.reshape(kept), var.reshape(kept)
    else:
        mean, var = np.asarray(running_mean), np.asarray(running_var)
        wide_mean, wide_var = mean.reshape(channel), var.reshape(channel)
    y = (x - wide_mean) / np.sqrt(wide_var + eps)
    y = y if weight is None else y * np.reshape(weight, channel)
    y = y if bias is None else y + np.reshape(bias, channel)
    results = (y, mean, 1 / np.sqrt(var + eps))
    if not own or running_mean is None or running_var is None:
        return results
    count = x.size // mean.size
    free = var * (count / (count - 1))
    batch = tuple(range(mean.ndim - 1))
    return (
        *results,
        running_mean * (1 - momentum) + np.mean(mean, axis=batch) * momentum,
        running_var * (1 - momentum) + np.mean(free, axis=batch) * momentum,
    )


@composite(expand=_expand_batch_norm, equal=_same_channels, results=RESULTS)
def batch_norm(
    arg: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    momentum: Array = 0.1,
    eps: Array = 1e-5,
    training: bool = True,
    channels_last: bool = False,
) -> Array:
    """Return (arg with mean 0 and variance 1 per channel, the means, 1 / the deviations).

    Channels are dim 1, or the last one. With running statistics there are two more results when
    training, their new values: write them into the inputs. Else the running ones are used.
    """
    x = np.asarray(arg)
    axis = x.ndim - 1 if channels_last else 1
    dims = tuple(k for k in range(x.ndim) if k != axis)
    given = (weight, bias, running_mean, running_var)
    return _reference(x, given, (momentum, eps), dims, axis, training)


def _expand_instance_norm(
    builder: GraphBuilder, arg: Operand, weight: Operand | None, bias: Operand | None,
    running_mean: Operand | None, running_var: Operand | None, momentum: Operand, eps: Operand,
    use_input_stats: bool, channels_last: bool,
) -> tuple[Operand, ...]:  # fmt: skip
    place = _channels("instance_norm", arg, channels_last, batch=False)
    given = (weight, bias, running_mean, running_var)
    if not use_input_stats and running_mean is None:
        raise FusecError(
            "`instance_norm` without input statistics needs running_mean and running_var"
        )
    return _normalised(builder, place, arg, given, (momentum, eps), use_input_stats)


@composite(expand=_expand_instance_norm, equal=_same_channels, results=RESULTS)
def instance_norm(
    arg: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    use_input_stats: bool = True,
    momentum: Array = 0.1,
    eps: Array = 1e-5,
    channels_last: bool = False,
) -> Array:
    """Return (arg with mean 0 and variance 1 per sample and channel, the means, 1 / deviations).

    Channels are dim 1, or the last one. With running statistics there are two more results, their
    new values, averaged over the samples; without input statistics the running ones are used.
    """
    x = np.asarray(arg)
    axis = x.ndim - 1 if channels_last else 1
    dims = tuple(k for k in range(1, x.ndim) if k != axis)
    given = (weight, bias, running_mean, running_var)
    return _reference(x, given, (momentum, eps), dims, axis, use_input_stats)


def _expand_group_norm(
    builder: GraphBuilder, arg: Operand, weight: Operand | None, bias: Operand | None,
    eps: Operand, num_groups: Dim,
) -> Operand:  # fmt: skip
    place = _channels("group_norm", arg, False, batch=True)
    _check_parameters(place, arg, (weight, bias, None, None))
    batch, channels, *rest = arg.shape
    num_groups = with_constants(builder, num_groups)
    if dim(0).at_least(num_groups) or mod(channels, num_groups).at_least(1):
        raise FusecError(
            f"`group_norm`: {channels} channels are not divisible into {num_groups} groups",
            notes=[described([arg])],
        )
    grouped = [batch, num_groups, floordiv(channels, num_groups), *rest]
    wide = builder.apply("reshape", widen(builder, arg), new_shape=grouped)
    attributes = {"dims": list(range(2, len(grouped))), "correction": 0, "keepdim": True}
    var, mean = builder.call("var_mean", [wide], attributes)
    invstd = builder.apply("rsqrt", builder.apply("add", var, eps))
    y = builder.apply("mul", builder.apply("sub", wide, mean), invstd)
    y = builder.apply("reshape", y, new_shape=arg.shape)
    if weight is not None:
        y = builder.apply("mul", y, place.spread(builder, weight))
    if bias is not None:
        y = builder.apply("add", y, place.spread(builder, bias))
    return narrow(builder, y, arg)


@composite(expand=_expand_group_norm)
def group_norm(
    arg: Array,
    num_groups: Size,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: Array = 1e-5,
) -> Array:
    """Return arg with mean 0 and variance 1 per sample and group of channels (dim 1).

    Times the weight and plus the bias of each channel.
    """
    x = np.asarray(arg)
    rows = x.reshape(x.shape[0], num_groups, -1)
    mean, var = np.mean(rows, axis=-1, keepdims=True), np.var(rows, axis=-1, keepdims=True)
    y = ((rows - mean) / np.sqrt(var + eps)).reshape(x.shape)
    channel = (1, -1, *(1,) * (x.ndim - 2))
    y = y if weight is None else y * np.reshape(weight, channel)
    return y if bias is None else y + np.reshape(bias, channel)
