"""What of a large fusion is evaluated together, how long that takes, and what is sampled of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus_pool import processors_of
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text
from fusec.processors import usable_processors
from fusec.reference import part, stream, sweeps
from fusec.reference.cost import Costs
from fusec.reference.evaluate import find_values
from fusec.reference.nodes import Model
from fusec.reference.stream import Stream, outputs_of
from fusec.reference.verdict import Verdict, compare
from fusec.run.inputs import random_inputs


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 16)
    monkeypatch.setattr(sweeps, "BLOCK_ELEMENTS", 64)
    monkeypatch.setattr(stream, "usable_processors", lambda: 1)
    monkeypatch.setattr(part, "usable_processors", lambda: 1)


def fusion_of(inputs: str, *lines: str, outputs: str) -> Fusion:
    ops = "".join(f"  - {line}\n" for line in lines)
    text = f"fusion: t\ninputs: {{{inputs}}}\nops:\n{ops}outputs: [{outputs}]\n"
    return read_text(text, "t.yaml")


APART = fusion_of(
    "a: 'f32[64, 48]', b: 'f32[32, 80]'",
    "x = exp(a)", "y = mul(x, 2.0)", "z = exp(b)", "u = sum(a, dims=[0])",
    outputs="x, y, z, u",
)  # fmt: skip
BACKWARD = fusion_of(
    "d: 'f32[64, 48]', x: 'f32[64, 48]', m: 'f32[64, 1]'",
    "h = sub(x, m)",
    "g = sum(mul(d, h), dims=[0])",
    "t = sum(d, dims=[0])",
    "r = sum(mul(d, h), dims=[1], keepdim=true)",
    "y = mul(sub(d, r), h)",
    outputs="g, y, t",
)


def names(groups: Iterable[Any]) -> list[str]:
    return [" ".join(v.name for v in group.values) for group in groups]


def groups_of(fusion: Fusion, limit: float) -> list[str]:
    values, inputs = find_values(fusion, None), random_inputs(fusion, {})
    return names(Stream(fusion, inputs, {}, values, Model(), limit).groups)


def judged(fusion: Fusion, limit: float | None, spoil: str = "", at: Any = ...) -> Verdict:
    inputs = random_inputs(fusion, {})
    outputs = outputs_of(fusion, inputs, {})
    if spoil:
        outputs[spoil][at] *= np.float32(1.01)
    return compare(fusion, {}, inputs, outputs, limit=limit)


def test_what_shares_no_tensor_but_inputs_is_evaluated_apart() -> None:
    assert groups_of(APART, float("inf")) == ["x y", "z", "u"]
    for limit in (None, 1e-6):
        assert judged(APART, limit).ok
        for name in "xyzu":
            assert judged(APART, limit, name).word == "differs"
    sampled = judged(APART, 1e-6).coverage.sampled
    assert [list(s.axes) for s in sampled] == [["x", "y"], ["z"], ["u"]]


def test_sums_over_other_axes_are_sampled_apart() -> None:
    """The gradients of a norm: of weights along rows, of inputs along columns."""
    assert groups_of(BACKWARD, float("inf")) == ["g y", "t"]
    assert groups_of(BACKWARD, 1e-6) == ["g", "y", "t"]
    assert judged(BACKWARD, None).coverage.text() == "all"
    verdict = judged(BACKWARD, 1e-6)
    assert verdict.ok
    assert verdict.coverage.text().startswith("sampled: ")
    assert [dict(s.axes) for s in verdict.coverage.sampled] == [{"g": 0}, {"y": 0}, {"t": 0}]
    for name in "gyt":
        assert judged(BACKWARD, 1e-6, name, -1).word == "differs"  # the last slice is always seen


def test_what_needs_all_of_a_sum_stays_whole() -> None:
    fusion = fusion_of(
        "x: 'f32[64, 48]'",
        "y = mul(x, sum(exp(x), dims=[0, 1]))",
        outputs="y",
    )
    assert judged(fusion, 1e-6).coverage.text() == "all"


def test_the_time_of_all_parts_is_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its share, of the processors that there are."""
    costs = Costs(APART, {})
    whole = costs.evaluated(APART.nodes) + costs.judged(find_values(APART, None))
    few = judged(APART, whole / 4).coverage.sampled
    assert all(0.15 < s.checked / s.total < 0.35 for s in few)
    monkeypatch.setattr(part, "usable_processors", lambda: 3)
    monkeypatch.setattr(stream, "usable_processors", lambda: 3)
    more = judged(APART, whole / 8).coverage.sampled
    assert all(s.checked > f.checked for s, f in zip(more, few, strict=True))


def test_slices_are_counted_by_what_they_cost() -> None:
    """Random numbers cost more than products: of slices of one element fewer are evaluated."""
    drawn = "y = uniform(l, h, [4096], rng_seed=3, rng_offset=0)"
    random = fusion_of("l: f32, h: f32", drawn, outputs="y")
    scaled = fusion_of("x: 'f32[4096]'", "y = mul(x, 2.0)", outputs="y")
    (few,), (many,) = (judged(f, 1e-4).coverage.sampled for f in (random, scaled))
    assert few.checked < many.checked < 4096


def test_processors_of_jobs_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3, 5, 8, 13, 21})
    assert usable_processors() == 7
    for jobs in range(1, 8):
        shares = [processors_of(number, jobs) for number in range(jobs)]
        assert sorted(p for share in shares for p in share) == [1, 2, 3, 5, 8, 13, 21]
        assert all(shares)
    assert [processors_of(n, 9) for n in (0, 6, 7, 8)] == [[1], [21], [1], [2]]
