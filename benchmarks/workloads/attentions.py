"""What PyTorch has for the workloads of attention; functions as in `rows`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

f32 = torch.float32
ROWS = 1024
"""Queries whose scores are in memory at a time."""


def attention(q: Tensor, k: Tensor, v: Tensor, f: Any = f32) -> Tensor:
    return _attention(q, k, v, f, lambda scores, rows, head: scores)


def attention_decode(q: Tensor, k: Tensor, v: Tensor, f: Any = f32) -> Tensor:
    return attention(q, k, v, f)


def attention_causal(q: Tensor, k: Tensor, v: Tensor, f: Any = f32) -> Tensor:
    return _attention(q, k, v, f, lambda scores, rows, head: _causal(scores, rows))


def attention_alibi(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, f: Any = f32) -> Tensor:
    columns = torch.arange(k.shape[-2], device=k.device)

    def biased(scores: Tensor, rows: Tensor, head: int) -> Tensor:
        return _causal(scores + slopes[head].to(f) * (columns - rows[:, None]), rows)

    return _attention(q, k, v, f, biased)


def _causal(scores: Tensor, rows: Tensor) -> Tensor:
    columns = torch.arange(scores.shape[-1], device=scores.device)
    return scores.masked_fill(columns > rows[:, None], -torch.inf)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, f: Any, change: Callable[[Tensor, Tensor, int], Tensor]
) -> Tensor:
    """Return attention; scores and weights are rounded to the inputs' type, computed in another."""
    result = torch.empty_like(q)
    scale = q.shape[-1] ** -0.5
    for batch in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys, values = k[batch, head].to(f), v[batch, head].to(f)
            for first in range(0, q.shape[2], ROWS):
                own = q[batch, head, first : first + ROWS].to(f)
                rows = torch.arange(first, first + own.shape[0], device=q.device)
                scores = (own @ keys.T).to(q.dtype).to(f) * scale
                weights = torch.softmax(change(scores, rows, head), -1).to(q.dtype).to(f)
                result[batch, head, first : first + ROWS] = (weights @ values).to(q.dtype)
    return result
