"""Which segments are attention, what their kernels say, and that they compile."""

from __future__ import annotations

import pytest
from attentions import PLAIN, RECOGNISED, REFUSED, attention

from fusec import target
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.schedule.attention import AttentionPlan, Attentions
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


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_nearly_one_is_refused(name: str):
    text, because = REFUSED[name]
    found = Attentions().problem(fusion_of(text))
    assert isinstance(found, Refusal)
    assert because in found.because


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_runs_in_other_kernels(name: str):
    compilation = Compilation(read_text(REFUSED[name][0], "attention.yaml"), CompileOptions())
    assert "attention" not in {s.scheduler for s in compilation.segmented.segments}
    assert len(compilation.kernel_sources) > 1


def test_other_gpus_run_other_kernels():
    refusal = Attentions().propose(fusion_of(attention(*PLAIN)), target.find("sm_80"))
    assert isinstance(refusal, Refusal)
    assert refusal.because == "sm_80 has no wgmma"
