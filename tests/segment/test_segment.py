"""Segmentation with fake schedulers: which nodes share a segment, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest
from fake_schedulers import H200, FakeScheduler, everything, one_signature, only_injective, usual
from segment_runs import check_structure

from fusec.diagnostics import Unsupported
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from tools.segments import run_segments


def split(text: str, *schedulers: FakeScheduler) -> SegmentedFusion:
    segmented = segment(read_text(text), schedulers or usual(), H200)
    check_structure(segmented)
    return segmented


def outputs(segmented: SegmentedFusion) -> list[list[str]]:
    return [[o.value.name for o in s.fusion.outputs] for s in segmented.segments]


def inputs(segmented: SegmentedFusion) -> list[list[str]]:
    return [[i.value.name for i in s.fusion.inputs] for s in segmented.segments]


def kinds(segmented: SegmentedFusion) -> list[str]:
    return [s.scheduler for s in segmented.segments]


SOFTMAX = """
fusion: softmax
dims: {B: 64, H: 512}
inputs: {x: "bf16[B, H]"}
ops:
  - xf = cast(x, f32)
  - e = exp(sub(xf, max(xf, dims=[1], keepdim=true)))
  - y = cast(div(e, sum(e, dims=[1], keepdim=true)), bf16)
outputs: [y]
"""

TWO_SIGNATURES = """
fusion: two
dims: {B: 4096, H: 8192}
inputs: {x: "bf16[B, H]"}
ops:
  - xf = cast(x, f32)
  - square = mul(xf, xf)
  - rows = sum(square, dims=[1])
  - columns = sum(square, dims=[0])
outputs: [rows, columns]
"""


def test_the_whole_fusion_is_asked_first() -> None:
    scheduler = everything()
    segmented = split(SOFTMAX, scheduler)
    assert kinds(segmented) == ["everything"]
    assert len(scheduler.asked[0].nodes) == len(segmented.fusion.nodes)
    assert len(scheduler.asked) == 1


def test_the_cheapest_scheduler_is_chosen_and_the_others_are_kept() -> None:
    slow = FakeScheduler("slow", lambda s: None, efficiency=0.4)
    fast = FakeScheduler("fast", lambda s: None, efficiency=0.9)
    never = FakeScheduler("never", lambda s: "too warm")
    (only,) = split(SOFTMAX, slow, never, fast).segments
    assert only.scheduler == "fast"
    assert "slow" in only.why
    assert [(name, r.because) for name, r in only.refusals] == [("never", "too warm")]


def test_reductions_of_two_signatures_part_and_share_their_reading() -> None:
    segmented = split(TWO_SIGNATURES)
    assert kinds(segmented) == ["reduction", "reduction"]
    # The cast and the square follow from x alone: neither segment waits for the other.
    assert inputs(segmented) == [["x"], ["x"]]
    assert not segmented.edges


def test_a_refused_fusion_keeps_every_reason() -> None:
    segmented = split(TWO_SIGNATURES)
    whole = next(d for d in segmented.decisions if d.action == "split")
    assert "2 reduction signatures" in whole.because
    assert "not elementwise" in whole.because


def test_a_producer_of_two_consumers_joins_both() -> None:
    segmented = split(
        """
        fusion: diamond
        dims: {N: 1048576}
        inputs: {x: "f32[N]", z: "f32[N]"}
        ops:
          - a = add(x, z)
          - b = exp(a)
          - c = sin(a)
          - y = mul(b, c)
        outputs: [y]
        """,
        FakeScheduler("small", lambda s: None if len(s.nodes) in (1, 4) else "neither 1 nor 4"),
    )
    # Every pair and triple is refused: only the closure of the diamond is found.
    assert outputs(segmented) == [["y"]]


def test_three_nodes_join_where_no_two_of_them_may() -> None:
    text = """
        fusion: chain
        dims: {N: 1048576}
        inputs: {x: "f32[N]", z: "f32[N]"}
        ops:
          - a = add(x, z)
          - b = sum(a, dims=[0])
          - c = exp(a)
          - d = exp(b)
        outputs: [c, d]
    """
    odd = FakeScheduler("odd", lambda s: "even" if len(s.nodes) % 2 == 0 else None)
    segmented = split(text, odd)
    assert sorted(len(s.nodes) for s in segmented.segments) == [1, 3]


def test_siblings_that_share_an_input_merge() -> None:
    segmented = split(
        """
        fusion: siblings
        dims: {N: 1048576}
        inputs: {x: "f32[N]", w: "f32[N]", u: "f32[N]"}
        ops:
          - a = mul(x, w)
          - b = mul(x, u)
        outputs: [a, b]
        """,
        FakeScheduler("two", lambda s: None),
    )
    assert outputs(segmented) == [["a", "b"]]


def test_strangers_do_not_merge_without_gain() -> None:
    text = """
        fusion: strangers
        dims: {N: 1048576, M: 4096}
        inputs: {x: "f32[N]", u: "f32[M]"}
        ops:
          - a = sin(x)
          - b = cos(u)
        outputs: [a, b]
    """
    one = FakeScheduler("one", lambda s: None if len(s.inputs) == 1 else "two inputs")
    assert len(split(text, one).segments) == 2


def test_segment_set_is_a_boundary_even_where_one_kernel_would_do() -> None:
    segmented = split(
        """
        fusion: forced
        dims: {B: 64, H: 512}
        inputs: {x: "bf16[B, H]"}
        ops:
          - t = sum(cast(x, f32), dims=[1])
          - y = cast(segment_set(t), bf16)
        outputs: [y]
        """,
        everything(),
    )
    assert len(segmented.segments) == 2
    assert [n.op.name for n in segmented.segments[0].nodes] == ["cast", "sum", "segment_set"]
    assert segmented.decisions[-1].because == "segment_set forces a boundary"


def test_a_merge_predicate_has_the_last_word() -> None:
    fusion = read_text(TWO_SIGNATURES)
    calls: list[Fusion] = []

    def never(merged: Fusion) -> bool:
        calls.append(merged)
        return False

    segmented = segment(fusion, [everything()], H200, may_merge=never)
    assert len(segmented.segments) == 2
    assert calls


def test_a_node_that_nobody_takes_is_named_with_every_reason() -> None:
    text = SOFTMAX.replace("exp(", "sin(")
    nobody = FakeScheduler(
        "one", lambda s: "no reductions" if not only_injective(s) else "too small"
    )
    other = FakeScheduler("two", lambda s: "not today")
    with pytest.raises(Unsupported) as caught:
        split(text, nobody, other)
    diagnostic = caught.value.diagnostic
    assert diagnostic.message.startswith("no scheduler supports `max`")
    assert diagnostic.span is not None
    assert diagnostic.span.text.strip().startswith("- e = sin(")
    assert [n.split(":")[0] for n in diagnostic.notes] == ["one", "two"]


def test_a_repeated_layer_is_priced_once() -> None:
    def layers(count: int) -> str:
        ops, value = [], "x"
        for k in range(count):
            ops.append(f"  - s{k} = sum({value}, dims=[1], keepdim=true)")
            ops.append(f"  - t{k} = sum(exp(div({value}, s{k})), dims=[0], keepdim=true)")
            ops.append(f"  - y{k} = mul(add(sin(div({value}, s{k})), t{k}), {value})")
            value = f"y{k}"
        text = "fusion: deep\ndims: {B: 512, H: 512}\ninputs: {x: 'f32[B, H]'}\nops:\n"
        return text + "\n".join(ops) + f"\noutputs: [{value}]\n"

    def asked(count: int) -> int:
        fakes = [
            FakeScheduler("pointwise", only_injective),
            FakeScheduler("reduction", one_signature),
        ]
        segmented = split(layers(count), *fakes)
        assert len(segmented.segments) >= count
        return len(fakes[0].asked)

    assert asked(40) == asked(20)


# -- what is computed again instead of crossing


def test_casts_of_inputs_are_made_where_they_are_needed() -> None:
    segmented = split(
        """
        fusion: again
        dims: {B: 4096, H: 8192}
        inputs: {x: "bf16[B, H]"}
        ops:
          - xf = cast(x, f32)
          - r = sum(exp(xf), dims=[1])
          - c = sum(sin(xf), dims=[0])
        outputs: [r, c]
        """
    )
    assert [[n.op.name for n in s.nodes] for s in segmented.segments] == [
        ["cast", "exp", "sum"],
        ["cast", "sin", "sum"],
    ]


def test_a_downcast_of_an_input_crosses_where_reading_it_is_cheaper() -> None:
    text = """
        fusion: narrow
        dims: {{B: 4096, H: 8192}}
        inputs: {{x: "{wide}[B, H]"}}
        ops:
          - h = cast(exp(x), {narrow})
          - r = sum(exp(cast(h, f32)), dims=[1])
          - c = sum(sin(cast(h, f32)), dims=[0])
        outputs: [r, c]
    """
    segmented = split(text.format(wide="f32", narrow="bf16"))
    assert [str(e.value.type) for e in segmented.edges] == ["bf16[B, H]"]


def test_an_upcast_never_crosses() -> None:
    segmented = split(
        """
        fusion: wide
        dims: {B: 4096, H: 8192}
        inputs: {x: "bf16[B, H]", z: "bf16[B, H]"}
        ops:
          - p = mul(x, z)
          - pf = cast(p, f32)
          - r = sum(exp(pf), dims=[1])
          - c = sum(sin(pf), dims=[0])
        outputs: [r, c]
        """
    )
    assert {str(e.value.type) for e in segmented.edges} == {"bf16[B, H]"}


def test_a_broadcast_never_crosses() -> None:
    segmented = split(
        """
        fusion: spread
        dims: {B: 4096, H: 8192}
        inputs: {x: "f32[B, H]", z: "f32[B, H]"}
        ops:
          - r = sum(x, dims=[1])
          - wide = broadcast_in_dim(r, shape=[B, H], broadcast_dims=[0])
          - c = sum(mul(wide, z), dims=[0])
        outputs: [c]
        """
    )
    assert [str(e.value.type) for e in segmented.edges] == ["f32[B]"]


def test_scalars_never_cross() -> None:
    segmented = split(
        """
        fusion: scalars
        dims: {B: 4096, H: 8192}
        inputs: {x: "f32[B, H]", eps: "f32 = 1e-5"}
        ops:
          - count = size(x, dim=1)
          - half = mul(eps, 0.5)
          - r = sum(add(sin(x), half), dims=[1])
          - m = div(r, count)
          - c = sum(mul(add(cos(x), half), broadcast_in_dim(m, shape=[B, H], broadcast_dims=[0])),
              dims=[0])
        outputs: [c]
        """
    )
    assert len(segmented.segments) == 2
    assert [str(e.value.type) for e in segmented.edges] == ["f32[B]"]
    for part in segmented.segments:
        assert "half" in {n.output.name for n in part.nodes}


def test_a_size_is_asked_of_a_tensor_that_is_read_anyway() -> None:
    segmented = split(
        """
        fusion: sizes
        dims: {B: 4096, H: 8192}
        inputs: {x: "f32[B, H]", z: "f32[B, H]"}
        ops:
          - e = exp(add(x, z))
          - r = sum(e, dims=[0])
          - c = sum(div(sin(z), size(e, dim=0)), dims=[1])
        outputs: [r, c]
        """
    )
    second = next(s for s in segmented.segments if s.fusion.outputs[0].value.name == "c")
    assert [i.value.name for i in second.fusion.inputs] == ["z"]


# -- aliases


def run_both(text: str, *schedulers: FakeScheduler) -> SegmentedFusion:
    """Segment, then assert that the segments compute what the whole computes."""
    segmented = split(text, *schedulers)
    fusion = segmented.fusion
    random = np.random.default_rng(0)
    given = {
        i.value.name: random.standard_normal([e.evaluate(fusion.hints) for e in i.value.shape])
        for i in fusion.inputs
    }
    expected = evaluate(fusion, given, fusion.hints)
    for name, array in run_segments(segmented, given, segmented.fusion.hints).items():
        np.testing.assert_array_equal(array, expected[name])
    return segmented


def one_node(segment: Fusion) -> str | None:
    return None if len(segment.nodes) == 1 else "more than one node"


def test_readers_of_an_input_come_before_the_segment_that_overwrites_it() -> None:
    segmented = run_both(
        """
        fusion: running
        dims: {B: 8, H: 16}
        inputs: {x: "f32[B, H]", total: "f32[B, H]"}
        ops:
          - sum_ = add(total, x)
          - before = sub(x, total)
        outputs:
          - sum_: {alias: total}
          - before
        """,
        FakeScheduler("one", one_node),
    )
    assert outputs(segmented) == [["before"], ["sum_"]]


def test_a_matrix_plus_its_transpose_is_not_written_in_place() -> None:
    segmented = run_both(
        """
        fusion: symmetric
        inputs: {x: "f32[32, 32]"}
        ops: ["y = add(x, permute(x, [1, 0]))"]
        outputs:
          - y: {alias: x}
        """,
        everything(),
    )
    assert [[n.op.name for n in s.nodes] for s in segmented.segments] == [
        ["permute", "add"],
        ["set"],
    ]
    assert [o.alias for o in segmented.segments[1].fusion.outputs] == ["x"]
    assert any(d.action == "copy" for d in segmented.decisions)


def test_an_elementwise_update_is_written_in_place() -> None:
    text = """
        fusion: update
        inputs: {x: "f32[32, 32]"}
        ops: ["y = mul(x, 2.0)"]
        outputs:
          - y: {alias: x}
    """
    assert len(run_both(text, everything()).segments) == 1


def test_two_inputs_change_places() -> None:
    segmented = run_both(
        """
        fusion: swap
        inputs: {a: "f32[32]", b: "f32[32]"}
        ops: ["p = sin(b)", "q = cos(a)"]
        outputs:
          - p: {alias: a}
          - q: {alias: b}
        """,
        FakeScheduler("one", one_node),
    )
    assert len(segmented.segments) > 2


def test_an_input_read_after_its_overwriting_is_overwritten_last() -> None:
    run_both(
        """
        fusion: late
        inputs: {x: "f32[32]"}
        ops: ["y = sin(x)", "z = mul(y, x)"]
        outputs:
          - y: {alias: x}
          - z
        """,
        FakeScheduler("one", one_node),
    )
