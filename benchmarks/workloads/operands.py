"""What the rows of `benchmarks.operands` compute, in fp64."""

from __future__ import annotations

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
f64 = torch.float64


def operands_fp8(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    return F.linear(a.to(f64), b.to(f64)) * s.to(f64) * t.to(f64)


def operands_joined(a: Tensor, v: Tensor, w: Tensor) -> Tensor:
    g, u = (F.linear(a.to(f64), b.to(f64)).to(a.dtype).to(f64) for b in (v, w))
    return F.silu(g) * u


def operands_weighted(a: Tensor, w: Tensor, t: Tensor) -> Tensor:
    return F.linear(a.to(f64), w.to(f64) * t.to(f64))
