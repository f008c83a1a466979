"""What the rows of `benchmarks.operands` compute, in fp64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

f64 = torch.float64


def operands_fp8(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    return F.linear(a.to(f64), b.to(f64)) * s.to(f64) * t.to(f64)


def operands_joined(a: Tensor, v: Tensor, w: Tensor) -> Tensor:
    g, u = (F.linear(a.to(f64), b.to(f64)).to(a.dtype).to(f64) for b in (v, w))
    return F.silu(g) * u


def operands_weighted(a: Tensor, w: Tensor, t: Tensor) -> Tensor:
    return F.linear(a.to(f64), w.to(f64) * t.to(f64))


def operands_blocks(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    rows = a.to(f64).unflatten(1, (-1, 128)) * s.to(f64)[:, :, None]
    columns = b.to(f64).unflatten(1, (-1, 128)).unflatten(0, (-1, 128))
    columns = columns * t.to(f64)[:, None, :, None]
    return F.linear(rows.flatten(1), columns.flatten(0, 1).flatten(1))


def unpacked(w: Tensor, t: Tensor) -> Tensor:
    codes = torch.stack([w & 15, w >> 4], 2).flatten(1).to(t.dtype) - 8
    return (codes.unflatten(1, (-1, 128)) * t[:, :, None]).flatten(1)


def operands_packed(a: Tensor, w: Tensor, t: Tensor) -> Tensor:
    return F.linear(a.to(f64), unpacked(w, t).to(f64))


def unpacked_across(w: Tensor, z: Tensor, t: Tensor) -> Tensor:
    codes, zeros = (torch.stack([x & 15, x >> 4], 2).flatten(1).to(t.dtype) for x in (w, z))
    return ((codes.unflatten(0, (-1, 128)) - zeros[:, None]) * t[:, None]).flatten(0, 1)


def operands_tf32(a: Tensor, b: Tensor) -> Tensor:
    return F.linear(a.to(f64), b.to(f64))


def operands_tf32across(a: Tensor, b: Tensor) -> Tensor:
    return a.to(f64) @ b.to(f64)


def operands_across(a: Tensor, w: Tensor, z: Tensor, t: Tensor) -> Tensor:
    return a.to(f64) @ unpacked_across(w, z, t).to(f64)
