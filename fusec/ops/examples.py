"""An example of each operation: inputs, and the op line that uses them.

`x: f32[B, H]; y = softmax(x, 1)`. Examples not written here are derived from the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusec.ir.op import REQUIRED, OpDef

_MATRIX = "x: f32[B, H]"
_ROWS = "x: f32[B, H]; i: i64[K]"
_IMAGE = "x: f32[B, C, Y, X]; w: f32[C]; b: f32[C]"
_HEADS = "q: f16[B, N, S, D]; k: f16[B, N, T, D]; v: f16[B, N, T, D]"
_LOSS = "x: f32[B, C]; t: i64[B]"

EXAMPLES: Mapping[str, str] = {
    "addcdiv": f"{_MATRIX}; a: f32[B, H]; b: f32[B, H]; y = addcdiv(x, a, b, value=0.5)",
    "arange": "y = arange(2, H)",
    "batch_norm": f"{_IMAGE}; y, mean, invstd = batch_norm(x, w, b)",
    "binary_cross_entropy": "x: f32[B, H]; t: f32[B, H]; "
    "y = binary_cross_entropy(sigmoid(x), sigmoid(t))",
    "broadcast": "w: f32[H]; y = broadcast(w, [true, false])",
    "broadcast_in_dim": "w: f32[H]; y = broadcast_in_dim(w, [B, H, K], [1])",
    "cast": f"{_MATRIX}; y = cast(x, bf16)",
    "cat": "x: f32[B, H]; z: f32[B, K]; y = cat([x, z], 1)",
    "chunk": "x: f32[B, 2 * H]; a, b = chunk(x, 2, dim=1); y = mul(a, b)",
    "clamp": f"{_MATRIX}; y = clamp(x, 0, 6)",
    "cosine_similarity": "a: f32[B, H]; b: f32[B, H]; y = cosine_similarity(a, b)",
    "cross_entropy": f"{_LOSS}; y = cross_entropy(x, t)",
    "dropout": f"{_MATRIX}; y, mask = dropout(x, 0.1)",
    "embedding_fwd": "i: i64[B, S]; w: f32[V, D]; y = embedding_fwd(i, w)",
    "expand": "x: f32[B, 1]; y = expand(x, [B, H])",
    "eye": "y = eye(H)",
    "full": "y = full([B, H], 1.5)",
    "full_like": f"{_MATRIX}; z = full_like(x, 0.5); y = add(x, z)",
    "gather": "x: f32[B, H]; i: i64[B, K]; y = gather(x, i, 1)",
    "gelu": f"{_MATRIX}; y = gelu(x, approximate=tanh)",
    "glu": "x: f32[B, 2 * H]; y = glu(x)",
    "group_norm": f"{_IMAGE}; y = group_norm(x, 4, w, b)",
    "grouped_mm": "x: bf16[M, K]; w: bf16[G, K, N]; ends: i32[G]; y = grouped_mm(x, w, ends)",
    "imag": "x: c64[B, H]; y = imag(x)",
    "index_add": f"{_ROWS}; s: f32[K, H]; y = index_add(x, i, s, 0)",
    "index_put_accumulate": f"{_ROWS}; s: f32[K, H]; y = index_put_accumulate(x, i, s)",
    "index_select": f"{_ROWS}; y = index_select(x, i, 0)",
    "instance_norm": f"{_IMAGE}; y, mean, invstd = instance_norm(x, w, b)",
    "iota": "y = iota(H, dtype=i32)",
    "layer_norm": f"{_MATRIX}; w: f32[H]; b: f32[H]; y = layer_norm(x, [H], w, b)",
    "linear": "x: bf16[M, K]; w: bf16[N, K]; b: bf16[N]; y = linear(x, w, b)",
    "logit": f"{_MATRIX}; y = logit(sigmoid(x))",
    "masked_fill": "x: f32[B, H]; m: bool[B, H]; y = masked_fill(x, m, 0)",
    "matmul": "a: bf16[M, K]; b: bf16[K, N]; y = matmul(a, b)",
    "movedim": "x: f32[B, S, H]; y = movedim(x, 0, 2)",
    "narrow": f"{_MATRIX}; y = narrow(x, 1, 2, 4)",
    "nll_loss": f"{_LOSS}; y = nll_loss(x, t)",
    "normal": "y = normal(0, 1, [B, H])",
    "one_hot": "i: i64[B, S]; y = one_hot(i, H)",
    "ones": "y = ones([B, H])",
    "ones_like": f"{_MATRIX}; z = ones_like(x); y = add(x, z)",
    "pad": f"{_MATRIX}; y = pad(x, [1, 2], value=0)",
    "permute": "x: f32[B, S, H]; y = permute(x, [1, 0, 2])",
    "rand_like": f"{_MATRIX}; r = rand_like(x); y = add(x, r)",
    "randn_like": f"{_MATRIX}; r = randn_like(x); y = add(x, r)",
    "real": "x: c64[B, H]; y = real(x)",
    "repeat": f"{_MATRIX}; y = repeat(x, [1, 2])",
    "repeat_interleave": f"{_MATRIX}; y = repeat_interleave(x, 2, 1)",
    "reshape": "x: f32[B, S, H]; y = reshape(x, [B * S, H])",
    "rms_norm": f"{_MATRIX}; w: f32[H]; y = rms_norm(x, [H], w)",
    "roll": f"{_MATRIX}; y = roll(x, 1, 1)",
    "scaled_dot_product_attention": f"{_HEADS}; "
    "y = scaled_dot_product_attention(q, k, v, is_causal=true)",
    "scaled_mm": "a: f8e4m3[M, K]; b: f8e4m3[K, N]; s: f32; t: f32; "
    "y = scaled_mm(a, b, s, t, dtype=bf16)",
    "scatter": "x: f32[B, H]; i: i64[B, K]; s: f32[B, K]; y = scatter(x, i, s, 1)",
    "scatter_add": "x: f32[B, H]; i: i64[B, K]; s: f32[B, K]; y = scatter_add(x, i, s, 1)",
    "sdpfa_bwd": f"g: f16[B, N, S, D]; {_HEADS}; o: f16[B, N, S, D]; lse: f32[B, N, S]; "
    "dq, dk, dv = sdpfa_bwd(g, q, k, v, o, lse)",
    "sdpfa_fwd": f"{_HEADS}; y, lse, _, _ = sdpfa_fwd(q, k, v)",
    "select": f"{_MATRIX}; y = select(x, 0, dim=1)",
    "shape": f"{_MATRIX}; b, h = shape(x); y = truediv(x, h)",
    "size": f"{_MATRIX}; h = size(x, 1); y = truediv(x, h)",
    "slice": f"{_MATRIX}; y = slice(x, [0, H // 2], [B, H])",
    "split": "x: f32[B, 12]; a, b = split(x, [4, 8], dim=1)",
    "squeeze": "x: f32[B, 1, H]; y = squeeze(x, [1])",
    "stack": "x: f32[B, H]; z: f32[B, H]; y = stack([x, z], 1)",
    "stride_order": f"{_MATRIX}; y = stride_order(x, [0, 1])",
    "take_along_axis": "x: f32[B, H]; i: i64[B, K]; y = take_along_axis(x, i, 1)",
    "threshold": f"{_MATRIX}; y = threshold(x, 0.5, 0)",
    "topk": f"{_MATRIX}; values, indices = topk(x, 4)",
    "transpose": f"{_MATRIX}; y = transpose(x, 0, 1)",
    "unbind": "x: f32[B, 2]; a, b = unbind(x, 1)",
    "unflatten": "x: f32[B, 2 * H]; y = unflatten(x, 1, [2, -1])",
    "uniform": "y = uniform(0, 1, [B, H])",
    "unsqueeze": f"{_MATRIX}; y = unsqueeze(x, 1)",
    "update_slice": "x: f32[B, H]; s: f32[B, 4]; y = update_slice(x, s, [0, 2])",
    "where": "c: bool[B, H]; x: f32[B, H]; z: f32[H]; y = where(c, x, z)",
    "zeros": "y = zeros([B, H])",
    "zeros_like": f"{_MATRIX}; z = zeros_like(x); y = add(x, z)",
}  # fmt: skip

_FIRST = {"pointwise": ("f32", "i32", "bool"), "complex": ("f32",)}
_ATTRIBUTES = {"dims": "dims=[1]", "axis": "dim=1", "size": "4"}


def examples(op: OpDef) -> Iterator[str]:
    """Yield an operation's example, or candidates; the first valid one is its example.

    Operands are matrices, the second one of two a row that is broadcast.
    """
    if op.name in EXAMPLES:
        yield EXAMPLES[op.name]
        return
    needed = [p for p in op.params if p.default is REQUIRED or p.kind == "dims"]
    operands = [p.name for p in needed if p.is_operand]
    given = [*operands, *(_ATTRIBUTES.get(p.kind, p.kind) for p in needed if not p.is_operand)]
    results = ", ".join(op.results) if len(op.results) > 1 else "y"
    for dtype in _FIRST.get(op.family, ("f32",)):
        shapes = ["[B, H]", *["[H]"] * (len(operands) - 1)]
        declared = (f"{o}: {dtype}{s}" for o, s in zip(operands, shapes, strict=False))
        yield "; ".join([*declared, f"{results} = {op.name}({', '.join(given)})"])
