"""Backwards of attentions that two kernels compute, and what is nearly one, as text of fusions."""

from __future__ import annotations

ROW = "broadcast(iota({m}), [false, true])"
COLUMN = "broadcast(iota({n}), [true, false])"
PULLS = (
    "shares = exp(sub(s, broadcast(lse, [false, false, false, true])))",
    "moved = cast(matmul(g, permute({v}, [0, 1, 3, 2])), f32)",
    "pulls = cast({pulls}, {dtype})",
    "  - dq = matmul(pulls, {k})",
    "  - dk = matmul(permute(pulls, [0, 1, 3, 2]), q)",
    "  - dv = matmul(permute(cast(shares, {dtype}), [0, 1, 3, 2]), g)",
)
"""All behind the scores `s`, with the sums over features as an input."""
CENTRED = "mul(mul(shares, sub(moved, broadcast(delta, [false, false, false, true]))), 0.125)"


def backward(
    *lines: str,
    inputs: str = "",
    batch: int = 1,
    heads: int = 2,
    kv_heads: int = 0,
    m: int = 70,
    n: int = 90,
    d: int = 64,
    dtype: str = "bf16",
    outputs: str = "dq, dk, dv",
    k: str = "k",
    v: str = "v",
    pulls: str = CENTRED,
) -> str:
    """Return the text of a fusion of gradients g, q, k, v and sums; `{m}` and the like are filled.

    The sums of exponentials are such that shares are of order 1.
    """
    kv = kv_heads or heads
    text = f"""fusion: backward
inputs:
  g: {dtype}[{batch}, {heads}, {m}, {d}]
  q: {dtype}[{batch}, {heads}, {m}, {d}]
  k: {dtype}[{batch}, {kv}, {n}, {d}]
  v: {dtype}[{batch}, {kv}, {n}, {d}]
  lse:
    type: f32[{batch}, {heads}, {m}]
    range: [2, 4]
  delta: f32[{batch}, {heads}, {m}]
{inputs}ops:
"""
    text += "\n".join(line if line.startswith("  ") else f"  - {line}" for line in lines)
    text += f"\noutputs: [{outputs}]\n"
    names = {"m": m, "n": n, "d": d, "dtype": dtype, "batch": batch, "heads": heads, "kv": kv}
    names |= {"group": heads // kv, "row": ROW, "column": COLUMN, "k": k, "v": v, "pulls": pulls}
    names |= {"scores": "cast(matmul(q, permute({k}, [0, 1, 3, 2])), f32)"}
    for _ in range(3):
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", str(value))
    return text


PLAIN = ("s = mul({scores}, 0.125)", *PULLS)
CAUSAL = ("s = where(le({column}, {row}), mul({scores}, 0.125), -inf)", *PULLS)
BIAS = ("s = add(mul({scores}, 0.125), cast(bias, f32))", *PULLS)
BIAS_INPUT = "  bias: bf16[{heads}, {m}, {n}]\n"
WIDENED = "reshape(expand(broadcast(%s, [false, false, true, false, false]), [{batch}, {kv}, {group}, {n}, {d}]), [{batch}, {heads}, {n}, {d}])"  # noqa: E501

RECOGNISED = {
    "plain": backward(*PLAIN),
    "causal": backward(*CAUSAL, m=150, n=150),
    "several batches": backward(*PLAIN, batch=3),
    "f16": backward(*CAUSAL, dtype="f16"),
    "no scale": backward("s = {scores}", *PULLS),
    "head 96": backward(*PLAIN, d=96),
    "head 128": backward(*CAUSAL, d=128, n=130, m=130),
    "head 256": backward(*CAUSAL, d=256, n=130, m=130),
    "window": backward(
        "near = logical_and(le({column}, {row}), lt(sub({row}, {column}), 40))",
        "s = where(near, mul({scores}, 0.125), -inf)",
        *PULLS,
        m=200,
        n=200,
    ),
    "causal from the end": backward(
        "s = where(le({column}, add({row}, 20)), mul({scores}, 0.125), -inf)", *PULLS
    ),
    "alibi": backward(
        "distance = cast(sub({column}, {row}), f32)",
        "t = add(mul({scores}, 0.125), mul(slopes, distance))",
        "s = where(le({column}, {row}), t, -inf)",
        *PULLS,
        inputs="  slopes: {type: 'f32[{heads}, 1, 1]', range: [0, 0.01]}\n",
        m=90,
    ),
    "bias": backward(*BIAS, inputs=BIAS_INPUT),
    "padding": backward(
        "s = where(keep, mul({scores}, 0.125), -inf)",
        *PULLS,
        inputs="  keep: bool[{batch}, 1, 1, {n}]\n",
    ),
    "grouped heads": backward(
        f"kx = {WIDENED % 'k'}",
        f"vx = {WIDENED % 'v'}",
        "s = mul({scores}, 0.125)",
        *PULLS,
        heads=4,
        kv_heads=2,
        batch=2,
        k="kx",
        v="vx",
    ),
    "scaled results": backward(
        *PLAIN, "y = mul(dq, gate)", inputs="  gate: bf16[{d}]\n", outputs="y, dk, dv"
    ),
}
"""What the scheduler takes."""

REFUSED = {
    "weights are an output": (
        backward(*PLAIN, outputs="dq, dk, dv, shares"),
        "an output depends on several results, or on weights",
    ),
    "results that are added": (
        backward(*PLAIN, "y = add(dk, dv)", outputs="dq, y"),
        "`matmul` is not computed between the GEMMs",
    ),
    "no gradient of values": (
        backward(*PLAIN, outputs="dq, dk"), "the pattern needs five GEMMs, found 4",
    ),
    "other weights for keys": (
        backward(*PLAIN[:4], PLAIN[4], "twice = cast(mul(pulls, 1.7), {dtype})",
                 "  - dk = matmul(permute(twice, [0, 1, 3, 2]), q)", PLAIN[6]),
        "gradients of queries and keys use different weights",
    ),
    "dropped shares": (
        backward(*PLAIN[:4], *PLAIN[4:6], "kept = where(keep, shares, 0.0)",
                 "  - dv = matmul(permute(cast(kept, {dtype}), [0, 1, 3, 2]), g)",
                 inputs="  keep: bool[{m}, {n}]\n"),
        "`matmul_1` is read again where `matmul_2` is weighted",
    ),
    "soft cap": (
        backward("t = tanh(mul({scores}, 0.125))", "s = mul(t, 30.0)", *PULLS,
                 pulls="mul(mul(shares, sub(moved, broadcast(delta, [false, false, false, true])))"
                       ", sub(1.0, mul(t, t)))"),
        "is read again where",
    ),
    "rows of other keys": (
        backward(*PLAIN[:4], "  - dq = matmul(pulls, add({k}, {k}))", *PLAIN[5:]),
        "the GEMM reads its operands from memory",
    ),
    "head 80": (backward(*PLAIN, d=80), "80 features per head; supported: 64, 96, 128, 256"),
    "one query": (backward(*PLAIN, m=1), "the pattern needs five GEMMs"),
    "f32": (
        backward("s = mul(matmul(q, permute(k, [0, 1, 3, 2])), 0.125)", *PULLS, dtype="f32"),
        "are not all bf16, or all f16",
    ),
}  # fmt: skip
"""What is nearly a backward, and why the scheduler refuses it."""
