"""What PyTorch computes for the rows of attention's backward; functions as in `rows`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

f32 = torch.float32
QUERIES = 1024
"""Queries whose weights are in memory at a time."""


def attention_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, f: Any = f32
) -> tuple[Tensor, Tensor, Tensor]:
    return _backward(g, q, k, v, o, lse, f, is_causal=False)


def attention_backward_causal(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, f: Any = f32
) -> tuple[Tensor, Tensor, Tensor]:
    return _backward(g, q, k, v, o, lse, f, is_causal=True)


def _backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, f: Any, *, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients; products and weights are rounded to the inputs' type."""
    kind, scale = q.dtype, q.shape[-1] ** -0.5
    found = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    columns = torch.arange(k.shape[-2], device=k.device)
    for head in ((b, h) for b in range(q.shape[0]) for h in range(q.shape[1])):
        keys, values = k[head].to(f), v[head].to(f)
        of_keys, of_values = torch.zeros_like(keys), torch.zeros_like(values)
        for first in range(0, q.shape[2], QUERIES):
            rows = slice(first, first + QUERIES)
            queries, gradients = q[head][rows].to(f), g[head][rows].to(f)
            scores = (queries @ keys.T).to(kind).to(f) * scale
            if is_causal:
                own = torch.arange(first, first + scores.shape[0], device=q.device)
                scores = scores.masked_fill(columns > own[:, None], -torch.inf)
            shares = torch.exp(scores - lse[head][rows, None].to(f))
            moved = (gradients @ values.T).to(kind).to(f)
            centre = (gradients * o[head][rows].to(f)).sum(-1, keepdim=True)
            pulls = (shares * (moved - centre) * scale).to(kind).to(f)
            found[0][head][rows] = (pulls @ keys).to(kind)
            of_keys += pulls.T @ queries
            of_values += shares.to(kind).to(f).T @ gradients
        found[1][head].copy_(of_keys)
        found[2][head].copy_(of_values)
    return found
