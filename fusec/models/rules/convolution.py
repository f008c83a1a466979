"""Convolutions with non-overlapping windows, and depthwise ones.

A convolution whose windows do not overlap is a GEMM of reshaped patches; a depthwise one is a sum
of shifted products. All others are rejected.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, floordiv, product
from fusec.models.graph import Argument
from fusec.models.rules.build import Build, rule

_HELP = (
    "run it outside of the model, and export what comes before and after it; non-overlapping "
    "windows (patches) and depthwise convolutions of stride 1 are supported"
)
MOST_TAPS = 64
"""Maximum taps of a depthwise window: each is a multiplication of its own."""


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution's windows, by spatial dim."""

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


@rule("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv_padded(
    b: Build,
    input: Argument,
    weight: Argument,
    bias: Argument = None,
    stride: Sequence[int] = (1,),
    padding: str = "valid",
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> str:
    """Return a convolution without padding, or with padding that keeps the size."""
    sides = [b.integer(s, "kernel") for s in b.shape_of(weight)[2:]]
    if padding != "valid" and any(s % 2 == 0 for s in sides):
        raise b.unsupported("its padding differs at both ends", _HELP)
    widths = [0 if padding == "valid" else s // 2 for s in sides]
    window = _window(b, weight, stride, widths, dilation, groups)
    return _forward(b, (input, weight, bias), window)


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
    taps = product(shape[2:])
    return (
        shape[0] == window.groups
        and shape[1] == 1
        and taps.is_const
        and taps.value <= MOST_TAPS
        and all(step == 1 for step in (*window.stride, *window.dilation))
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


# -- non-overlapping windows


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


# -- depthwise


def _of_shifts(b: Build, operands: Sequence[Argument], window: Window) -> str:
    input, weight, bias = operands
    space = b.shape[2:]
    padded = _padded(b, b.in_f32(input), window.padding, "padded")
    terms = _shifted(b, padded, weight, space, reverse=False)
    if bias is not None:
        sides = ", ".join("1" for _ in space)
        terms += f" + reshape({b.in_f32(bias)}, [{b.shape_of(bias)[0]}, {sides}])"
    dtype = b.result.dtype
    return f"cast({terms}, {dtype})" if dtype.is_half else terms


def _padded(b: Build, text: str, widths: Sequence[int], word: str) -> str:
    pairs = [w for width in reversed(widths) for w in (width, width)]
    return b.let(f"pad({text}, {pairs})" if any(widths) else text, word)


def _taps(b: Build, weight: Argument) -> Iterator[tuple[int, ...]]:
    """Yield the positions in a window."""
    return iter(list(itertools.product(*(range(e.value) for e in b.shape_of(weight)[2:]))))


def _part(text: str, at: Sequence[int], space: Sequence[Dim]) -> str:
    """Return a slice of a padded tensor's spatial dims."""
    for k, (start, length) in enumerate(zip(at, space, strict=True)):
        text = f"narrow({text}, {k + 2}, {start}, {length})"
    return text


def _shifted(
    b: Build, padded: str, weight: Argument, space: Sequence[Dim], *, reverse: bool
) -> str:
    """Return the sum of a padded tensor's shifts times the weights of each channel."""
    shape = b.shape_of(weight)
    wide = b.let(f"reshape({b.in_f32(weight)}, {_list([shape[0], *shape[2:]])})", "weight")
    terms: list[str] = []
    for tap in _taps(b, weight):
        at = [e.value - 1 - k for e, k in zip(shape[2:], tap, strict=True)] if reverse else tap
        factor = wide
        for axis, k in enumerate(tap):
            factor = f"narrow({factor}, {axis + 1}, {k}, 1)"
        terms.append(f"{_part(padded, at, space)} * {factor}")
    return " + ".join(terms)


def _shifts_backward(
    b: Build, grad: Argument, input: Argument, weight: Argument, window: Window
) -> tuple[str, str]:
    """Return the gradients of the input and the weight."""
    shape, weights, space = b.shape_of(input), b.shape_of(weight), b.shape_of(grad)[2:]
    g = b.let(b.in_f32(grad), "grad")
    edges = [e.value - 1 - p for e, p in zip(weights[2:], window.padding, strict=True)]
    of_input = _shifted(b, _padded(b, g, edges, "edges"), weight, shape[2:], reverse=True)
    padded = _padded(b, b.in_f32(input), window.padding, "padded")
    axes = [0, *range(2, len(shape))]
    sums = [f"sum({g} * {_part(padded, tap, space)}, {axes})" for tap in _taps(b, weight)]
    names = [b.let(text, f"tap{k}") for k, text in enumerate(sums)]
    of_weight = f"reshape(stack([{', '.join(names)}], 1), {_list(weights)})"
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
