"""Peers: what others run for a row, on the same buffers. Each is optional.

A peer gives what it runs, or None where it has nothing for a workload; what goes wrong on the way
is the reason why it is missing from a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import attention_backward
from benchmarks.rows import Row

Issue = Callable[[], Any]


@dataclass(frozen=True)
class Offer:
    """What a peer needs to know: the row, its PyTorch function and the arguments."""

    row: Row
    function: Callable[..., Any]
    arguments: Sequence[Any]

    @property
    def kind(self) -> str:
        """Return the name of the workload."""
        return self.row.function or self.row.fusion.name


@dataclass(frozen=True)
class Peer:
    """A peer; package: what has to be installed, and has the version that is recorded."""

    name: str
    package: str
    find: Callable[[Offer], Issue | None]


def eager(offer: Offer) -> Issue:
    """Return PyTorch's own kernels, one an operation."""
    return lambda: offer.function(*offer.arguments)


def inductor(offer: Offer) -> Issue:
    """Return what torch.compile makes by default."""
    import torch

    torch.compiler.reset()
    compiled = torch.compile(offer.function, dynamic=False)
    return lambda: compiled(*offer.arguments)


def inductor_tuned(offer: Offer) -> Issue:
    """Return what torch.compile makes when it may try: autotuned, by coordinate descent."""
    import torch

    torch.compiler.reset()
    options = {
        "max_autotune": True, "coordinate_descent_tuning": True, "triton.cudagraphs": False,
    }  # fmt: skip
    compiled = torch.compile(offer.function, dynamic=False, options=options)
    return lambda: compiled(*offer.arguments)


def quack(offer: Offer) -> Issue | None:
    """Return quack's kernels for rows."""
    given = offer.arguments
    if offer.kind == "softmax":
        from quack.softmax import softmax_fwd

        return lambda: softmax_fwd(given[0])
    if offer.kind == "softmax_backward":
        from quack.softmax import softmax_bwd

        return lambda: softmax_bwd(given[1], given[0])
    if offer.kind == "rmsnorm":
        from quack.rmsnorm import rmsnorm_fwd

        return lambda: rmsnorm_fwd(given[0], given[1], eps=1e-6)
    if offer.kind == "rmsnorm_backward":
        from quack.rmsnorm import rmsnorm_bwd

        x, w, rstd, dy = given
        return lambda: rmsnorm_bwd(x, w, dy, rstd.reshape(-1))
    if offer.kind == "layernorm":
        from quack.rmsnorm import layernorm_fwd

        x, w, b = given
        wide, bias = w.float(), b.float()  # it takes them in f32 alone
        return lambda: layernorm_fwd(x, wide, bias, eps=1e-5)
    if offer.kind == "cross_entropy":
        from quack.cross_entropy import cross_entropy_fwd

        return lambda: cross_entropy_fwd(given[0], given[1])
    if offer.kind == "topk_rows":
        from quack.topk import topk_fwd

        return lambda: topk_fwd(given[0], 8)
    return None


def liger(offer: Offer) -> Issue | None:
    """Return Liger's kernels."""
    given = offer.arguments
    if offer.kind == "softmax":
        from liger_kernel.ops.softmax import LigerSoftmaxFunction

        return lambda: LigerSoftmaxFunction.apply(given[0])
    if offer.kind == "rmsnorm":
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction

        return lambda: LigerRMSNormFunction.apply(given[0], given[1], 1e-6)
    if offer.kind == "layernorm":
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction

        return lambda: LigerLayerNormFunction.apply(*given, 1e-5)
    if offer.kind == "silu_mul":
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        return lambda: LigerSiLUMulFunction.apply(*given)
    if offer.kind == "groupnorm_nchw":
        from liger_kernel.ops.group_norm import LigerGroupNormFunction

        x, w, b = given
        groups = offer.row.fusion.hints["G"]
        return lambda: LigerGroupNormFunction.apply(x, w, b, x.shape[1], groups, 1e-5)
    return None


def flashinfer(offer: Offer) -> Issue | None:
    """Return FlashInfer's kernels."""
    given = offer.arguments
    if offer.kind == "rmsnorm":
        from flashinfer.norm import rmsnorm

        return lambda: rmsnorm(given[0], given[1], eps=1e-6)
    if offer.kind == "add_rmsnorm":
        from flashinfer.norm import fused_add_rmsnorm

        x, r, w = given
        x, r = x.clone(), r.clone()  # it writes into both
        return lambda: fused_add_rmsnorm(x, r, w, eps=1e-6)
    if offer.kind == "silu_mul":
        import torch
        from flashinfer.activation import silu_and_mul

        both = torch.cat(given, -1)  # it takes gate and up side by side
        return lambda: silu_and_mul(both)
    return None


def cudnn(offer: Offer) -> Issue | None:
    """Return cuDNN's batch norm, its attention and attention's backward, by way of PyTorch."""
    if offer.kind in ("attention", "attention_causal"):
        return _sdpa(offer, "CUDNN_ATTENTION")
    backward = attention_backward.cudnn(offer)
    if backward is not None:
        return backward
    if offer.kind not in ("batchnorm_nchw", "batchnorm_nhwc"):
        return None
    import torch

    x, w, b = offer.arguments
    if offer.kind == "batchnorm_nhwc":
        x = x.permute(0, 3, 1, 2)
    wide, bias = w.float(), b.float()  # it takes them in f32 alone
    return lambda: torch.cudnn_batch_norm(x, wide, bias, None, None, True, 0.1, 1e-5)


def _sdpa(offer: Offer, backend: str) -> Issue:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    causal, which = offer.kind == "attention_causal", getattr(SDPBackend, backend)

    def issue() -> None:
        with sdpa_kernel(which):
            scaled_dot_product_attention(*offer.arguments, is_causal=causal)

    return issue


def flash(offer: Offer) -> Issue | None:
    """Return FlashAttention-2, by way of PyTorch."""
    if offer.kind not in ("attention", "attention_causal", "attention_decode"):
        return None
    return _sdpa(offer, "FLASH_ATTENTION")


def flex(offer: Offer) -> Issue | None:
    """Return what torch.compile makes of FlexAttention."""
    if offer.kind != "attention_alibi":
        return None
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v, slopes = offer.arguments
    rows = q.shape[2]
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, rows, rows, device=q.device)

    def biased(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + slopes[h] * (j - i)

    torch.compiler.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q, k, v, score_mod=biased, block_mask=mask)


def apex(offer: Offer) -> Issue | None:
    """Return Apex' group norm, for channels that lie together."""
    if offer.kind != "groupnorm_nhwc":
        return None
    from apex.contrib.group_norm import GroupNorm

    x, w, b = offer.arguments
    groups = offer.row.fusion.hints["G"]
    module = GroupNorm(groups, w.numel(), eps=1e-5, act="silu").to(x.device, x.dtype)
    module.weight.data.copy_(w)
    module.bias.data.copy_(b)
    seen = x.permute(0, 3, 1, 2)  # NCHW by its dims, NHWC in memory
    return lambda: module(seen)


def cub(offer: Offer) -> Issue | None:
    """Return CUB's scans, sums and sorts, by way of CuPy."""
    if offer.kind not in ("cumsum_all", "sum_all"):
        return None
    import cupy

    x = cupy.asarray(offer.arguments[0].float() if offer.kind == "sum_all" else offer.arguments[0])
    with_cub: Any = cupy.cumsum if offer.kind == "cumsum_all" else cupy.sum
    stream = cupy.cuda.ExternalStream(_torch_stream())

    def issue() -> None:
        with stream:
            with_cub(x)

    return issue


def cublaslt(offer: Offer) -> Issue | None:
    """Return the quickest of cuBLASLt's own proposals for a product."""
    name, _, layout = offer.kind.partition("_")
    if name != "product" or layout not in ("nt", "nn", "tn"):
        return None
    from benchmarks.cublaslt import best

    a, b = offer.arguments
    return best(a, b, layout)


def product(offer: Offer) -> Issue | None:
    """Return cuBLAS' product alone of a product with an epilogue, by way of PyTorch."""
    if offer.kind not in ("product_gelu", "product_silu_mul"):
        return None
    import torch

    a, b = offer.arguments[:2]
    return lambda: torch.matmul(a, b.T)


def _torch_stream() -> int:
    import torch

    return int(torch.cuda.current_stream().cuda_stream)


def fused_adam(offer: Offer) -> Issue | None:
    """Return PyTorch's fused Adam over all tensors at once."""
    if offer.kind != "adam":
        return None
    import torch

    *tensors, lr, _, _ = offer.arguments
    p, g, m, v = (tensors[k::4] for k in range(4))
    steps = [torch.ones((), device="cuda") for _ in p]
    options = {"lr": lr, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
    flags = {"amsgrad": False, "maximize": False}
    return lambda: torch._fused_adamw_(p, g, m, v, [], steps, **options, **flags)


PEERS: Mapping[str, Peer] = {
    p.name: p
    for p in (
        Peer("inductor", "torch", inductor),
        Peer("inductor_tuned", "torch", inductor_tuned),
        Peer("eager", "torch", eager),
        Peer("quack", "quack-kernels", quack),
        Peer("liger", "liger-kernel", liger),
        Peer("flashinfer", "flashinfer-python", flashinfer),
        Peer("cudnn", "torch", cudnn),
        Peer("flash", "torch", flash),
        Peer("flex", "torch", flex),
        Peer("apex", "apex", apex),
        Peer("cub", "cupy-cuda13x", cub),
        Peer("fused_adam", "torch", fused_adam),
        Peer("cublaslt", "torch", cublaslt),
        Peer("product", "torch", product),
    )
}


def found(name: str, offer: Offer) -> tuple[Issue | None, str]:
    """Return what a peer runs, tried once, or why there is nothing."""
    try:
        issue = PEERS[name].find(offer)
        if issue is None:
            return None, "has nothing for this workload"
        issue()
        return issue, ""
    except Exception as error:  # whatever a peer raises is its own affair
        text = str(error).strip().splitlines()
        return None, f"{type(error).__name__}: {text[0] if text else ''}"[:300]
