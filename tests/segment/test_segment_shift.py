"""Boundaries moved to where less crosses: a segment's first operations done by the one before."""

from __future__ import annotations

import numpy as np
import pytest
from fake_schedulers import H200, FakeScheduler, family
from gpu_check import check_on_gpu

from fusec import lowering
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.schedule.registry import schedulers
from fusec.segment.offers import Offers, Surroundings
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from tools.segments import run_segments

# A product, then elementwise work of which a third of the columns is left, then a row reduction
# that is read again: the product's epilogue had better end where the least is left.
TEXT = """
fusion: narrow
dims: {M: 4096, N: 6144, K: 512}
inputs:
  a: bf16[M, K]
  b: bf16[K, N]
  g: bf16[M, N]
ops:
  - p = matmul(a, b)
  - q = cast(mul(cast(p, f32), cast(g, f32)), f32)
  - e = add(q, sin(q))
  - h = cast(e, bf16)
  - hf = cast(h, f32)
  - s = sum(mul(hf, hf), dims=[1], keepdim=true)
  - y = cast(mul(hf, rsqrt(s)), bf16)
outputs: [y]
"""


def narrow() -> Fusion:
    return read_text(TEXT)


def segmented(fusion: Fusion, redefine: str = "after") -> SegmentedFusion:
    """Return a fusion's segments on the H200, with the schedulers that there are."""
    options = CompileOptions(targets=("sm_90a",), redefine=redefine)
    return lowering.segment(lowering.optimise(fusion, options), options)


def test_what_crosses_is_the_smallest_value_of_the_chain() -> None:
    found = segmented(narrow(), redefine="never")
    (edge,) = found.edges
    assert edge.value.dtype.name == "bf16"


def only_products_with_little(segment: Fusion) -> str | None:
    """Refuse a product that stores f32, or together with a reduction."""
    if not family(segment, "contraction"):
        return None
    return "a reduction" if family(segment, "reduction") else None


def test_a_shift_is_told_and_keeps_every_node_once() -> None:
    text = """
fusion: f
dims: {M: 4096, N: 4096}
inputs: {a: 'f32[M, N]', b: 'f32[N, M]', r: 'f32[M, M]'}
ops:
  - p = matmul(a, b)
  - q = cast(mul(p, r), bf16)
  - s = sum(cast(q, f32), dims=[1], keepdim=true)
  - y = add(cast(q, f32), s)
outputs: [y]
"""
    fusion = read_text(text)
    found = segment(fusion, [FakeScheduler("only", only_products_with_little)], H200)
    assert len(found.segments) == 2
    (edge,) = found.edges
    assert edge.value.name == "q"
    counts: dict[str, int] = {}
    for part in found.segments:
        for node in part.nodes:
            counts[node.output.name] = counts.get(node.output.name, 0) + 1
    assert counts["p"] == counts["q"] == counts["s"] == 1
    sizes = dict.fromkeys(("M", "N"), 8)
    inputs = {
        i.value.name: np.random.default_rng(0).normal(size=(8, 8)).astype("f4")
        for i in fusion.inputs
    }
    whole = evaluate(fusion, inputs, sizes)["y"]
    np.testing.assert_array_equal(run_segments(found, inputs, sizes)["y"], whole)


@pytest.mark.gpu
def test_a_shifted_boundary_on_a_gpu() -> None:
    check_on_gpu(narrow(), {"M": 256, "N": 384, "K": 128})


BATCH_NORM = """
fusion: norm
dims: {N: 64, C: 256, P: 3137}
inputs: {x: 'bf16[N, C, P]'}
ops:
  - f = cast(x, f32)
  - v, m = var_mean(f, dims=[0, 2], correction=0, keepdim=true)
  - y = cast(mul(sub(f, m), rsqrt(v)), bf16)
outputs: [y]
"""


def test_a_whole_that_reads_again_is_weighed_against_segments() -> None:
    found = segmented(read_text(BATCH_NORM))
    assert [s.scheduler for s in found.segments] == ["reduction", "pointwise"]
    because = next(d.because for d in found.decisions if d.action == "split")
    assert because.startswith("one kernel takes ")
    assert "us, separate kernels " in because
    boundary = next(d.because for d in found.decisions if d.action == "boundary")
    assert boundary.startswith("one kernel takes ")
    small = read_text(BATCH_NORM.replace("P: 3137", "P: 8"))
    assert len(segmented(small).segments) == 1


def test_segments_that_are_quicker_than_the_whole_are_taken_whatever_they_move() -> None:
    # The sums of columns are finished by a kernel of their own; segments read the few rows again.
    text = """
fusion: norm_backward
dims: {B: 16, H: 768}
inputs: {x: 'f32[B, H]', dy: 'f32[B, H]', w: 'f32[H]', m: 'f32[B, 1]', r: 'f32[B, 1]'}
ops:
  - xh = mul(sub(x, m), r)
  - g = mul(dy, w)
  - c = mean(g, dims=[1], keepdim=true)
  - d = mean(mul(g, xh), dims=[1], keepdim=true)
  - dx = mul(sub(sub(g, c), mul(xh, d)), r)
  - dw = sum(mul(dy, xh), dims=[0])
  - db = sum(dy, dims=[0])
outputs: [dx, dw, db]
"""
    found = segmented(read_text(text))
    assert [s.scheduler for s in found.segments] == ["inner_persistent", "reduction"]
    whole = Offers(schedulers(), H200).ask(found.fusion, Surroundings(frozenset(), frozenset()))
    assert whole.scheduler == "inner_outer_persistent"
    assert whole.estimate is not None
    assert whole.estimate.moved < found.bytes
    assert whole.seconds > found.seconds(H200)


# Rotary positions of the first of every six heads that a product makes.
HEADS = """
fusion: heads
dims: {S: 2048, K: 1024}
inputs: {h: 'bf16[S, K]', w: 'bf16[1536, K]', cosine: 'bf16[S, 32]'}
ops:
  - p = linear(h, w)
  - q = permute(reshape(p, new_shape=[S, 8, 6, 32]), dims=[1, 2, 0, 3])
  - part = slice(q, start_indices=[0, 0, 0, 0], end_indices=[8, 1, S, 32])
  - turned = reshape(part, new_shape=[8, S, 32])
  - left = slice(turned, start_indices=[0, 0, 0], end_indices=[8, S, 16])
  - right = slice(turned, start_indices=[0, 0, 16], end_indices=[8, S, 32])
  - y = cast(add(mul(turned, cosine), cat([neg(right), left], dim=2)), bf16)
outputs: [y]
"""


def test_only_the_slice_of_a_product_that_is_read_crosses() -> None:
    found = segmented(read_text(HEADS.replace("S: 2048", "S: 8192")))
    assert [s.scheduler for s in found.segments] == ["matmul", "pointwise"]
    (edge,) = found.edges
    assert edge.value.name == "part"
    # What is put together from slices is read along memory, sixteen elements at a time.
    reader = found.segments[1].estimate
    assert reader is not None
    assert reader.efficiency == H200.reach("pointwise", "vector")


LOGITS = """
fusion: logits
inputs:
  x: bf16[512, 256]
  w: bf16[32000, 256]
ops:
  - m = matmul(x, permute(w, [1, 0]))
  - v = reshape(m, [2, 256, 32000])
  - l = log_softmax(reshape(cast(v, f32), [512, 32000]), 1)
outputs: [v, l]
"""


def test_what_is_stored_anyway_is_written_by_the_segment_that_makes_it() -> None:
    found = segmented(read_text(LOGITS))
    (edge,) = found.edges
    assert edge.value.name == "v"
    moved = found.segments[edge.consumer].estimate
    assert moved is not None
    assert moved.bytes == 512 * 32000 * (2 + 4)
