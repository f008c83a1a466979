"""Fusions with the newer operations read back from their YAML text and from their script."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusec.ir.text import to_text
from fusec.nvfuser.script import load_script
from fusec.parse import read_text
from fusec.parse.twin import to_python

LINES = """
a = index_select(x, i, dim=1)
a = select(x, k, 1)
a = select(x, -1, dim=1)
a = gather(x, j, dim=0)
a = take_along_axis(x, l, 1)
a = embedding_fwd(i, x, padding_idx=0)
a = scatter(x, j, 1.5, dim=0)
a = scatter_add(x, j, x, 0)
a = index_put_accumulate(x, i, s)
a = cumsum(x, 1, 2.0)
a = cummax(x, dim=0)
a = argsort(x, descending=true)
a, b = sort(x, 0)
a, b = topk(x, N, dim=0, largest=false)
a = argmax(x, dims=[1], keepdim=true)
a = argmin(x)
a = flip(x, dims=[0])
a = repeat(x, [2, 3])
a = stride_order(x, [0, 1])
a = triu(x, 1)
a = uniform(-1.0, 2.0, [B, H], dtype=bf16)
a = normal(0.0, 1.0, [B], 3, 4)
a = uniform(0.0, 1.0, [B], k, 0)
a, b = dropout(x, 0.1)
a = cross_entropy(x, c, reduction=none)
a, b, d, e, g = batch_norm(x, none, none, m, m)
a, b, d, e = sdpfa_fwd(q, q, q, none, none, 0.1, true)
a = grouped_mm(x, w, o)
""".strip().splitlines()

FILE = """
fusion: t
dims: {{B: 8, H: 6, N: 3}}
inputs:
  x: f32[B, H]
  i: i64[N]
  j: i32[B, H]
  l: i64[B, 2]
  s: f32[N, H]
  c: i64[B]
  m: f32[H]
  q: bf16[2, B, H]
  w: f32[2, H, 4]
  o: i32[2]
  k: i64 = 1
ops:
  - {line}
outputs: [{outputs}]
"""


@pytest.mark.parametrize("line", LINES, ids=[f"{k}" for k in range(len(LINES))])
def test_they_read_back(line: str, tmp_path: Path) -> None:
    fusion = read_text(FILE.format(line=line, outputs=line.split(" = ")[0]))
    assert read_text(to_text(fusion)) == fusion
    path = tmp_path / "twin.py"
    path.write_text(to_python(fusion))
    (loaded,) = load_script(path)
    assert loaded == fusion
