"""Fusions whose host programs have loops, streams and exchanges, each for what others lack."""

from __future__ import annotations

from typing import Any

import paths  # noqa: F401
from test_rank_lists import PIPELINE

STREAMED = {
    # An exchange beside a kernel, waited for later.
    "hidden": """\
fusion: hidden
mesh: [2]
dims: {B: 8, H: 16}
inputs:
  x: {type: "f32[B, H]", shard: {1: mesh}}
  v: {type: "f32[B, H]", shard: {}}
  w: {type: "f32[H, H]", shard: {}}
ops:
  - p = sum(x, dims=[1], keepdim=true)
  - q = matmul(v, w)
  - y = add(matmul(q, w), p)
outputs: [y]
""",
    # An all-to-all.
    "turned": """\
fusion: turned
mesh: [4]
dims: {B: 16, H: 32}
inputs:
  x: {type: "f32[B, H]", shard: {0: mesh}}
ops:
  - d = add(x, 1.0)
  - y = mul(d, 3.0)
outputs:
  - y: {shard: {1: mesh}}
""",
    # Slices that are not dense.
    "columns": """\
fusion: columns
dims: {M: 12, K: 20, N: 12}
inputs:
  a: f32[M, K]
  b: f32[K, N]
ops:
  - y = matmul(a, b)
  - z = relu(y)
outputs:
  - y: {stream: {1: 3}}
  - z
""",
    # Two axes.
    "grid": """\
fusion: grid
mesh: {dp: 2, tp: 2}
dims: {B: 8, H: 16, F: 12}
inputs:
  x: {type: "f32[B, H]", shard: {0: dp, 1: tp}}
  w: {type: "f32[F, H]", shard: {1: tp}}
ops:
  - h = linear(x, w)
  - s = sum(h, dims=[0])
outputs: [h, s]
""",
    # Values on some of the ranks.
    "pipeline": PIPELINE,
    # Several loops.
    "round": """\
fusion: round
dims: {M: 8, N: 4}
inputs:
  x: {type: "f32[M, N]", stream: {0: 4}}
ops:
  - a = neg(x)
  - s = sum(a, dims=[0])
  - b = mul(a, broadcast_in_dim(s, [M, N], [1]))
  - t = sum(b, dims=[0])
  - c = add(b, broadcast_in_dim(t, [M, N], [1]))
  - d = add(c, a)
outputs: [a, d]
""",
    # Segments on streams.
    "several": """\
fusion: several
dims: {A: 16, H: 16}
inputs:
  x: f32[A, H]
  v: f32[H, H]
  w: f32[H, H]
ops:
  - a = matmul(x, v)
  - b = matmul(x, w)
  - s = sum(a, dims=[1])
  - t = max(b, dims=[0])
  - i, j = sort(b, dim=1)
outputs: [s, t, i]
""",
    # Memory that kernels of each stream leave zeroed.
    "reduced": """\
fusion: reduced
dims: {B: 6, H: 65536}
inputs:
  x: {type: "f32[B, H]", stream: {0: 6}}
ops:
  - y = sum(x, dims=[1])
outputs: [y]
""",
    # Copies in a loop.
    "strided": """\
fusion: strided
mesh: [4]
dims: {M: 4, N: 8}
inputs:
  x: {type: "f32[M, N]", stream: {1: 4}}
ops:
  - a = neg(x)
  - b = neg(a)
  - c = flip(b, dims=[0])
outputs: [a, b, c]
shardings:
  c: {shard: {0: mesh}, stream: {1: 4}}
""",
    # Slices that overlap.
    "uneven": """\
fusion: uneven
dims: {M: 11, N: 8}
inputs:
  x: {type: "f32[M, N]", stream: {0: 4}}
ops:
  - y = add(x, 1.0)
  - z = mul(y, 2.0)
outputs: [y, z]
""",
    # An output whose place depends on the rank.
    "views": """\
fusion: views
mesh: [2]
dims: {M: 6, N: 8}
inputs:
  x: {type: "f32[M, N]", shard: {}}
ops:
  - y = set(x)
outputs:
  - y: {shard: {1: mesh}}
""",
}
OPTIONS: dict[str, dict[str, Any]] = {"several": {"with_": ("assign_streams",)}}
