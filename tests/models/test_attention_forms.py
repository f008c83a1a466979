"""Attention in the forms that models write: one kernel computes it, or `explain` says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from draws import times
from model_attentions import Choices, draw, own_kernels, text_of, why_not
from nightly import mostly_nightly
from segments_on_cpu import planned, wrong

PLAIN = Choices("own", "scores", "all", "where", "none", "scores", "op", "none", flat=False)
FORMS = {
    "heads by expand": replace(PLAIN, shared="expand", seen="causal", typed="softmax"),
    "heads by repeat_interleave": replace(PLAIN, shared="repeat_interleave", scaled="keys"),
    "heads in groups": replace(PLAIN, shared="grouped", seen="causal", masked="masked_fill"),
    "causal by adding": replace(PLAIN, seen="causal", masked="add lowest", typed="softmax"),
    "scaled queries in f32": replace(PLAIN, scaled="queries", typed="products", written="parts"),
    "scaled queries and keys": replace(PLAIN, scaled="both", typed="softmax", flat=True),
    "window": replace(PLAIN, seen="window", masked="where lowest", scaled="divided scores"),
    "padding and bias": replace(PLAIN, seen="padding", masked="subtract", biased="bias"),
    "soft cap": replace(PLAIN, seen="causal", biased="soft cap", typed="products"),
    "softmax in bf16": replace(PLAIN, seen="causal", masked="add", typed="rounded", flat=True),
}


def check_kernels(c: Choices) -> None:
    """Assert that one kernel computes an attention, or that `explain` says why none does."""
    found = planned(text_of(c)).segmented
    kinds = [s.scheduler for s in found.segments]
    reasons = [d for d in found.decisions if d.action == "attention"]
    if why := why_not(c):
        assert "attention" not in kinds, str(c)
        assert any(why in r.because for d in reasons for _, r in d.refusals), str(c)
        return
    assert kinds.count("attention") == 1, f"{c}: {kinds}"
    assert len(kinds) <= 1 + own_kernels(c), f"{c}: {kinds}"
    assert reasons == []


@pytest.mark.parametrize("c", mostly_nightly(FORMS.values(), 5), ids=FORMS)
def test_forms_of_models_are_one_attention_kernel(c: Choices, tmp_path: Path) -> None:
    check_kernels(c)
    assert wrong(text_of(c), tmp_path) == ""


@pytest.mark.parametrize("seed", range(times(4)))
def test_random_forms_are_one_attention_kernel(seed: int) -> None:
    check_kernels(draw(Random(seed)))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 100 + times(40)))
def test_more_random_forms_are_one_attention_kernel(seed: int) -> None:
    check_kernels(draw(Random(seed)))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(200, 200 + times(6)))
def test_random_forms_compute_what_the_fusion_computes(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    c = next(c for c in iter(lambda: draw(rng), None) if c is not None and not why_not(c))
    assert wrong(text_of(c), tmp_path) == ""
