"""What PyTorch has for the workloads that work on rows and channels.

A function has the name of its fusion file and takes its inputs; `f` is the type that it computes
in, f64 where its results are what others are compared with. Parameters that have to be named are
dims of the file.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

f32 = torch.float32


def softmax(x: Tensor, f: Any = f32) -> Tensor:
    return torch.softmax(x.to(f), -1).to(x.dtype)


def masked_softmax(scores: Tensor, keep: Tensor, f: Any = f32) -> Tensor:
    s = torch.where(keep[:, None, None, :], scores.to(f) * 0.125, -1e9)
    return torch.softmax(s, -1).to(scores.dtype)


def softmax_backward(y: Tensor, dy: Tensor, f: Any = f32) -> Tensor:
    yf, dyf = y.to(f), dy.to(f)
    return (yf * (dyf - (yf * dyf).sum(-1, keepdim=True))).to(y.dtype)


def rmsnorm(x: Tensor, w: Tensor, f: Any = f32) -> Tensor:
    xf = x.to(f)
    rstd = torch.rsqrt(xf.square().mean(-1, keepdim=True) + 1e-6)
    return (xf * rstd * w.to(f)).to(x.dtype)


def layernorm(x: Tensor, w: Tensor, b: Tensor, f: Any = f32) -> Tensor:
    return F.layer_norm(x.to(f), w.shape, w.to(f), b.to(f), 1e-5).to(x.dtype)


def layernorm_backward(
    x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    dyf, xn = dy.to(f), (x.to(f) - mean) * rstd
    dxn = dyf * w.to(f)
    along = xn * (xn * dxn).mean(-1, keepdim=True) + dxn.mean(-1, keepdim=True)
    dx = ((dxn - along) * rstd).to(x.dtype)
    return dx, (dyf * xn).sum(0).to(x.dtype), dyf.sum(0).to(x.dtype)


def rmsnorm_backward(
    x: Tensor, w: Tensor, rstd: Tensor, dy: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    dyf, xn = dy.to(f), x.to(f) * rstd
    dxn = dyf * w.to(f)
    dx = (dxn - xn * (xn * dxn).mean(-1, keepdim=True)) * rstd
    return dx.to(x.dtype), (dyf * xn).sum(0).to(x.dtype)


def dropout_residual_rmsnorm(x: Tensor, r: Tensor, w: Tensor, f: Any = f32) -> tuple[Tensor, ...]:
    keep = torch.rand(x.shape, dtype=f32, device=x.device) < 0.9
    h = torch.where(keep, x.to(f) / 0.9, 0.0) + r.to(f)
    rstd = torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)
    return (h * rstd * w.to(f)).to(x.dtype), h.to(x.dtype), rstd


def dropout_residual_rmsnorm_backward(
    total: Tensor, w: Tensor, rstd: Tensor, dy: Tensor, dsum: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    keep = torch.rand(dy.shape, dtype=f32, device=dy.device) < 0.9
    dyf, xn = dy.to(f), total.to(f) * rstd
    dxn = dyf * w.to(f)
    dh = (dxn - xn * (xn * dxn).mean(-1, keepdim=True)) * rstd + dsum.to(f)
    dx = torch.where(keep, dh / 0.9, 0.0)
    return dx.to(dy.dtype), dh.to(dy.dtype), (dyf * xn).sum(0).to(dy.dtype)


def add_rmsnorm(x: Tensor, r: Tensor, w: Tensor, f: Any = f32) -> tuple[Tensor, ...]:
    h = x.to(f) + r.to(f)
    rstd = torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)
    return (h * rstd * w.to(f)).to(x.dtype), h.to(x.dtype)


def add_rmsnorm_fp8(x: Tensor, r: Tensor, w: Tensor, f: Any = f32) -> tuple[Tensor, ...]:
    h = x.to(f) + r.to(f)
    y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * w.to(f)
    return *_quantised(y), h.to(x.dtype)


def quantize_fp8_rows(x: Tensor, f: Any = f32) -> tuple[Tensor, ...]:
    return _quantised(x.to(f))


def _quantised(y: Tensor) -> tuple[Tensor, Tensor]:
    scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
    return (y / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), scale


def _batchnorm(x: Tensor, w: Tensor, b: Tensor, dims: tuple[int, ...], f: Any) -> Tensor:
    xf = x.to(f)
    var, mean = torch.var_mean(xf, dims, correction=0, keepdim=True)
    shape = mean.shape
    xn = (xf - mean) * torch.rsqrt(var + 1e-5)
    return (xn * w.to(f).view(shape) + b.to(f).view(shape)).to(x.dtype)


def batchnorm_nchw(x: Tensor, w: Tensor, b: Tensor, f: Any = f32) -> Tensor:
    return _batchnorm(x, w, b, (0, 2, 3), f)


def batchnorm_nhwc(x: Tensor, w: Tensor, b: Tensor, f: Any = f32) -> Tensor:
    return _batchnorm(x, w, b, (0, 1, 2), f)


def _batchnorm_backward(
    x: Tensor, w: Tensor, centre: Tensor, rstd: Tensor, dy: Tensor, channel: int, f: Any
) -> tuple[Tensor, ...]:
    dims = tuple(k for k in range(4) if k != channel)
    shape = tuple(x.shape[k] if k == channel else 1 for k in range(4))
    dyf, scale = dy.to(f), rstd.view(shape)
    xn = (x.to(f) - centre.view(shape)) * scale
    along = dyf.mean(dims, keepdim=True) + xn * (dyf * xn).mean(dims, keepdim=True)
    dx = scale * w.to(f).view(shape) * (dyf - along)
    return dx.to(x.dtype), (dyf * xn).sum(dims), dyf.sum(dims)


def batchnorm_nchw_backward(
    x: Tensor, w: Tensor, centre: Tensor, rstd: Tensor, dy: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    return _batchnorm_backward(x, w, centre, rstd, dy, 1, f)


def batchnorm_nhwc_backward(
    x: Tensor, w: Tensor, centre: Tensor, rstd: Tensor, dy: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    return _batchnorm_backward(x, w, centre, rstd, dy, 3, f)


def groupnorm_nchw(x: Tensor, w: Tensor, b: Tensor, f: Any = f32, *, G: int) -> Tensor:
    return F.group_norm(x.to(f), G, w.to(f), b.to(f), 1e-5).to(x.dtype)


def groupnorm_nhwc(x: Tensor, w: Tensor, b: Tensor, f: Any = f32, *, G: int) -> Tensor:
    xf = x.to(f).unflatten(3, (G, -1))
    var, mean = torch.var_mean(xf, (1, 2, 4), correction=0, keepdim=True)
    xn = ((xf - mean) * torch.rsqrt(var + 1e-5)).flatten(3)
    return F.silu(xn * w.to(f) + b.to(f)).to(x.dtype)


def groupnorm_nchw_backward(
    x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    dyf = dy.to(f)
    xn = (x.to(f).unflatten(1, (mean.shape[1], -1)) - mean) * rstd
    dxn = (dyf * w.to(f)[:, None, None]).unflatten(1, (mean.shape[1], -1))
    dx = _normed_backward(xn, dxn, rstd, (2, 3, 4)).flatten(1, 2)
    dims = (0, 2, 3)
    dw = (dyf * xn.flatten(1, 2)).sum(dims)
    return dx.to(x.dtype), dw.to(x.dtype), dyf.sum(dims).to(x.dtype)


def groupnorm_nhwc_backward(
    x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    dyf = dy.to(f)
    xn = (x.to(f).unflatten(3, (mean.shape[3], -1)) - mean) * rstd
    dxn = (dyf * w.to(f)).unflatten(3, (mean.shape[3], -1))
    dx = _normed_backward(xn, dxn, rstd, (1, 2, 4)).flatten(3)
    dims = (0, 1, 2)
    dw = (dyf * xn.flatten(3)).sum(dims)
    return dx.to(x.dtype), dw.to(x.dtype), dyf.sum(dims).to(x.dtype)


def _normed_backward(xn: Tensor, dxn: Tensor, rstd: Tensor, dims: tuple[int, ...]) -> Tensor:
    along = xn * (dxn * xn).mean(dims, keepdim=True) + dxn.mean(dims, keepdim=True)
    return (dxn - along) * rstd


def cross_entropy(logits: Tensor, target: Tensor, f: Any = f32) -> Tensor:
    return F.cross_entropy(logits.to(f), target, reduction="none")


def moe_gate(logits: Tensor, f: Any = f32) -> tuple[Tensor | None, ...]:
    best, _ = torch.topk(torch.softmax(logits.to(f), -1), 8, -1)
    return best / best.sum(-1, keepdim=True), None


def argmax(x: Tensor, f: Any = f32) -> Tensor:
    return x.argmax(-1)


def topk_rows(x: Tensor, f: Any = f32) -> tuple[Tensor | None, ...]:
    return torch.topk(x, 8, -1)[0], None


def topk_words(x: Tensor, f: Any = f32) -> tuple[Tensor | None, ...]:
    return torch.topk(x, 50, -1)[0], None


def cumsum_rows(x: Tensor, f: Any = f32) -> Tensor:
    return x.to(f).cumsum(1)


def cumsum_columns(x: Tensor, f: Any = f32) -> Tensor:
    return x.to(f).cumsum(0)


def cumsum_all(x: Tensor, f: Any = f32) -> Tensor:
    return x.to(f).cumsum(0)


def cummax_rows(x: Tensor, f: Any = f32) -> Tensor:
    return x.cummax(1)[0]
