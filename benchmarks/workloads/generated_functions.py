"""What PyTorch has for the fusions that `benchmarks.generated` makes up; as in `rows`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

f32 = torch.float32


def scaled_sum(x: Tensor, y: Tensor, f: Any = f32) -> Tensor:
    return (x.to(f) * 1.5 + y.to(f)).to(x.dtype)


def row_softmax(x: Tensor, f: Any = f32) -> Tensor:
    return torch.softmax(x.to(f), -1).to(x.dtype)


def row_norm(x: Tensor, w: Tensor, f: Any = f32) -> Tensor:
    xf = x.to(f)
    return (xf * torch.rsqrt(xf.square().mean(-1, keepdim=True) + 1e-6) * w.to(f)).to(x.dtype)


def row_sum(x: Tensor, f: Any = f32) -> Tensor:
    return x.to(f).sum(-1)


def column_sum(x: Tensor, f: Any = f32) -> Tensor:
    return x.to(f).sum(0)


def sliced(x: Tensor, f: Any = f32) -> Tensor:
    start = min(3, x.shape[-1] - 1)
    return (x[..., start:].to(f) * 1.5).to(x.dtype)
