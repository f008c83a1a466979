"""The rows of attention's backward, and what cuDNN has for them.

16384 queries in all, 16 heads of 128 features; operations are counted as five products, though a
kernel may compute some twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.rows import Row

if TYPE_CHECKING:
    from benchmarks.peers import Offer

FULL, CAUSAL = "attention_backward", "attention_backward_causal"
LENGTHS = (2048, 4096, 8192, 16384)
TOGETHER = 16384
"""Queries of all batches together."""
_TEXT = """fusion: {name}
doc: The gradients of attention from its output and the log of its softmax's sums.
inputs:
  g: bf16[{batch}, 16, {length}, 128]
  q: bf16[{batch}, 16, {length}, 128]
  k: bf16[{batch}, 16, {length}, 128]
  v: bf16[{batch}, 16, {length}, 128]
  o: bf16[{batch}, 16, {length}, 128]
  lse: {{type: 'f32[{batch}, 16, {length}]', range: [8, 10]}}
ops:
  - dq, dk, dv = sdpfa_bwd(g, q, k, v, o, lse, is_causal={causal})
outputs: [dq, dk, dv]
"""


def _row(name: str, length: int) -> Row:
    causal, batch = str(name == CAUSAL).lower(), TOGETHER // length
    text = _TEXT.format(name=name, length=length, batch=batch, causal=causal)
    return Row(f"{name}_{length}", name, text=text, function=name)


ROWS = tuple(_row(name, length) for name in (FULL, CAUSAL) for length in LENGTHS)


def cudnn(offer: Offer) -> Callable[[], Any] | None:
    """Return cuDNN's backward, by way of PyTorch, of a forward that it has run itself."""
    if offer.kind not in (FULL, CAUSAL):
        return None
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    g, *given = offer.arguments[:4]
    leaves = [x.detach().requires_grad_() for x in given]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        result = scaled_dot_product_attention(*leaves, is_causal=offer.kind == CAUSAL)
    return lambda: torch.autograd.grad(result, leaves, g, retain_graph=True)
