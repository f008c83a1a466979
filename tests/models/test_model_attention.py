"""Attention as models write it runs as the attention kernel; else `explain` says why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly import mostly_nightly
from segments_on_cpu import kernels_of, planned, wrong

from fusec.driver import Compilation
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.segmented import SegmentedFusion

HEAD = """\
fusion: model
inputs:
  x: bf16[2, {length}, 512]
  wq: bf16[512, 512]
  wk: bf16[{features}, 512]
  wv: bf16[{features}, 512]
ops:
  - q = transpose(reshape(linear(x, wq), [2, {length}, 8, {head}]), 1, 2)
  - k = transpose(reshape(linear(x, wk), [2, {length}, {heads}, {head}]), 1, 2)
  - v = transpose(reshape(linear(x, wv), [2, {length}, {heads}, {head}]), 1, 2)
{body}
  - y = reshape(transpose(o, 1, 2), [2, {length}, {width}])
outputs: [{outputs}]
"""
MASK = """\
  - ok = unsqueeze(iota({length}), 0) <= unsqueeze(iota({length}), 1)
  - least = full([], -3.3895313892515355e+38, bf16)
  - mask = where(unsqueeze(unsqueeze(ok, 0), 1), full([], 0.0, bf16), least)
"""
SOFTMAX = """\
  - p = cast(softmax(cast(s, f32), -1), bf16)
  - o = matmul(p, {v})
"""
REPEATED = """\
  - kr = reshape(expand(unsqueeze(k, 2), [2, 2, 4, {length}, 64]), [2, 8, {length}, 64])
  - vr = reshape(expand(unsqueeze(v, 2), [2, 2, 4, {length}, 64]), [2, 8, {length}, 64])
"""
FLAT = """\
  - qb = reshape(q, [16, {length}, 64])
  - kb = reshape(transpose(k, 2, 3), [16, 64, {length}])
  - s = reshape(matmul(qb, kb), [2, 8, {length}, {length}]) * 0.125 + mask
  - p = softmax(s, -1)
  - pb = reshape(p, [16, {length}, {length}])
  - o = reshape(matmul(pb, reshape(v, [16, {length}, 64])), [2, 8, {length}, 64])
"""
SCORES = "  - s = matmul(q, transpose({k}, 2, 3)) * 0.125 + mask\n"
PARTS = """\
  - s = cast(matmul(q, transpose(k, 2, 3)), f32) * 0.125 + mask
  - e = exp(s - max(s, [-1], keepdim=true))
  - p = cast(e / sum(e, [-1], keepdim=true), bf16)
  - o = matmul(p, v)
"""
BOOL = "  - o = scaled_dot_product_attention(q, k, v, unsqueeze(unsqueeze(ok, 0), 1))\n"
SDPA = "  - o, lse, _, _ = sdpfa_fwd(q, k, v, scale=0.125)\n"

WRITTEN = {
    "flat batches": (MASK + FLAT, "y"),
    "softmax in f32": (MASK + SCORES.format(k="k") + SOFTMAX.format(v="v"), "y"),
    "repeated key heads": (
        MASK + REPEATED + SCORES.format(k="kr") + SOFTMAX.format(v="vr"), "y",
    ),
    "scaled queries": (
        "  - s = matmul(q * 0.125, transpose(k, 2, 3))\n" + SOFTMAX.format(v="v"), "y",
    ),
    "softmax in parts": (MASK + PARTS, "y"),
    "a mask of bools": (MASK + BOOL, "y"),
    "a training step, which keeps operands": (SDPA, "y, o, lse, q, k, v"),
}  # fmt: skip
FEW = ("repeated key heads", "a training step, which keeps operands")


def segmented(body: str, outputs: str, length: int) -> SegmentedFusion:
    head, heads = 64, 2 if "kr" in body else 8
    text = HEAD.replace("{body}", body.rstrip()).format(
        length=length, features=head * heads, heads=heads, head=head, width=8 * head,
        outputs=outputs,
    )  # fmt: skip
    return Compilation(read_text(text), CompileOptions(targets=("sm_90a",))).segmented


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FEW else pytest.mark.nightly) for n in WRITTEN]
)
def test_attention_is_recognised_as_models_write_it(name: str) -> None:
    body, outputs = WRITTEN[name]
    found = segmented(body, outputs, length=197 if "lse" in outputs else 256)
    assert "attention" in {s.scheduler for s in found.segments}
    assert [d for d in found.decisions if d.action == "attention"] == []


PLAIN = """\
fusion: plain
inputs:
  q: {dtype}[2, 8, 256, {head}]
  k: {dtype}[2, 8, 256, {head}]
  v: {dtype}[2, 8, 256, {head}]
ops:
  - s = matmul(q, transpose(k, 2, 3))
  - p = softmax(s, -1)
  - o = matmul(p, v)
outputs: [{outputs}]
"""


@pytest.mark.parametrize(
    ("dtype", "head", "outputs", "why"),
    [
        ("bf16", 48, "o", "48 features per head; supported: 64, 96, 128, 256"),
        ("bf16", 64, "o, p", "`p` has an element for each key"),
        ("f32", 64, "o", "queries, keys and values are not all bf16, or all f16"),
    ],
)
def test_what_breaks_the_pattern_is_explained(
    dtype: str, head: int, outputs: str, why: str
) -> None:
    text = PLAIN.format(dtype=dtype, head=head, outputs=outputs)
    found = Compilation(read_text(text), CompileOptions(targets=("sm_90a",))).segmented
    assert "attention" not in {s.scheduler for s in found.segments}
    (decision,) = [d for d in found.decisions if d.action == "attention"]
    assert decision.subject == ("s", "o")
    assert why in [refusal.because for _, refusal in decision.refusals]


MASKED_BACKWARD = """\
fusion: backward
inputs:
  q: bf16[2, {heads}, 100, 64]
  k: bf16[2, 2, 130, 64]
  v: bf16[2, 2, 130, 64]
  mask: {mask}
  grad: bf16[2, 100, {heads}, 64]
ops:
  - kr = repeat_interleave(k, {group}, 1)
  - vr = repeat_interleave(v, {group}, 1)
  - g = permute(grad, [0, 2, 1, 3])
  - o, lse, _, _ = sdpfa_fwd(q, kr, vr, mask=mask, scale=0.125)
  - dq, dke, dve = sdpfa_bwd(g, q, kr, vr, o, lse, scale=0.125, mask=mask)
  - dk = sum(reshape(dke, [2, 2, {group}, 130, 64]), [2])
  - dv = sum(reshape(dve, [2, 2, {group}, 130, 64]), [2])
outputs: [o, dq, dk, dv]
"""


@pytest.mark.parametrize(
    ("heads", "mask"),
    mostly_nightly([(4, "bf16[2, 1, 100, 130]"), (2, "bool[2, 1, 1, 130]")], 2),
)
def test_backward_with_a_mask_is_one_attention_kernel(
    heads: int, mask: str, tmp_path: Path
) -> None:
    text = MASKED_BACKWARD.format(heads=heads, group=heads // 2, mask=mask)
    kinds = kernels_of(planned(text))
    assert (kinds.count("attention"), kinds.count("attention_backward")) == (1, 1)
    assert "matmul" not in kinds
    assert wrong(text, tmp_path) == ""


WIDE_BACKWARD = """\
fusion: backward
inputs:
  q: bf16[2, 2, 128, 64]
  k: bf16[2, 2, 128, 64]
  v: bf16[2, 2, 128, 64]
  g: bf16[2, 2, 128, 64]
  total: f32[2, 2, 128, 1]
  lse: f32[2, 2, 128, 1]
ops:
  - gw = cast(g, f32)
  - qw = cast(q, f32)
  - s = qw @ transpose(cast(k, f32), 2, 3) * 0.125
  - p = exp(s - lse)
  - ds = p * (gw @ transpose(cast(v, f32), 2, 3) - total) * 0.125
  - dq = cast(ds @ cast(k, f32), bf16)
  - dk = cast(transpose(ds, 2, 3) @ qw, bf16)
  - dv = cast(transpose(p, 2, 3) @ gw, bf16)
outputs: [dq, dk, dv]
"""


def test_what_breaks_the_pattern_of_a_backward_is_explained() -> None:
    found = planned(WIDE_BACKWARD).segmented
    (decision,) = [d for d in found.decisions if d.action == "attention"]
    ((scheduler, refusal),) = decision.refusals
    assert (scheduler, refusal.rule) == ("attention_backward", "dtype")
    assert "is f32, not bf16" in refusal.because
