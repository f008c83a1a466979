"""Attention of PyTorch's backends, which also returns the log-sum-exps."""

from __future__ import annotations

from fusec.ir.dim import product
from fusec.models.graph import Argument
from fusec.models.rules.build import Build, rule, size_texts


@rule("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    b: Build,
    query: Argument,
    key: Argument,
    value: Argument,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Argument = None,
    scale: float | None = None,
) -> list[str]:
    """Return the output and the log-sum-exps."""
    operands = ", ".join(map(b.text, (query, key, value)))
    masked = "" if attn_mask is None else f", mask={b.text(attn_mask)}"
    how = _options(b, dropout_p, is_causal, scale)
    return b.let_all(f"sdpfa_fwd({operands}{masked}{how})", ("output", "lse", "_", "_"))[:2]


def _options(b: Build, dropout_p: float, is_causal: bool, scale: float | None) -> str:
    text = f", dropout_p={dropout_p}" if dropout_p else ""
    text += ", is_causal=true" if is_causal else ""
    return text + (f", scale={b.text(scale)}" if scale is not None else "")


@rule("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    b: Build,
    grad_out: Argument,
    query: Argument,
    key: Argument,
    value: Argument,
    out: Argument,
    logsumexp: Argument,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Argument = None,
    scale: float | None = None,
) -> list[str]:
    """Return the gradients of query, key and value."""
    operands = ", ".join(map(b.text, (grad_out, query, key, value, out, logsumexp)))
    masked = "" if attn_mask is None else f", mask={b.text(attn_mask)}"
    how = _options(b, dropout_p, is_causal, scale)
    return b.let_all(f"sdpfa_bwd({operands}{how}{masked})", ("grad_q", "grad_k", "grad_v"))


def _with_batch(b: Build, tensor: Argument, query: Argument) -> str:
    """Return keys or values expanded to the queries' batch size, as PyTorch broadcasts them."""
    shape, wanted = b.shape_of(tensor), b.shape_of(query)
    if len(shape) != 4 or shape[0] == wanted[0]:
        return b.text(tensor)
    return f"expand({b.text(tensor)}, {size_texts((wanted[0], *shape[1:]))})"


@rule("aten.scaled_dot_product_attention.default")
def attention(
    b: Build,
    query: Argument,
    key: Argument,
    value: Argument,
    attn_mask: Argument = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str:
    """Return attention; tensors without a batch, or with several batch dims, get one."""
    rank = len(b.shape_of(query))
    texts = [b.text(query), *(_with_batch(b, t, query) for t in (key, value))]
    shared = rank == 4 and b.shape_of(key)[1] == 1 != b.shape_of(query)[1]
    mask = None if attn_mask is None else b.text(attn_mask)
    if rank != 4:
        lead = [b.shape_of(t)[:-2] for t in (query, key, value)]
        if attn_mask is not None or (enable_gqa and rank != 3):
            raise b.unsupported(f"its operands have {rank} dims, expected 4", "reshape them")
        inner = [(1, product(s), *b.shape_of(t)[-2:]) for s, t in
                 zip(lead, (query, key, value), strict=True)]  # fmt: skip
        texts = [
            f"reshape({t}, [{', '.join(map(str, s))}])" for t, s in zip(texts, inner, strict=True)
        ]
    how = _options(b, dropout_p, is_causal, scale)
    how += ", enable_gqa=true" if enable_gqa or shared else ""
    masked = "" if mask is None else f", {mask}"
    call = f"scaled_dot_product_attention({', '.join(texts)}{masked}{how})"
    return call if rank == 4 else f"reshape({b.let(call, 'heads')}, {size_texts(b.shape)})"
