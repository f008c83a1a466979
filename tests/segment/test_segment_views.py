"""Outputs that are views: found by the segmenter, described by no_op, equal to NumPy's strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_schedulers import H200, FakeScheduler, everything, usual
from numpy.lib.stride_tricks import as_strided
from segment_runs import check_structure

from fusec.index.domain import Refusal
from fusec.ir.dim import dim
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.schedule.no_op import NoOp
from fusec.schedule.plan import View
from fusec.segment.protocol import Estimate
from fusec.segment.search import segment
from fusec.segment.views import reshape_strides

HEAD = "fusion: f\ndims: {A: 6}\ninputs: {x: 'f32[A, 8, 10]'}\n"


def fusion_of(*ops: str, outputs: str = "[y]", head: str = HEAD) -> Fusion:
    lines = "".join(f"  - {op}\n" for op in ops)
    return read_text(f"{head}ops:\n{lines}outputs: {outputs}\n")


def materialise(view: View, base: Any, sizes: dict[str, int]) -> Any:
    """Return a view of a dense base as an array."""
    shape = [e.evaluate(sizes) for e in view.shape]
    strides = [s.evaluate(sizes) * base.itemsize for s in view.strides]
    return as_strided(base.ravel()[view.offset.evaluate(sizes) :], shape, strides)


VIEWS = [
    ("y = permute(x, [2, 0, 1])",),
    ("y = slice(x, [1, 0, 2], [5, 8, 10])",),
    ("y = slice(x, [0, 1, 0], [A, 8, 10], [1, 3, 2])",),
    ("y = squeeze(slice(x, [0, 3, 0], [A, 4, 10]), [1])",),
    ("y = reshape(x, [A * 8, 10])",),
    ("y = reshape(x, [A, 2, 4, 10])",),
    ("y = reshape(permute(x, [2, 0, 1]), [10, A * 8])",),
    ("y = broadcast_in_dim(x, shape=[A, 5, 8, 10], broadcast_dims=[0, 2, 3])",),
    ("a = slice(x, [0, 2, 0], [A, 6, 10])", "y = permute(reshape(a, [A, 2, 2, 10]), [1, 3, 0, 2])"),
    ("y = broadcast(x, is_broadcast_dim=[true, false, false, false])",),
    ("y = expand(slice(x, [0, 0, 0], [A, 1, 10]), shape=[A, 8, 10])",),
]


@pytest.mark.parametrize("ops", VIEWS, ids=lambda ops: ops[-1])
def test_a_view_has_the_elements_of_the_reference(ops: tuple[str, ...]) -> None:
    fusion = fusion_of(*ops)
    (only,) = segment(fusion, usual(), H200).segments
    assert only.scheduler == "no_op"
    plan = NoOp().build(only.fusion, H200)
    assert plan.kernels == ()
    (view,) = plan.views
    assert (view.name, view.base) == ("y", "x")
    base = np.arange(480.0).reshape(6, 8, 10)
    expected = evaluate(fusion, {"x": base}, fusion.hints)["y"]
    np.testing.assert_array_equal(materialise(view, base, dict(fusion.hints)), expected)


@pytest.mark.parametrize(
    "ops",
    [
        ("y = reshape(permute(x, [2, 0, 1]), [A * 8 * 10])",),
        ("y = reshape(slice(x, [0, 2, 0], [A, 6, 10]), [A * 4, 10])",),
        ("y = set(x)",),
        ("y = pad(x, [1, 1])",),
        ("y = cat([x, x], 0)",),
    ],
    ids=lambda ops: ops[-1],
)
def test_what_no_strides_describe_is_computed(ops: tuple[str, ...]) -> None:
    (only,) = segment(fusion_of(*ops), usual(), H200).segments
    assert only.scheduler == "pointwise"
    assert next(r.rule for name, r in only.refusals if name == "no_op") == "computed"


def test_views_are_split_from_what_is_computed() -> None:
    fusion = fusion_of("y = sin(x)", "t = permute(x, [2, 1, 0])", outputs="[y, t]")
    segmented = segment(fusion, [NoOp(), everything()], H200)
    check_structure(segmented)
    found = {s.scheduler: [o.value.name for o in s.fusion.outputs] for s in segmented.segments}
    assert found == {"no_op": ["t"], "everything": ["y"]}


def test_a_view_of_another_output_is_not_computed_twice() -> None:
    fusion = fusion_of("y = sin(x)", "t = reshape(y, [A * 8, 10])", outputs="[y, t]")
    segmented = segment(fusion, [NoOp(), everything()], H200)
    assert [s.scheduler for s in segmented.segments] == ["everything", "no_op"]
    assert [e.value.name for e in segmented.edges] == ["y"]


def test_readers_of_a_view_read_its_base() -> None:
    fusion = fusion_of("t = permute(x, [2, 1, 0])", "y = sin(t)", outputs="[t, y]")
    segmented = segment(fusion, [NoOp(), everything()], H200)
    assert not segmented.edges


def test_a_computed_permutation_stays_one_kernel() -> None:
    (only,) = segment(fusion_of("y = permute(sin(x), [2, 1, 0])"), usual(), H200).segments
    assert only.scheduler == "pointwise"


def test_a_view_of_an_overwritten_input_is_a_copy() -> None:
    fusion = fusion_of(
        "t = permute(x, [2, 1, 0])", "y = mul(x, 2.0)", outputs="[t, {y: {alias: x}}]"
    )
    segmented = segment(fusion, [NoOp(), everything()], H200)
    check_structure(segmented)
    assert "no_op" not in {s.scheduler for s in segmented.segments}


def test_a_strided_view_is_no_dense_tensor_for_another_segment() -> None:
    fusion = fusion_of("t = segment_set(slice(x, [0, 1, 0], [A, 3, 10]))", "y = sin(t)")
    segmented = segment(fusion, [NoOp(), everything()], H200)
    check_structure(segmented)
    assert [s.scheduler for s in segmented.segments] == ["everything", "everything"]


def test_an_empty_output_needs_no_kernel_while_it_is_empty() -> None:
    head = "fusion: f\ndims: {A: 0, B: 8}\ninputs: {x: 'f32[A, B]'}\n"
    fusion = fusion_of("y = sin(x)", head=head)
    plan = NoOp().build(fusion, H200)
    assert (plan.kernels, plan.views) == ((), ())
    (guard,) = plan.guards
    assert guard.holds({"A": 0, "B": 8})
    assert not guard.holds({"A": 1, "B": 8})


def test_no_op_costs_nothing_and_says_what_it_cannot_do() -> None:
    accepted = NoOp().propose(fusion_of("y = permute(x, [2, 1, 0])"), H200)
    assert isinstance(accepted, Estimate)
    assert accepted.seconds(H200) == 0
    refused = NoOp().propose(fusion_of("y = sin(x)"), H200)
    assert isinstance(refused, Refusal)
    assert "`y`" in refused.because


def test_reshape_strides_of_runs() -> None:
    def sizes(*values: int) -> tuple[Any, ...]:
        return tuple(dim(v) for v in values)

    assert reshape_strides(sizes(4, 6), sizes(12, 2), sizes(4, 2, 3)) == (12, 6, 2)
    assert reshape_strides(sizes(4, 6), sizes(12, 2), sizes(24)) == (2,)
    assert reshape_strides(sizes(4, 6), sizes(13, 2), sizes(24)) is None
    assert reshape_strides(sizes(4, 6), sizes(12, 2), sizes(3, 8)) == (16, 2)


def test_a_view_that_nobody_takes_along_is_read_as_a_tensor() -> None:
    fusion = fusion_of("t = reshape(x, [A, 80])", "y = sin(t)", outputs="[t, y]")
    alone = FakeScheduler("alone", lambda s: None if len(s.nodes) == 1 else "too many nodes")
    segmented = segment(fusion, [NoOp(), alone], H200)
    check_structure(segmented)
    assert [s.scheduler for s in segmented.segments] == ["no_op", "alone"]
    assert [e.value.name for e in segmented.edges] == ["t"]
