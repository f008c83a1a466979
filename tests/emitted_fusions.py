"""Fusions of whose kernels launchers are emitted, each for what it has that others lack."""

from __future__ import annotations

from paths import TESTS

FUSIONS = {
    "one_kernel": """\
fusion: one_kernel
dims: {B: 5, H: 64}
inputs:
  x: bf16[B, H]
  w: f32[H]
  eps: f32 = 1e-5
ops:
  - y = cast(add(mul(cast(x, f32), w), eps), bf16)
outputs: [y]
""",
    "several": """\
fusion: several
dims: {B: 6, H: 256}
inputs:
  x: f32[B, H]
ops:
  - a = sum(x, dims=[1])
  - s = sum(x, dims=[0])
  - n = softmax(x, dim=0)
  - t, i = sort(n, dim=1)
  - y = add(t, reshape(a, [B, 1]))
outputs: [y, s]
""",
    "equal": """\
fusion: equal
dims: {B: 12, N: 9, H: 64}
inputs: {x: "f32[B, H]", z: "f32[N, H]", bias: "f32[H]", b: "f32[H]"}
ops:
  - first = mul(softmax(x, 1), bias)
  - second = mul(softmax(z, 1), b)
  - third = mul(log_softmax(z, 1), b)
segments: {s0: [first], s1: [second], s2: [third]}
outputs: [first, second, third]
""",
    "strided": """\
fusion: strided
dims: {M: 40, N: 24}
inputs:
  x:
    type: f32[M, N]
    contiguity: [false, true]
  y: f32[M, N]
ops:
  - z = add(x, y)
outputs: [z]
""",
    "in_place": """\
fusion: in_place
dims: {B: 6, H: 40}
inputs:
  p: f32[B, H]
  g: f32[B, H]
  k: i64 = 3
ops:
  - q = sub(p, mul(g, 0.5))
  - m = max(q, dims=[1])
  - r = mul(m, cast(k, f32))
outputs:
  - q: {alias: p}
  - r
""",
    "scalars": """\
fusion: scalars
dims: {H: 32}
inputs:
  x: f64[H]
  a: f64 = 0.1
  b: f32 = 0.1
  c: f16 = 0.1
  d: bf16 = 0.1
  e: i64 = -5
  f: i32 = -6
  g: bool = true
  z: c64
ops:
  - s = add(add(cast(a, f64), cast(b, f64)), add(cast(c, f64), cast(d, f64)))
  - i = add(cast(e, f64), cast(f, f64))
  - u = where(g, s, i)
  - y = add(mul(x, u), cast(real(z), f64))
  - w = sub(y, mul(cast(imag(z), f64), i))
outputs: [w]
""",
    "complex": """\
fusion: complex
dims: {B: 4, H: 6}
inputs:
  z: c64[B, H]
ops:
  - y = mul(z, z)
outputs: [y]
""",
    "chain": """\
fusion: chain
dims: {B: 4, H: 40}
inputs:
  x: f32[B, H]
ops:
  - a, i = sort(x, dim=1)
  - b, j = sort(add(a, cast(i, f32)), dim=1)
  - c, k = sort(add(b, cast(j, f32)), dim=1)
  - y = add(c, cast(k, f32))
outputs: [y]
""",
    "known": """\
fusion: known
inputs:
  x: f32[4, 8]
ops:
  - restrict_ = exp(x)
outputs: [restrict_]
""",
    "nothing": """\
fusion: nothing
dims: {B: 4, sizes: 0, linux: 3}
inputs:
  x: f32[B, sizes, linux]
ops:
  - at_x = exp(x)
outputs: [at_x]
""",
    "views": """\
fusion: views
dims: {B: 4, H: 6}
inputs:
  x: f32[B, H]
ops:
  - y = permute(x, [1, 0])
  - v = slice(x, start_indices=[1, 2], end_indices=[3, 5])
  - e = exp(x)
outputs: [y, v, e]
""",
    "once": """\
fusion: once
dims: {B: 65536, H: 8}
inputs:
  x: f32[B, H]
ops:
  - m = sum(x, dims=[0, 1])
outputs: [m]
""",
    "drawn": """\
fusion: drawn
dims: {M: 30, N: 16}
inputs:
  x: f32[M, N]
  n: i64 = 4
ops:
  - y, mask = dropout(x, 0.5)
  - z = mul(full([n], 2.0, f32), 3.0)
outputs: [y, mask, z]
""",
    "overlapped": """\
fusion: backward
dims: {B: 40, H: 96}
inputs:
  x: f32[B, H]
ops:
  - m = mean(x, dims=[1], keepdim=true)
  - y = sub(x, m)
  - p = mul(x, y)
  - c = sum(p, dims=[0])
outputs: [y, c]
segments:
  all: {values: [m, y, p, c], scheduler: inner_outer_persistent}
""",
    "maps": """\
fusion: maps
dims: {M: 200, N: 64, K: 64}
inputs:
  a: bf16[M, K]
  b: bf16[K, N]
ops:
  - y = exp(matmul(a, b))
outputs: [y]
""",
    "rounded": """\
fusion: rounded
dims: {M: 200, N: 64, K: 128}
inputs:
  a: f32[M, K]
  b: f32[N, K]
ops:
  - y = linear(tf32(a), tf32(b))
outputs: [y]
""",
    "copied": (TESTS / "regressions" / "names_of_copied_outputs.yaml").read_text(),
}  # fmt: skip
TARGETS = {"maps": "sm_90a", "rounded": "sm_90a", "overlapped": "sm_90a"}

SIZED = """\
fusion: run
dims: {B: 4096, H: 8}
inputs:
  x: f32[B, H]
ops:
  - m = sum(x, dims=[0, 1])
  - y, i = sort(exp(sub(x, m)), dim=0)
outputs: [y]
"""
SIZES = {"B": (4096, 64)}

TURNS = """\
fusion: turns
dims: {M: 300, N: 256, K: 65536}
inputs:
  a: bf16[M, K]
  b: bf16[K, N]
ops:
  - c = matmul(a, b)
outputs: [c]
schedules:
  c: {kernel: split_k, tile_n: 64, splits: 3, cluster_k: 4, split_method: serial_tma}
"""
