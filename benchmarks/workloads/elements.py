"""What PyTorch has for the workloads on elements, sums and tables; as in `rows`.

Functions that write into an input do so in place, as their fusions do. Parameters that have to be
named are dims of the file.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

f32 = torch.float32


def gelu_bias(x: Tensor, b: Tensor, f: Any = f32) -> Tensor:
    return F.gelu(x.to(f) + b.to(f), approximate="tanh").to(x.dtype)


def gelu_bias_backward(x: Tensor, b: Tensor, dy: Tensor, f: Any = f32) -> tuple[Tensor, ...]:
    z = x.to(f) + b.to(f)
    t = torch.tanh(0.7978845608028654 * z * (1 + 0.044715 * z * z))
    slope = 0.7978845608028654 * (1 + 0.134145 * z * z)
    dx = dy.to(f) * (0.5 * (1 + t) + 0.5 * z * (1 - t * t) * slope)
    return dx.to(x.dtype), dx.sum(0).to(x.dtype)


def silu_mul(gate: Tensor, up: Tensor, f: Any = f32) -> Tensor:
    return (F.silu(gate.to(f)) * up.to(f)).to(gate.dtype)


def swiglu_backward(gate: Tensor, up: Tensor, dy: Tensor, f: Any = f32) -> tuple[Tensor, ...]:
    g, dyf = gate.to(f), dy.to(f)
    s = torch.sigmoid(g)
    dg, du = dyf * up.to(f) * s * (1 + g * (1 - s)), dyf * g * s
    whole, sums = (dg.to(gate.dtype), du.to(gate.dtype)), (dg.sum(0), du.sum(0))
    return *whole, *(t.to(gate.dtype) for t in sums)


def pointwise_chain(a: Tensor, b: Tensor, f: Any = f32) -> Tensor:
    x, y = a.to(f), b.to(f)
    z = (torch.tanh((x + y) * x) - y) * 0.5
    z = torch.sigmoid((torch.exp(z) + 1.0).reciprocal() * y)
    z = torch.sqrt((z - 0.5).abs() + 0.125)
    z = F.silu(torch.clamp(torch.maximum(z, x), max=4.0)) * y
    return (x - z).to(a.dtype)


def transpose(x: Tensor, f: Any = f32) -> Tensor:
    return (x.t() * 1.5).contiguous()


def transpose_batched(x: Tensor, f: Any = f32) -> Tensor:
    return (x.transpose(1, 2) + 1).contiguous()


def sum_inner(x: Tensor, f: Any = f32) -> Tensor:
    return x.to(f).sum(-1)


def sum_outer(x: Tensor, f: Any = f32) -> Tensor:
    return x.to(f).sum(0)


def sum_all(x: Tensor, f: Any = f32) -> Tensor:
    return x.to(f).sum()


def var_mean(x: Tensor, f: Any = f32) -> tuple[Tensor, ...]:
    return torch.var_mean(x.to(f), -1, correction=0)


def _turned(q: Tensor, cos: Tensor, sin: Tensor, f: Any) -> Tensor:
    half = q.shape[-1] // 2
    qf = q.to(f)
    rotated = torch.cat((-qf[..., half:], qf[..., :half]), -1)
    return (qf * cos + rotated * sin).to(q.dtype)


def rope(q: Tensor, cos: Tensor, sin: Tensor, f: Any = f32) -> Tensor:
    return _turned(q, cos, sin, f)


def rope_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    slots: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    f: Any = f32,
) -> tuple[Tensor, ...]:
    turn = cos[:, None], sin[:, None]
    k_cache[slots] = _turned(k, *turn, f)
    v_cache[slots] = v
    return _turned(q, *turn, f), k_cache, v_cache


def kv_cache_update(
    k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, slots: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    k_cache[slots] = k
    v_cache[slots] = v
    return k_cache, v_cache


def kv_cache_append(
    k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, f: Any = f32
) -> tuple[Tensor, ...]:
    end = 1024 + k.shape[2]
    k_cache[:, :, 1024:end] = k
    v_cache[:, :, 1024:end] = v
    return k_cache, v_cache


def embedding(table: Tensor, token: Tensor, f: Any = f32) -> Tensor:
    return (F.embedding(token, table).to(f) * 64.0).to(table.dtype)


def embedding_gradient(dy: Tensor, token: Tensor, f: Any = f32, *, V: int) -> Tensor:
    table = torch.zeros(V, dy.shape[1], dtype=f, device=dy.device)
    return table.index_add(0, token, dy.to(f))


def adam(*given: Any, f: Any = f32) -> tuple[Tensor, ...]:
    *tensors, lr, correction1, correction2 = given
    results: list[Tensor] = []
    for p, g, m, v in zip(*(tensors[k::4] for k in range(4)), strict=True):
        m_new = 0.9 * m.to(f) + 0.1 * g
        v_new = 0.999 * v.to(f) + 0.001 * g.to(f).square()
        root = torch.sqrt(v_new / correction2) + 1e-8
        p.copy_(p.to(f) * 0.99999 - lr * (m_new / correction1 / root))
        m.copy_(m_new)
        v.copy_(v_new)
        results += [p, m, v]
    return tuple(results)


def seed_2146(
    t0: Tensor,
    t1: Tensor,
    t2: Tensor,
    t3: Tensor,
    t4: Tensor,
    t5: Tensor,
    t6: Tensor,
    f: Any = f32,
) -> tuple[Tensor, ...]:
    dy, half = t3.to(f), t3.dtype
    centred = t6.to(f) - t4[..., None]
    xn = centred * t5
    w, gain = t0.to(f), (1.0 + t2.to(f)).to(half).to(f)
    dx_gain = gain * dy
    dxn = t5 * (w * dx_gain)
    dvar = -0.5 * (centred * (w * dx_gain)).sum(2, keepdim=True) * t5.to(f).pow(3)
    dmean = 0.000976562 * (-dxn).sum(2, keepdim=True)
    dx = dxn + (dmean + 2.0 * dvar * centred / 1024.0)
    sums = dy.sum(1), ((xn * w + t1.to(f)) * dy).sum(1)
    whole = dx_gain.sum((0, 1)), (xn * dx_gain).sum((0, 1))
    return tuple(t.to(half) for t in (*sums, *whole, dx))
