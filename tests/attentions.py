"""Attentions that one kernel computes, and what is nearly one, as the text of fusions."""

from __future__ import annotations

SOFTMAX = "  - o = matmul(cast(softmax(s, -1), {dtype}), v)"
SCORES = "cast(matmul(q, permute(k, [0, 1, 3, 2])), f32)"
ROW = "broadcast(iota({m}), [false, true])"
COLUMN = "broadcast(iota({n}), [true, false])"


def attention(
    *lines: str,
    inputs: str = "",
    batch: int = 1,
    heads: int = 2,
    kv_heads: int = 0,
    m: int = 70,
    n: int = 90,
    d: int = 64,
    dtype: str = "bf16",
    outputs: str = "o",
) -> str:
    """Return the text of a fusion of q, k and v; `{m}`, `{n}` and the like are filled."""
    kv = kv_heads or heads
    head = f"""fusion: attention
inputs:
  q: {dtype}[{batch}, {heads}, {m}, {d}]
  k: {dtype}[{batch}, {kv}, {n}, {d}]
  v: {dtype}[{batch}, {kv}, {n}, {d}]
"""
    names = {"m": m, "n": n, "d": d, "dtype": dtype, "batch": batch, "heads": heads, "kv": kv}
    names |= {"group": heads // kv, "scores": SCORES, "row": ROW.format(m=m)}
    names |= {"column": COLUMN.format(n=n)}
    body = "\n".join(line if line.startswith("  ") else f"  - {line}" for line in lines)
    text = f"{head}{inputs}ops:\n{body}\noutputs: [{outputs}]\n"
    for _ in range(2):
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", str(value))
    return text


PLAIN = ("s = mul({scores}, 0.125)", SOFTMAX)
CAUSAL = ("s = where(le({column}, {row}), mul({scores}, 0.125), -inf)", SOFTMAX)
WIDENED = "reshape(expand(broadcast(%s, [false, false, true, false, false]), [{batch}, {kv}, {group}, {n}, {d}]), [{batch}, {heads}, {n}, {d}])"  # noqa: E501

RECOGNISED = {
    "plain": attention(*PLAIN),
    "causal": attention(*CAUSAL, m=150, n=150),
    "composite": attention("o, lse, a, b = sdpfa_fwd(q, k, v, is_causal=true)", outputs="o, lse"),
    "several batches": attention(*PLAIN, batch=3),
    "f16": attention(*PLAIN, dtype="f16"),
    "no scale": attention("s = {scores}", SOFTMAX),
    "a fill added to scores": attention(
        "f = where(keep, cast(0.0, f32), cast(-10000.0, f32))",
        "s = add({scores}, f)",
        SOFTMAX,
        inputs="  keep: bool[{m}, {n}]\n",
    ),
    "head 96": attention(*PLAIN, d=96),
    "head 128": attention(*PLAIN, d=128, n=130),
    "head 256": attention(*PLAIN, d=256),
    "as many keys as features": attention(*PLAIN, n=64, d=64),
    "one query": attention(*PLAIN, m=1),
    "odd keys": attention(*CAUSAL, m=77, n=77),
    "causal from the end": attention(
        "s = where(le({column}, add({row}, 20)), mul({scores}, 0.125), -inf)", SOFTMAX
    ),
    "window": attention(
        "near = logical_and(le({column}, {row}), lt(sub({row}, {column}), 40))",
        "s = where(near, mul({scores}, 0.125), -inf)",
        SOFTMAX,
        m=200,
        n=200,
    ),
    "soft cap": attention("s = mul(tanh(mul({scores}, 0.01)), 30.0)", SOFTMAX),
    "alibi": attention(
        "distance = cast(sub({column}, {row}), f32)",
        "s = add(mul({scores}, 0.125), mul(slopes, distance))",
        "seen = where(le({column}, {row}), s, -inf)",
        "  - o = matmul(cast(softmax(seen, -1), bf16), v)",
        inputs="  slopes: f32[{heads}, 1, 1]\n",
        m=90,
    ),
    "bias": attention(
        "s = add(mul({scores}, 0.125), cast(bias, f32))",
        SOFTMAX,
        inputs="  bias: bf16[{heads}, {m}, {n}]\n",
    ),
    "padding": attention(
        "s = where(keep, mul({scores}, 0.125), -inf)",
        SOFTMAX,
        inputs="  keep: bool[{batch}, 1, 1, {n}]\n",
    ),
    "composite with a mask": attention(
        "o, lse, a, b = sdpfa_fwd(q, k, v, mask=mask, scale=0.2)",
        inputs="  mask: bool[{batch}, {heads}, {m}, {n}]\n",
        outputs="o, lse",
    ),
    "grouped heads": attention(
        f"kx = {WIDENED % 'k'}",
        f"vx = {WIDENED % 'v'}",
        "s = mul(cast(matmul(q, permute(kx, [0, 1, 3, 2])), f32), 0.125)",
        "  - o = matmul(cast(softmax(s, -1), bf16), vx)",
        heads=4,
        kv_heads=2,
        batch=2,
    ),
    "scaled output": attention(
        *PLAIN, "y = mul(o, gate)", inputs="  gate: bf16[{d}]\n", outputs="y"
    ),
    "heads beside features": """fusion: attention
inputs:
  q: bf16[2, 70, 3, 64]
  k: bf16[2, 90, 3, 64]
  v: bf16[2, 90, 3, 64]
ops:
  - scores = cast(matmul(permute(q, [0, 2, 1, 3]), permute(k, [0, 2, 3, 1])), f32)
  - o = matmul(cast(softmax(mul(scores, 0.125), -1), bf16), permute(v, [0, 2, 1, 3]))
  - y = reshape(permute(o, [0, 2, 1, 3]), [2, 70, 192])
outputs: [y]
""",
    "no batches": """fusion: attention
inputs:
  q: bf16[70, 64]
  k: bf16[90, 64]
  v: bf16[90, 64]
ops:
  - s = mul(cast(matmul(q, permute(k, [1, 0])), f32), 0.125)
  - o = matmul(cast(softmax(s, -1), bf16), v)
outputs: [o]
""",
}
"""What the attention scheduler takes."""

REFUSED = {
    "weights are an output": (
        attention("s = mul({scores}, 0.125)", "p = cast(softmax(s, -1), bf16)",
                  "o = matmul(p, v)", outputs="o, p"),
        "`p` has an element for each key",
    ),
    "scores are an output": (
        attention(*PLAIN, outputs="o, s"), "`s` has an element for each key",
    ),
    "a fill of f64": (
        attention("s = add({scores}, where(keep, 0.0, -10000.0))", SOFTMAX,
                  inputs="  keep: bool[{m}, {n}]\n"),
        "is f64, and so is the softmax",
    ),
    "not a softmax": (
        attention("s = mul({scores}, 0.125)", "o = matmul(cast(exp(s), bf16), v)"),
        "`cast_2` is not a softmax along the keys of the result of the first GEMM",
    ),
    "a softmax along queries": (
        attention("s = mul({scores}, 0.125)", "o = matmul(cast(softmax(s, 2), bf16), v)"),
        "is not a softmax along the keys",
    ),
    "dropped weights": (
        attention("s = mul({scores}, 0.125)",
                  "o = matmul(cast(mul(softmax(s, -1), keep), bf16), v)",
                  inputs="  keep: f32[{m}, {n}]\n"),
        "is not a softmax along the keys",
    ),
    "head 80": (attention(*PLAIN, d=80), "80 features per head; supported: 64, 96, 128, 256"),
    "f32": (
        attention("s = mul(matmul(q, permute(k, [0, 1, 3, 2])), 0.125)",
                  "o = matmul(softmax(s, -1), v)", dtype="f32"),
        "queries, keys and values are not all bf16, or all f16",
    ),
    "mixed types": (
        attention("s = mul({scores}, 0.125)", "o = matmul(softmax(s, -1), cast(v, f32))"),
        "is f32, not bf16",
    ),
    "features that do not lie together": (
        attention("turned = permute(q, [0, 1, 3, 2])",
                  "s = mul(cast(matmul(turned, permute(k, [0, 1, 3, 2])), f32), 0.125)",
                  SOFTMAX, m=64, d=64),
        "the rows of `q` are not aligned for bulk copies",
    ),
}  # fmt: skip
"""What is nearly an attention, and why the scheduler refuses it."""

COMPUTED = {
    "keys that are computed": (
        attention("s = mul(cast(matmul(q, permute(relu(k), [0, 1, 3, 2])), f32), 0.125)", SOFTMAX),
        "the GEMM reads its operands from memory",
    ),
}
"""Attentions of what another kernel computes, and why one alone does not."""
