"""The rows of the suites `memory` and `small`."""

from __future__ import annotations

from benchmarks import attention_backward, operands
from benchmarks.rows import EXAMPLES, Row

NORMS = ((65536, 1024), (16384, 8192), (4096, 32768), (1024, 131072), (1024, 262144))
BACKWARD = ((65536, 1024), (16384, 8192), (8192, 16384))


def row(file: str, text: str = "", **sizes: int) -> Row:
    """Return a row that is named after the file, and its sizes unless `text` says how."""
    text = text or "x".join(map(str, sizes.values()))
    return Row(f"{file}_{text}" if text else file, file, sizes)


def _drawn(file: str) -> Row:
    return Row(file, file, drawn=True)


SEED = str(EXAMPLES / "seed_2146.yaml")

PEERS_34 = (
    row("gelu_bias", T=16384, F=8192),
    row("silu_mul", T=16384, F=8192),
    row("transpose", M=16384, N=8192),
    row("transpose_batched", B=32, M=4096, N=1024),
    row("sum_inner", B=16384, H=8192),
    row("sum_outer", B=16384, H=8192),
    row("sum_outer", B=262144, H=512),
    row("sum_inner", B=64, H=2097152),
    row("sum_all", N=1 << 28),
    row("var_mean", B=16384, H=8192),
    *(
        row(file, B=rows, H=columns)
        for rows, columns in NORMS[:4]
        for file in ("softmax", "rmsnorm", "layernorm")
    ),
    *(
        row(file, B=rows, H=columns)
        for rows, columns in BACKWARD
        for file in ("layernorm_backward", "rmsnorm_backward")
    ),
    row("softmax_backward", B=16384, H=8192),
    row("batchnorm_nchw", N=64, C=256, H=56, W=56),
    row("batchnorm_nhwc", N=64, H=56, W=56, C=256),
    row("cross_entropy", T=8192, V=131072),
    row("rope", B=2, NH=32, S=8192, D=128),
    Row("seed_2146", SEED),
)
"""Sizes at which PyTorch's compiler and libraries have been measured before."""

MORE = (
    Row("seed_2146_free", SEED, free=True),
    *(row(file, B=1024, H=262144) for file in ("softmax", "rmsnorm", "layernorm")),
    _drawn("dropout_residual_rmsnorm"),
    _drawn("dropout_residual_rmsnorm_backward"),
    row("masked_softmax"),
    row("batchnorm_nchw_backward"),
    row("batchnorm_nhwc_backward"),
    row("groupnorm_nchw"),
    row("groupnorm_nhwc"),
    row("groupnorm_nchw_backward"),
    row("groupnorm_nhwc_backward"),
    row("gelu_bias_backward"),
    row("swiglu_backward"),
    row("quantize_fp8_rows"),
    row("adam"),
    row("pointwise_chain"),
    Row("kv_cache_update", "kv_cache_update", distinct={"slots": "SLOTS"}),
    row("kv_cache_append"),
    row("embedding"),
    row("embedding_gradient"),
    row("moe_gate"),
    row("cumsum_rows"),
    row("cumsum_columns"),
    row("cumsum_all"),
    row("cummax_rows"),
    row("argmax"),
    row("topk_rows"),
    row("topk_words"),
)

MEMORY = (*PEERS_34, *MORE)

TOKENS = {
    "add_rmsnorm": ((1, 4096), (16, 4096), (512, 8192)),
    "add_rmsnorm_fp8": ((1, 8192), (64, 4096), (512, 4096)),
}

SMALL = (
    *(row(file, T=tokens, H=size) for file, sizes in TOKENS.items() for tokens, size in sizes),
    *(row("silu_mul", T=tokens, F=size) for tokens, size in ((1, 8192), (64, 8192), (512, 2048))),
    *(
        Row(f"rope_cache_{tokens}", "rope_cache", {"T": tokens}, distinct={"slots": "SLOTS"})
        for tokens in (1, 64, 512)
    ),
    row("softmax", B=16, H=4096),
    row("softmax", B=512, H=2048),
    row("topk_rows", B=16, H=8192),
    row("topk_rows", B=512, H=2048),
)
"""Steps of inference: 1 to 512 rows of 2048 to 8192."""

LENGTHS = (2048, 4096, 8192, 16384)
TOGETHER = 16384
"""Queries of all batches together."""
CACHES = {
    (1, 4): (4096, 16384, 65536, 131072),
    (1, 8): (16384, 131072),
    (8, 4): (4096, 16384, 65536, 131072),
    (8, 8): (16384, 131072),
    (64, 4): (4096, 16384, 131072),
    (64, 8): (4096, 16384),
}
"""Positions by batches and heads of queries for each of 8 heads of keys."""
ATTENTION = (
    *(
        row(file, f"{length}", B=TOGETHER // length, S=length)
        for file in ("attention", "attention_causal")
        for length in LENGTHS
    ),
    row("attention_alibi", "8192"),
    *(
        row("attention_decode", f"{batch}x{8 * group}x{length}", B=batch, G=group, S=length)
        for (batch, group), lengths in CACHES.items()
        for length in lengths
    ),
)
"""Of 16 heads of 128 features, and of few queries over long caches."""

SUITES = {
    "memory": MEMORY,
    "small": SMALL,
    "attention": ATTENTION,
    "attention_backward": attention_backward.ROWS,
    "operands": operands.rows(),
}
"""Those whose rows are the same in every run."""
