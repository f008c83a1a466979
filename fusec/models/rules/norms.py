"""Normalizations that also return what their backward pass reads."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.dtype import F32, DType
from fusec.models.graph import Argument
from fusec.models.rules.build import Build, axis_of, rule


@rule("aten.native_layer_norm.default")
def native_layer_norm(
    b: Build,
    input: Argument,
    normalized_shape: Sequence[Argument],
    weight: Argument,
    bias: Argument,
    eps: float,
) -> list[str]:
    """Return the output, the means and reciprocal standard deviations."""
    operands = ", ".join(map(b.text, (input, list(normalized_shape), weight, bias, eps)))
    rank, count = len(b.shape_of(input)), len(normalized_shape)
    axes = list(range(rank - count, rank))
    wide = b.in_f32(input)
    moments = f"var_mean({wide}, {axes}, 0, true)"
    return [f"layer_norm({operands})", *_statistics(b, input, moments, eps)]


def _statistics(b: Build, input: Argument, moments: str, eps: float) -> list[str]:
    """Return the means and reciprocal standard deviations, given variances and means."""
    var, mean = b.let_all(moments, ("var", "mean"))
    own = _wide(b, input)
    return [
        b.cast(mean, own, b.result_dtype(1)),
        b.cast(f"rsqrt({var} + {eps})", own, b.result_dtype(2)),
    ]


@rule("aten.rms_norm.default")
def rms_norm(
    b: Build,
    input: Argument,
    normalized_shape: Sequence[Argument],
    weight: Argument = None,
    eps: float | None = None,
) -> str:
    """Normalize by the root mean square; the default eps is that of the compute type."""
    epsilons = {"f32": 1.1920928955078125e-07, "f64": 2.220446049250313e-16}
    small = epsilons[_wide(b, input).name] if eps is None else eps
    return f"rms_norm({', '.join(map(b.text, (input, list(normalized_shape), weight, small)))})"


@rule("aten.native_group_norm.default")
def native_group_norm(
    b: Build,
    input: Argument,
    weight: Argument,
    bias: Argument,
    N: Argument,
    C: Argument,
    HxW: Argument,
    group: int,
    eps: float,
) -> list[str]:
    """Return the output, the means and reciprocal standard deviations of the groups."""
    operands = ", ".join(map(b.text, (input, group, weight, bias, eps)))
    shape = b.shape_of(input)
    count = shape[1].divide(group)
    if count is None:
        raise b.unsupported(f"its {shape[1]} channels are not a multiple of {group} groups")
    grouped = (shape[0], group, count, *shape[2:])
    wide = f"reshape({b.in_f32(input)}, [{', '.join(map(str, grouped))}])"
    axes = list(range(2, len(grouped)))
    moments = f"var_mean({wide}, {axes}, 0)"
    return [f"group_norm({operands})", *_statistics(b, input, moments, eps)]


@rule("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    b: Build,
    input: Argument,
    weight: Argument,
    bias: Argument,
    running_mean: Argument,
    running_var: Argument,
    training: bool,
    momentum: float,
    eps: float,
) -> list[str]:
    """Return the output, means, reciprocal deviations, and the new running means and variances."""
    if not training:
        raise b.unsupported("it does not train, and its running statistics stay")
    shape = b.shape_of(input)
    results, var = _batch(b, input, weight, bias, eps)
    mean = results[1]
    count = " * ".join(f"({e})" for k, e in enumerate(shape) if k != 1)
    fresh = f"{var} * (({count}) / ({count} - 1))"
    for old, new in ((running_mean, mean), (running_var, fresh)):
        results.append(f"{b.text(old)} * {1 - momentum!r} + {new} * {momentum!r}")
    return results


def _batch(
    b: Build, input: Argument, weight: Argument, bias: Argument, eps: float
) -> tuple[list[str], str]:
    """Return the output, means and reciprocal deviations over all dims but 1, and the variances."""
    shape = b.shape_of(input)
    axes = [k for k in range(len(shape)) if k != 1]
    sides = ["1"] * len(shape)
    sides[1] = str(shape[1])
    wide = b.in_f32(input)
    var, mean = b.let_all(f"var_mean({wide}, {axes}, 0)", ("var", "mean"))
    deviation = b.let(f"rsqrt({var} + {eps})", "rstd")
    of = f"reshape({{}}, [{', '.join(sides)}])"
    text = f"({wide} - {of.format(mean)}) * {of.format(deviation)}"
    text += "" if weight is None else f" * {of.format(b.text(weight))}"
    text += "" if bias is None else f" + {of.format(b.text(bias))}"
    return [b.cast(text, _wide(b, input), b.result.dtype), mean, deviation], var


@rule("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    b: Build,
    input: Argument,
    weight: Argument,
    bias: Argument,
    training: bool,
    momentum: float,
    eps: float,
) -> list[str]:
    """Return the output, means and reciprocal standard deviations of the batch."""
    del training, momentum  # without running statistics it always uses those of the batch
    return _batch(b, input, weight, bias, eps)[0]


@rule("aten.instance_norm.default")
def instance_norm(
    b: Build,
    input: Argument,
    weight: Argument,
    bias: Argument,
    running_mean: Argument,
    running_var: Argument,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> str:
    """Normalize each channel of each sample."""
    if running_mean is not None or running_var is not None or not use_input_stats:
        raise b.unsupported("it has running statistics", "use `track_running_stats=False`")
    operands = ", ".join(map(b.text, (input, weight, bias)))
    return b.let_all(f"instance_norm({operands}, eps={b.text(eps)})", ("output", "_", "_"))[0]


@rule("aten._weight_norm.default")
def weight_norm(b: Build, v: Argument, g: Argument, dim: int = 0) -> str:
    """Return v scaled to the norms g along a dim."""
    rank = len(b.shape_of(v))
    axes = [k for k in range(rank) if k != axis_of(dim, rank)]
    return f"{b.text(v)} * ({b.text(g)} / norm({b.text(v)}, 2.0, {axes}, keepdim=true))"


def _wide(b: Build, tensor: Argument) -> DType:
    dtype = b.dtype_of(tensor)
    return F32 if dtype.is_half else dtype
