"""Convolutions that are something else: of patches side by side, and depthwise along one dim.

A convolution whose windows do not overlap is a GEMM of reshaped patches; a depthwise one along one
dim is a sum of shifted products. All others are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusec.ir.dim import Dim, floordiv, product
from fusec.models.graph import Argument
from fusec.models.rules.build import Build, rule

_HELP = (
    "run it outside of the model, and export what comes before and after it; non-overlapping "
    "windows (patches) and depthwise convolutions along one dim are supported"
)


@dataclass(frozen=True)
class Window:
    """Where a convolution reads, by its dims of space."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


@rule("aten.convolution.default")
def convolution(
    b: Build,
    input: Argument,
    weight: Argument,
    bias: Argument,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Argument,
    groups: int,
) -> str:
    """Return a convolution."""
    if transposed:
        raise b.unsupported("transposed convolutions have no kernels", _HELP)
    return _forward(b, (input, weight, bias), _window(b, weight, stride, padding, dilation, groups))


@rule("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
def conv(
    b: Build,
    input: Argument,
    weight: Argument,
    bias: Argument = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> str:
    """Return a convolution."""
    return _forward(b, (input, weight, bias), _window(b, weight, stride, padding, dilation, groups))


def _window(
    b: Build,
    weight: Argument,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Window:
    rank = len(b.shape_of(weight)) - 2

    def spread(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) * rank if len(values) == 1 else tuple(values)

    return Window(spread(stride), spread(padding), spread(dilation), groups)


def _are_patches(b: Build, weight: Argument, window: Window) -> bool:
    sides = b.shape_of(weight)[2:]
    return (
        all(side == step for side, step in zip(sides, window.stride, strict=True))
        and not any(window.padding)
        and all(d == 1 for d in window.dilation)
        and window.groups == 1
    )


def _is_depthwise(b: Build, weight: Argument, window: Window) -> bool:
    shape = b.shape_of(weight)
    return (
        len(shape) == 3
        and shape[0] == window.groups
        and shape[1] == 1
        and shape[2].is_const
        and window.stride == (1,)
        and window.dilation == (1,)
    )


def _rejected(b: Build, weight: Argument, window: Window) -> Exception:
    return b.unsupported(
        f"a convolution with a weight {_list(b.shape_of(weight))}, stride "
        f"{list(window.stride)}, padding {list(window.padding)}, groups {window.groups}, has no "
        "kernel",
        _HELP,
    )


def _forward(b: Build, operands: Sequence[Argument], window: Window) -> str:
    weight = operands[1]
    if _are_patches(b, weight, window):
        return _of_patches(b, operands)
    if _is_depthwise(b, weight, window):
        return _of_shifts(b, operands, window)
    raise _rejected(b, weight, window)


# -- windows side by side


def _patches(b: Build, input: Argument, weight: Argument) -> str:
    """Return the patches of an input as rows: [N, H', W', C * kh * kw]."""
    shape, sides = b.shape_of(input), b.shape_of(weight)[2:]
    counts = [floordiv(s, k) for s, k in zip(shape[2:], sides, strict=True)]
    whole = [c * k for c, k in zip(counts, sides, strict=True)]
    text = b.text(input)
    if tuple(whole) != shape[2:]:
        ends = [*shape[:2], *whole]
        text = f"slice({text}, [{', '.join('0' for _ in ends)}], {_list(ends)})"
    parts = [shape[0], shape[1], *(d for pair in zip(counts, sides, strict=True) for d in pair)]
    rank = len(sides)
    order = [0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2)]
    rows = [shape[0], *counts, shape[1] * product(sides)]
    return b.let(
        f"reshape(permute(reshape({text}, {_list(parts)}), {order}), {_list(rows)})", "patches"
    )


def _list(sizes: Sequence[Dim | int]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _flat_weight(b: Build, weight: Argument) -> str:
    shape = b.shape_of(weight)
    return f"reshape({b.text(weight)}, {_list([shape[0], product(shape[1:])])})"


def _of_patches(b: Build, operands: Sequence[Argument]) -> str:
    input, weight, bias = operands
    rank = len(b.shape_of(weight)) - 2
    added = "" if bias is None else f", {b.text(bias)}"
    rows = f"linear({_patches(b, input, weight)}, {_flat_weight(b, weight)}{added})"
    channels_first = [0, rank + 1, *range(1, rank + 1)]
    return f"permute({b.let(rows, 'rows')}, {channels_first})"


def _patches_backward(
    b: Build, grad: Argument, input: Argument, weight: Argument
) -> tuple[str, str]:
    """Return the gradients of the input and the weight."""
    shape, weights = b.shape_of(input), b.shape_of(weight)
    rank, sides = len(weights) - 2, weights[2:]
    counts = [floordiv(s, k) for s, k in zip(shape[2:], sides, strict=True)]
    last = [0, *range(2, rank + 2), 1]
    width, rows = product(weights[1:]), product([shape[0], *counts])
    g = b.let(f"reshape(permute({b.text(grad)}, {last}), {_list([rows, weights[0]])})", "grad_rows")
    patches = f"reshape({_patches(b, input, weight)}, {_list([rows, width])})"
    of_weight = f"reshape(transpose({g}, 0, 1) @ {patches}, {_list(weights)})"
    parts = [shape[0], *counts, shape[1], *sides]
    back = [0, rank + 1, *(d for k in range(rank) for d in (1 + k, rank + 2 + k))]
    whole = [shape[0], shape[1], *(c * k for c, k in zip(counts, sides, strict=True))]
    text = f"reshape({b.let(f'{g} @ {_flat_weight(b, weight)}', 'grad_patches')}, {_list(parts)})"
    text = f"reshape(permute({text}, {back}), {_list(whole)})"
    cropped = [s - w for s, w in zip(shape[2:], whole[2:], strict=True)]
    if any(c != 0 for c in cropped):
        widths = [w for c in reversed(cropped) for w in (0, c)]
        text = f"pad({text}, {_list(widths)})"
    return text, of_weight


# -- depthwise, along one dim


def _of_shifts(b: Build, operands: Sequence[Argument], window: Window) -> str:
    input, weight, bias = operands
    length = b.shape[2]
    padded = _padded(b, b.in_f32(input), window.padding[0], window.padding[0], "padded")
    terms = _shifted(b, padded, weight, length, reverse=False)
    if bias is not None:
        terms += f" + unsqueeze({b.in_f32(bias)}, 1)"
    dtype = b.result.dtype
    return f"cast({terms}, {dtype})" if dtype.is_half else terms


def _padded(b: Build, text: str, before: int, after: int, word: str) -> str:
    return b.let(f"pad({text}, [{before}, {after}])" if before or after else text, word)


def _shifted(b: Build, padded: str, weight: Argument, length: Dim, *, reverse: bool) -> str:
    """Return the sum of a padded tensor's shifts times the weights of each channel."""
    count = b.shape_of(weight)[2].value
    wide = b.let(b.in_f32(weight), "weight")
    return " + ".join(
        f"narrow({padded}, 2, {count - 1 - k if reverse else k}, {length}) * "
        f"narrow(select({wide}, 0, 1), 1, {k}, 1)"
        for k in range(count)
    )


def _shifts_backward(
    b: Build, grad: Argument, input: Argument, weight: Argument, window: Window
) -> tuple[str, str]:
    """Return the gradients of the input and the weight."""
    count, (padding,) = b.shape_of(weight)[2].value, window.padding
    shape, length = b.shape_of(input), b.shape_of(grad)[2]
    g = b.let(b.in_f32(grad), "grad")
    edge = count - 1 - padding
    of_input = _shifted(b, _padded(b, g, edge, edge, "edges"), weight, shape[2], reverse=True)
    padded = _padded(b, b.in_f32(input), padding, padding, "padded")
    sums = [f"sum({g} * narrow({padded}, 2, {k}, {length}), [0, 2])" for k in range(count)]
    names = [b.let(text, f"tap{k}") for k, text in enumerate(sums)]
    of_weight = f"unsqueeze(stack([{', '.join(names)}], 1), 1)"
    dtype = b.dtype_of(input)
    if not dtype.is_half:
        return of_input, of_weight
    return f"cast({of_input}, {dtype})", f"cast({of_weight}, {dtype})"


@rule("aten.convolution_backward.default")
def convolution_backward(
    b: Build,
    grad_output: Argument,
    input: Argument,
    weight: Argument,
    bias_sizes: Argument,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Argument,
    groups: int,
    output_mask: Sequence[bool],
) -> list[str | None]:
    """Return the gradients of the input, the weight and the bias."""
    window = _window(b, weight, stride, padding, dilation, groups)
    if transposed:
        raise b.unsupported("transposed convolutions have no kernels", _HELP)
    if _are_patches(b, weight, window):
        of_input, of_weight = _patches_backward(b, grad_output, input, weight)
    elif _is_depthwise(b, weight, window):
        of_input, of_weight = _shifts_backward(b, grad_output, input, weight, window)
    else:
        raise _rejected(b, weight, window)
    axes = [k for k in range(len(b.shape_of(grad_output))) if k != 1]
    found = (of_input, of_weight, f"sum({b.text(grad_output)}, {axes})")
    return [text if wanted else None for text, wanted in zip(found, output_mask, strict=True)]
