"""Pooling with non-overlapping windows, and upsampling by integer factors."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.dim import Dim, floordiv
from fusec.models.graph import Argument
from fusec.models.rules.build import Build, rule, size_texts

_HELP = "windows that do not overlap (stride equal to the kernel, no padding) are supported"


def _rank(b: Build) -> int:
    """Return the number of spatial dims of `max_pool2d` and similar, from the name."""
    return int(b.node.operation.partition("pool")[2][0])


def _spread(values: Sequence[int], rank: int) -> list[int]:
    return list(values) * rank if len(values) == 1 else list(values)


def _windows(b: Build, text: str, shape: Sequence[Dim], sides: Sequence[int | Dim]) -> str:
    """Return an image [..., H, W] as [..., H', kh, W', kw], without elements outside windows."""
    rank = len(sides)
    lead, space = shape[: len(shape) - rank], shape[len(shape) - rank :]
    counts = [floordiv(s, k) for s, k in zip(space, sides, strict=True)]
    whole = [c * k for c, k in zip(counts, sides, strict=True)]
    if tuple(whole) != tuple(space):
        ends = (*lead, *whole)
        text = f"slice({text}, [{', '.join('0' for _ in ends)}], {size_texts(ends)})"
    parts = [part for pair in zip(counts, sides, strict=True) for part in pair]
    return f"reshape({text}, [{', '.join(map(str, (*lead, *parts)))}])"


def _pooled(b: Build, input: Argument, sides: Sequence[int | Dim], name: str) -> str:
    shape, rank = b.shape_of(input), len(sides)
    axes = [len(shape) - rank + 2 * k + 1 for k in range(rank)]
    return f"{name}({_windows(b, b.text(input), shape, sides)}, {axes})"


def _check(
    b: Build,
    sides: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> None:
    rank = len(sides)
    same = not stride or _spread(stride, rank) == list(sides)
    if not same or any(padding) or any(d != 1 for d in dilation) or ceil_mode:
        raise b.unsupported("overlapping or padded windows have no kernels", _HELP)


@rule(
    "aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default",
    "aten.max_pool2d_with_indices.default",
)  # fmt: skip
def max_pool(
    b: Build,
    self: Argument,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> list[str | None]:
    """Return the maximum of each window; indices are not supported."""
    sides = _spread(kernel_size, _rank(b))
    _check(b, sides, stride, padding, dilation, ceil_mode)
    return [_pooled(b, self, sides, "max"), None]


@rule("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    b: Build,
    self: Argument,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> str:
    """Return the mean of each window."""
    sides = _spread(kernel_size, _rank(b))
    _check(b, sides, stride, padding, (1,), ceil_mode)
    if divisor_override is not None:
        raise b.unsupported("its divisor is not the size of the window")
    return _pooled(b, self, sides, "mean")


@rule(
    "aten.adaptive_avg_pool1d.default", "aten.adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
)  # fmt: skip
def adaptive_avg_pool(b: Build, self: Argument, output_size: Sequence[int]) -> str:
    """Return the mean of equal windows, as many as the result has elements."""
    shape, rank = b.shape_of(self), len(output_size)
    sides = [s.divide(n) for s, n in zip(shape[-rank:], output_size, strict=True)]
    known = [s for s in sides if s is not None]
    if len(known) < rank:
        raise b.unsupported("its windows differ in size")
    return _pooled(b, self, known, "mean")


@rule("aten.upsample_nearest2d.vec")
def upsample(
    b: Build,
    input: Argument,
    output_size: Argument = None,
    scale_factors: Sequence[float] | None = None,
) -> str:
    """Repeat each element of an image by integer factors."""
    return _enlarged(b, input, scale_factors or (None, None))


@rule("aten.upsample_nearest2d.default")
def upsample_by_size(
    b: Build,
    self: Argument,
    output_size: Argument,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> str:
    """Repeat each element of an image by integer factors."""
    return _enlarged(b, self, (scales_h, scales_w))


def _enlarged(b: Build, source: Argument, scales: Sequence[float | None]) -> str:
    """Return an image upsampled to the node's result.

    A given scale, not the sizes, determines which element is read, `floor(index / scale)`: 3.2
    makes 9 elements of 3, four of them from the first one.
    """
    shape, result = b.shape_of(source), b.shape
    factors = [r.divide(s) for r, s in zip(result[2:], shape[2:], strict=True)]
    differ = (s is not None and str(f) != f"{s:g}" for f, s in zip(factors, scales, strict=True))
    if any(f is None for f in factors) or any(differ):
        raise b.unsupported("images are enlarged by whole factors alone")
    parts = [p for s, f in zip(shape[2:], factors, strict=True) for p in (str(s), str(f))]
    ones = [p for s in shape[2:] for p in (str(s), "1")]
    lead = [str(s) for s in shape[:2]]
    once = f"reshape({b.text(source)}, [{', '.join(lead + ones)}])"
    return f"reshape(expand({once}, [{', '.join(lead + parts)}]), {size_texts(result)})"
