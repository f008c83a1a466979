"""Attentions of few queries, which one kernel computes in blocks that share keys."""

from __future__ import annotations

from attentions import PLAIN, SOFTMAX, WIDENED, attention

LENGTHS = (
    "s = where(lt({column}, lengths), mul({scores}, 0.125), -inf)",
    SOFTMAX,
)
GIVEN_LENGTHS = "  lengths: {type: 'i32[{batch}, 1, 1, 1]', range: [1, {n}]}\n"
GROUPED = (
    f"kx = {WIDENED % 'k'}",
    f"vx = {WIDENED % 'v'}",
    "s = mul(cast(matmul(q, permute(kx, [0, 1, 3, 2])), f32), 0.125)",
    "  - o = matmul(cast(softmax(s, -1), {dtype}), vx)",
)

DECODES = {
    "one query": attention(*PLAIN, m=1, heads=3),
    "several queries": attention(*PLAIN, m=5, batch=2),
    "sixteen queries": attention(*PLAIN, m=16),
    "grouped heads": attention(*GROUPED, m=1, heads=8, kv_heads=2, batch=2),
    "grouped heads of several queries": attention(*GROUPED, m=3, heads=8, kv_heads=2),
    "more heads than rows": attention(*GROUPED, m=1, heads=24, kv_heads=1),
    "as many keys as features": attention(*PLAIN, m=2, n=64, d=64, heads=4),
    "odd keys": attention(*PLAIN, m=1, n=331),
    "head 16": attention(*PLAIN, m=2, d=16),
    "head 96": attention(*PLAIN, m=2, d=96),
    "head 128": attention(*PLAIN, m=4, d=128, n=400, heads=8),
    "head 256": attention(*PLAIN, m=2, d=256),
    "f16": attention(*PLAIN, m=1, dtype="f16"),
    "lengths": attention(*LENGTHS, m=1, batch=3, n=300, inputs=GIVEN_LENGTHS),
    "causal from the end": attention(
        "s = where(le({column}, add({row}, 86)), mul({scores}, 0.125), -inf)", SOFTMAX, m=4
    ),
    "window": attention(
        "s = where(ge({column}, add({row}, 150)), mul({scores}, 0.125), -inf)",
        SOFTMAX,
        m=3,
        n=300,
    ),
    "bias": attention(
        "s = add(mul({scores}, 0.125), cast(bias, f32))",
        SOFTMAX,
        m=3,
        inputs="  bias: bf16[{heads}, {m}, {n}]\n",
    ),
    "soft cap": attention("s = mul(tanh(mul({scores}, 0.01)), 30.0)", SOFTMAX, m=1),
    "composite": attention("o, lse, a, b = sdpfa_fwd(q, k, v)", m=2, outputs="o, lse"),
    "composite with a mask": attention(
        "o, lse, a, b = sdpfa_fwd(q, k, v, mask=mask, scale=0.2)",
        m=2,
        inputs="  mask: bool[{batch}, {heads}, {m}, {n}]\n",
        outputs="o, lse",
    ),
    "scaled output": attention(
        *PLAIN, "y = mul(o, gate)", m=9, heads=8, inputs="  gate: bf16[{d}]\n", outputs="y"
    ),
    "cache with heads beside features": """fusion: attention
inputs:
  q: bf16[2, 1, 3, 4, 64]
  k: bf16[2, 90, 3, 64]
  v: bf16[2, 90, 3, 64]
ops:
  - qh = reshape(q, [2, 3, 4, 64])
  - s = mul(cast(matmul(qh, permute(k, [0, 2, 3, 1])), f32), 0.125)
  - o = matmul(cast(softmax(s, -1), bf16), permute(v, [0, 2, 1, 3]))
  - y = reshape(o, [2, 1, 768])
outputs: [y]
""",
    "paged cache": """fusion: attention
inputs:
  q: bf16[3, 2, 4, 64]
  k_pages: bf16[40, 16, 2, 64]
  v_pages: bf16[40, 16, 2, 64]
  table: {type: 'i32[3, 9]', range: [0, 39]}
  lengths: {type: 'i32[3, 1, 1, 1]', range: [1, 144]}
ops:
  - pages = reshape(table, [27])
  - k = reshape(index_select(k_pages, pages, dim=0), [3, 144, 2, 64])
  - v = reshape(index_select(v_pages, pages, dim=0), [3, 144, 2, 64])
  - s = mul(cast(matmul(q, permute(k, [0, 2, 3, 1])), f32), 0.125)
  - seen = lt(broadcast(iota(144), [true, true, true, false]), lengths)
  - p = cast(softmax(where(seen, s, -inf), -1), bf16)
  - o = matmul(p, permute(v, [0, 2, 1, 3]))
outputs: [o]
""",
    "products of one row as sums": """fusion: attention
inputs:
  q: bf16[2, 12, 64]
  k: bf16[2, 12, 90, 64]
  v: bf16[2, 12, 90, 64]
ops:
  - qk = mul(cast(broadcast(q, [false, false, true, false]), f32), cast(k, f32))
  - p = cast(cast(softmax(mul(sum(qk, dims=[3]), 0.125), -1), bf16), f32)
  - pv = mul(broadcast(p, [false, false, false, true]), cast(v, f32))
  - o = cast(sum(pv, dims=[2]), bf16)
outputs: [o]
""",
    "sums of grouped heads": """fusion: attention
inputs:
  q: f16[2, 3, 4, 1, 64]
  k: f16[2, 3, 1, 90, 64]
  v: f16[2, 3, 1, 90, 64]
ops:
  - s = mul(sum(mul(cast(q, f32), cast(k, f32)), dims=[4]), 0.125)
  - p = cast(cast(softmax(s, -1), f16), f32)
  - o = sum(mul(cast(v, f32), broadcast(p, [false, false, false, false, true])), dims=[3])
outputs: [o]
""",
    "no batches": """fusion: attention
inputs:
  q: bf16[7, 64]
  k: bf16[90, 64]
  v: bf16[90, 64]
ops:
  - s = mul(cast(matmul(q, permute(k, [1, 0])), f32), 0.125)
  - o = matmul(cast(softmax(s, -1), bf16), v)
outputs: [o]
""",
}
"""What the scheduler of decoding attention takes."""
