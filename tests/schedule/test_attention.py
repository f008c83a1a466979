"""Which segments are attention, what their kernels say, and that they compile."""

from __future__ import annotations

import pytest
from attentions import COMPUTED, PLAIN, RECOGNISED, REFUSED, attention

from fusec import target
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.schedule.attention.forward.family import AttentionPlan, Attentions
from fusec.segment.protocol import Refusal

HOPPER = target.find("sm_90a")


def fusion_of(text: str) -> Fusion:
    """Return a fusion after the passes."""
    return run_pipeline(read_text(text, "attention.yaml"))


def plan_of(text: str, **settings: int) -> AttentionPlan:
    """Return the plan with some fields set."""
    return Attentions().build(fusion_of(text), HOPPER, settings)


@pytest.mark.parametrize("name", RECOGNISED)
def test_an_attention_is_recognised(name: str):
    assert not isinstance(Attentions().problem(fusion_of(RECOGNISED[name])), Refusal)


@pytest.mark.parametrize("name", [*REFUSED, *COMPUTED])
def test_what_is_nearly_one_is_refused(name: str):
    text, because = {**REFUSED, **COMPUTED}[name]
    found = Attentions().problem(fusion_of(text))
    assert isinstance(found, Refusal)
    assert because in found.because


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_runs_in_other_kernels(name: str):
    compilation = Compilation(read_text(REFUSED[name][0], "attention.yaml"), CompileOptions())
    assert "attention" not in {s.scheduler for s in compilation.segmented.segments}
    assert len(compilation.kernel_sources) > 1


@pytest.mark.parametrize("name", COMPUTED)
def test_another_kernel_computes_operands(name: str):
    """It stores rows of features: the transposition behind them is the attention's."""
    compilation = Compilation(read_text(COMPUTED[name][0], "attention.yaml"), CompileOptions())
    assert [s.scheduler for s in compilation.segmented.segments] == ["pointwise", "attention"]


def test_other_gpus_run_other_kernels():
    refusal = Attentions().propose(fusion_of(attention(*PLAIN)), target.find("sm_80"))
    assert isinstance(refusal, Refusal)
    assert refusal.because == "sm_80 has no wgmma"


def test_attentions_that_differ_in_a_constant_are_asked_of_apart():
    # A maximum is replaced where it is -inf in the first one, which alone is a softmax.
    half = """  - s{n} = mul(cast(matmul(q{n}, permute(k{n}, [0, 1, 3, 2])), f32), 0.125)
  - m{n} = max(s{n}, [-1], keepdim=true)
  - p{n} = exp(sub(s{n}, where(eq(m{n}, {least}), 0.0, m{n})))
  - o{n} = matmul(cast(div(p{n}, sum(p{n}, [-1], keepdim=true)), bf16), v{n})
"""
    inputs = "".join(f"  {x}{n}: bf16[4, 16, 2048, 128]\n" for n in (1, 2) for x in "qkv")
    ops = half.format(n=1, least="-inf") + half.format(n=2, least="5.0")
    text = f"fusion: attentions\ninputs:\n{inputs}ops:\n{ops}outputs: [o1, o2]\n"
    compilation = Compilation(fusion_of(text), CompileOptions(targets=("sm_90a",)))
    found = {plan.scheduler: plan for plan in compilation.plans}
    first = found["attention"].fusion
    assert len(compilation.plans) > 2
    assert [o.value.name for o in first.outputs] == ["o1"]
