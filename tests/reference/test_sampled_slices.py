"""What of a large fusion is evaluated together, how long that takes, and what is sampled of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus_pool import processors_of
from fusec.ir.graph import Fusion, needed_nodes
from fusec.parse.reader import read_text
from fusec.processors import usable_processors
from fusec.reference import part, stream, sweeps
from fusec.reference.cost import Costs
from fusec.reference.errors.nodes import Model
from fusec.reference.evaluate import find_values
from fusec.reference.stream import Stream, outputs_of
from fusec.reference.verdict import Verdict, compare
from fusec.reference.views import find_view
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


def test_what_sums_need_is_evaluated_in_full() -> None:
    """Slices of what reads a sum are sampled; the sum has all of its terms, and stays whole."""
    fusion = fusion_of(
        "x: 'f32[64, 48]'",
        "s = sum(exp(x), dims=[0, 1])",
        "y = mul(x, s)",
        outputs="y, s",
    )
    verdict = judged(fusion, 1e-6)
    assert verdict.ok
    assert [dict(s.axes) for s in verdict.coverage.sampled] == [{"y": 0}]
    assert {o.name: o.checked for o in verdict.outputs} == {"y": 3 * 48, "s": 1}
    inputs = random_inputs(fusion, {})
    outputs = outputs_of(fusion, inputs, {})
    few = np.asarray(inputs["x"]).copy()
    few[3:-3] = -np.inf
    assert compare(fusion, {}, {"x": few}, outputs, limit=1e-6).word == "differs"
    assert judged(fusion, 1e-6, "s").word == "differs"


STATISTICS = fusion_of(
    "d: 'f32[64, 48]', w: 'f32[48]'",
    "r = sum(mul(d, w), dims=[1], keepdim=true)",
    "y = sub(d, r)",
    "g = sum(y, dims=[0])",
    outputs="y, g",
)


def test_sums_that_read_sums_are_sampled_along_their_own_axis() -> None:
    """The gradient of a bias needs a statistic of every row, but not all columns."""
    (group,) = Stream(
        STATISTICS, random_inputs(STATISTICS, {}), {}, find_values(STATISTICS, None), Model(), 1e-6
    ).groups
    assert group.plan.band is not None
    assert group.plan.band.extent == 48
    whole = Stream(STATISTICS, random_inputs(STATISTICS, {}), {}, list(group.values), Model())
    assert group.in_full < sum(g.in_full for g in whole.groups)
    verdict = judged(STATISTICS, 1e-6)
    assert verdict.ok
    assert [dict(s.axes) for s in verdict.coverage.sampled] == [{"y": 1, "g": 0}]
    for name in "yg":
        assert judged(STATISTICS, 1e-6, name, (..., -1)).word == "differs"


def test_a_sweep_evaluates_nothing_that_only_former_sums_need() -> None:
    (group,) = Stream(
        STATISTICS, random_inputs(STATISTICS, {}), {}, find_values(STATISTICS, None), Model(), 1e-6
    ).groups
    nodes = needed_nodes(STATISTICS.nodes, find_values(STATISTICS, None))
    first, second = sweeps.find_sweeps(nodes, group.values, group.plan)
    assert [n.op.name for n in first.nodes] == ["broadcast_in_dim", "mul"]
    assert [n.op.name for n in first.sums] == ["sum"]
    assert [n.op.name for n in second.nodes] == ["sub", "sum"]
    assert [v.name for v in second.outputs] == ["y", "g"]


RESHAPED = fusion_of(
    "a: 'f32[8, 96]', w: 'f32[48]'",
    "x = reshape(a, [8, 2, 48])",
    "y = mul(x, sum(mul(x, w), dims=[2], keepdim=true))",
    "z = reshape(y, [16, 48])",
    "t = permute(z, [1, 0])",
    outputs="y, z, t",
)


def test_reshaped_outputs_are_compared_in_the_shape_of_what_is_reshaped() -> None:
    """Axes that a reshape merges have no slices of their own: nothing is evaluated whole for it."""
    verdict = judged(RESHAPED, 1e-6)
    assert verdict.ok
    assert [dict(s.axes) for s in verdict.coverage.sampled] == [{"y": 0}]
    assert {o.name: o.checked for o in verdict.outputs} == dict.fromkeys("yzt", 3 * 96)
    places = {"y": (7, 1, 5), "z": (15, 5), "t": (5, 15)}
    for limit in (None, 1e-6):
        for name, place in places.items():
            wrong = judged(RESHAPED, limit, name, place)
            assert [(o.name, [w.index for w in o.worst]) for o in wrong.outputs if o.wrong] == [
                (name, [place])
            ]


@pytest.mark.parametrize("seed", range(4))
def test_views_say_where_elements_lie(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = [int(a) for a in rng.permutation(3)]
    moved = [(4, 3, 5)[a] for a in order]
    fusion = fusion_of(
        "a: 'f32[4, 15]'",
        "e = exp(a)",
        "x = reshape(e, [4, 3, 5])",
        f"p = permute(x, {order})",
        f"y = reshape(p, [{moved[0]}, 1, {moved[1] * moved[2]}])",
        "s = squeeze(y, dims=[1])",
        outputs="s",
    )
    view = find_view(fusion, find_values(fusion, None)[0], {})
    assert view.root.name == "e"
    root = np.arange(60.0).reshape(4, 15)
    output = root.reshape(4, 3, 5).transpose(order).reshape(moved[0], -1)
    np.testing.assert_array_equal(view.restored(output), root)
    for place in np.ndindex(4, 15):
        assert output[view.index(place)] == root[place]


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
