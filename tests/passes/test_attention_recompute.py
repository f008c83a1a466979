"""A forward and a backward of attention in one fusion: both are attention kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly import mostly_nightly
from segments_on_cpu import kernels_of, planned, wrong
from test_regressions import FOLDER

HEAD = """fusion: both
inputs:
  q: bf16[1, 2, 100, {d}]
  k: bf16[1, 2, 130, {d}]
  v: bf16[1, 2, 130, {d}]
  g: bf16[1, 2, 100, {d}]
ops:
"""
ONE_OP_EACH = """  - o, lse, a, b = sdpfa_fwd(q, k, v, is_causal=true)
  - dq, dk, dv = sdpfa_bwd(g, q, k, v, o, lse, is_causal=true)
outputs: [o, dq, dk, dv]
"""
WRITTEN = """  - s = mul(cast(matmul(q, permute(k, [0, 1, 3, 2])), f32), 0.125)
  - i = broadcast(iota(100), [true, true, false, true])
  - j = broadcast(iota(130), [true, true, true, false])
  - t = where(le(j, add(i, 30)), s, -inf)
  - x = max(t, dims=[3], keepdim=true)
  - e = exp(sub(t, x))
  - l = sum(e, dims=[3], keepdim=true)
  - o = matmul(cast(div(e, l), bf16), v)
  - lse = add(x, log(l))
  - dl = sum(mul(cast(g, f32), cast(o, f32)), dims=[3], keepdim=true)
  - p = exp(sub(t, lse))
  - dp = cast(matmul(g, permute(v, [0, 1, 3, 2])), f32)
  - ds = cast(mul(mul(p, sub(dp, dl)), 0.125), bf16)
  - dq = matmul(ds, k)
  - dk = matmul(permute(ds, [0, 1, 3, 2]), q)
  - dv = matmul(permute(cast(p, bf16), [0, 1, 3, 2]), g)
outputs: [o, lse, dq, dk, dv]
"""
BOTH = {"attention", "attention_backward"}


@pytest.mark.parametrize(
    "text", mostly_nightly([ONE_OP_EACH, WRITTEN], 2), ids=["one op each", "written"]
)
def test_both_are_attention_kernels(text: str) -> None:
    program = planned(HEAD.format(d=64) + text)
    assert set(kernels_of(program)) >= BOTH
    because = [d.because for d in program.segmented.decisions if d.action == "redefine"]
    assert any(b.startswith("scores_again") for b in because)


@pytest.mark.nightly
@pytest.mark.parametrize("text", [ONE_OP_EACH, WRITTEN], ids=["one op each", "written"])
def test_both_compute_what_the_fusion_computes(text: str, tmp_path: Path) -> None:
    assert wrong(HEAD.format(d=64) + text, tmp_path) == ""


@pytest.mark.nightly
def test_a_backward_with_its_forward_that_was_wrong(tmp_path: Path) -> None:
    text = (FOLDER / "attention_backward_of_17_queries.yaml").read_text()
    assert set(kernels_of(planned(text))) >= BOTH
    assert wrong(text, tmp_path) == ""


@pytest.mark.nightly
def test_features_without_attention_kernels_say_so() -> None:
    program = planned(HEAD.format(d=40) + ONE_OP_EACH)
    assert not BOTH & set(kernels_of(program))
    undone = [d.because for d in program.segmented.decisions if d.action == "undo"]
    assert any(b.startswith("scores_again") for b in undone)
