"""What PyTorch has for the products that `benchmarks.products` makes up; as in `rows`.

The type `f` is that of the products' operands: bf16 as cuBLAS takes them, or f64 to compare with.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

bf16 = torch.bfloat16


def product_nt(a: Tensor, b: Tensor, f: Any = bf16) -> Tensor:
    return torch.matmul(a.to(f), b.to(f).T).to(a.dtype)


def product_nn(a: Tensor, b: Tensor, f: Any = bf16) -> Tensor:
    return torch.matmul(a.to(f), b.to(f)).to(a.dtype)


def product_tn(a: Tensor, b: Tensor, f: Any = bf16) -> Tensor:
    return torch.matmul(a.to(f).T, b.to(f)).to(a.dtype)


def product_gelu(a: Tensor, b: Tensor, bias: Tensor, f: Any = bf16) -> Tensor:
    h = F.linear(a.to(f), b.to(f), bias.to(f)).to(a.dtype)
    return F.gelu(h.to(f), approximate="tanh").to(a.dtype)


def product_silu_mul(a: Tensor, b: Tensor, bias: Tensor, r: Tensor, f: Any = bf16) -> Tensor:
    h = F.linear(a.to(f), b.to(f), bias.to(f)).to(a.dtype)
    return (F.silu(h.to(f)).to(a.dtype).to(f) * r.to(f)).to(a.dtype)
