"""Which segments are backwards of attentions, what their kernels say, and that they compile."""

from __future__ import annotations

import pytest
from backwards import BIAS, BIAS_INPUT, CAUSAL, PLAIN, RECOGNISED, REFUSED, backward
from nightly import mostly_nightly

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.run.binary.headers import headers_for
from fusec.run.binary.nvrtc import compile_cuda
from fusec.schedule.attention.backward.family import AttentionBackwards, BackwardPlan
from fusec.segment.protocol import Refusal

HOPPER = target.find("sm_90a")
COMPOSITE = """fusion: backward
inputs:
  g: bf16[2, 3, 300, 64]
  q: bf16[2, 3, 300, 64]
  k: bf16[2, 3, 300, 64]
  v: bf16[2, 3, 300, 64]
  o: bf16[2, 3, 300, 64]
  lse: f32[2, 3, 300]
ops:
  - dq, dk, dv = sdpfa_bwd(g, q, k, v, o, lse, is_causal=true)
outputs: [dq, dk, dv]
"""


def fusion_of(text: str) -> Fusion:
    """Return a fusion after the passes."""
    return run_pipeline(read_text(text, "backward.yaml"))


def plan_of(text: str, **settings: int) -> BackwardPlan:
    """Return the plan with some fields set."""
    return AttentionBackwards().build(fusion_of(text), HOPPER, settings)


@pytest.mark.parametrize("name", RECOGNISED)
def test_a_backward_is_recognised(name: str):
    assert not isinstance(AttentionBackwards().problem(fusion_of(RECOGNISED[name])), Refusal)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_nearly_one_is_refused(name: str):
    text, because = REFUSED[name]
    found = AttentionBackwards().problem(fusion_of(text))
    assert isinstance(found, Refusal)
    assert because in found.because


@pytest.mark.parametrize("name", ["soft cap", "head 80"])
def test_what_is_refused_runs_in_other_kernels(name: str):
    compilation = Compilation(read_text(REFUSED[name][0], "backward.yaml"), CompileOptions())
    assert "attention_backward" not in {s.scheduler for s in compilation.segmented.segments}


def test_the_composite_runs_in_three_kernels():
    compilation = Compilation(read_text(COMPOSITE, "backward.yaml"), CompileOptions())
    schedulers = [s.scheduler for s in compilation.segmented.segments]
    assert schedulers == ["reduction", "attention_backward"]
    assert len(compilation.kernel_sources) == 3


def test_causal_tiles_are_limits_of_keys():
    (bound,) = plan_of(RECOGNISED["causal"]).problem.backward.bounds
    assert (bound.is_end, bound.by_row, bound.offset) == (True, True, 0)


@pytest.mark.parametrize("least", ["add({row}, -20)", "40"])
def test_queries_that_may_see_nothing_are_not_skipped(least: str):
    """Their shares are no zeros: nothing is left out of what the definition makes of them."""
    where = f"s = where(le({{column}}, {least}), mul({{scores}}, 0.125), -inf)"
    assert plan_of(backward(where, *PLAIN[1:])).problem.backward.bounds == ()


def test_other_gpus_run_other_kernels():
    refusal = AttentionBackwards().propose(fusion_of(backward(*PLAIN)), target.find("sm_80"))
    assert isinstance(refusal, Refusal)
    assert refusal.because == "sm_80 has no wgmma"


LONG = {
    "plain": backward(*PLAIN, m=2000, n=2000, d=64),
    "causal": backward(*CAUSAL, m=2000, n=2000, d=128),
    "bias": backward(*BIAS, m=2000, n=2000, d=128, inputs=BIAS_INPUT),
    "head 256": backward(*CAUSAL, m=2000, n=2000, d=256),
    "head 256 with a bias": backward(*BIAS, m=2000, n=2000, d=256, inputs=BIAS_INPUT),
}


@pytest.mark.parametrize("name", mostly_nightly(LONG, 4))
def test_compiles_without_spills(name: str):
    pytest.importorskip("cuda.bindings.nvrtc")
    plan = plan_of(LONG[name])
    for source in plan_sources(plan):
        headers = headers_for(source.text)
        built = compile_cuda(source.text, name="kernel", arch="sm_90a", headers=headers)
        # Among warnings are a serialised wgmma, an injected wait, and an ignored setmaxnreg.
        assert (built.warnings, built.spill_bytes) == ((), 0)
