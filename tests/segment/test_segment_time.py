"""Answers are compared by predicted time: wholes and parts, and what is computed again."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from draws import drawn
from fake_schedulers import H200, FakeScheduler, everything
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paths import ROOT
from segment_runs import check_structure
from strategies import fusions
from test_segment_random import assert_same_numbers, shuffled, summary

from fusec import driver, lowering
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.registry import schedulers
from fusec.segment import search
from fusec.segment.canonical import canonical
from fusec.segment.cheap import find_copied
from fusec.segment.graph import Graph
from fusec.segment.groups import Groups
from fusec.segment.merge import MARGIN
from fusec.segment.offers import Offers, Surroundings
from fusec.segment.piece import Fragment
from fusec.segment.protocol import Estimate, Proposal
from fusec.segment.regions import singles
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from fusec.segment.split import MODEL_ERROR, least_seconds
from fusec.segment.traffic import bytes_written, traffic, work
from fusec.target import Target

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
OPTIONS = CompileOptions(targets=("sm_90a",))
ALONE = Surroundings(frozenset(), frozenset())

NORM_BACKWARD = """
fusion: norm_backward
inputs:
  x: {type: "bf16[128, 28, 28, 512]"}
  dy: {type: "bf16[128, 28, 28, 512]"}
  w: f32[512]
  mean: f32[512]
  rstd: f32[512]
ops:
  - g = cast(dy, f32)
  - n = mul(sub(cast(x, f32), mean), rstd)
  - db = sum(g, dims=[0, 1, 2])
  - dw = sum(mul(g, n), dims=[0, 1, 2])
  - along = add(mul(db, 9.964923e-6), mul(n, mul(dw, 9.964923e-6)))
  - dx = cast(mul(mul(w, rstd), sub(g, along)), bf16)
outputs: [dx, dw, db]
"""
TWO_MEANS = """
fusion: two_means
inputs: {x: "bf16[128, 28, 28, 512]"}
ops:
  - d = sub(cast(x, f32), mean(cast(x, f32), dims=[0, 1, 2], keepdim=true))
  - y = cast(mul(d, rsqrt(mean(mul(d, d), dims=[0, 1, 2], keepdim=true))), bf16)
outputs: [y]
"""
SOFTMAX = """
fusion: softmax
inputs: {{x: "f16[{shape}]"}}
ops:
  - e = exp(sub(cast(x, f32), max(cast(x, f32), dims=[{axis}], keepdim=true)))
  - y = cast(div(e, sum(e, dims=[{axis}], keepdim=true)), f16)
outputs: [y]
"""


def segmented(fusion: Fusion) -> SegmentedFusion:
    return lowering.segment(lowering.optimise(fusion, OPTIONS), OPTIONS)


def blocks(found: SegmentedFusion) -> list[int]:
    return [s.estimate.ctas for s in found.segments if s.estimate is not None]


@pytest.mark.parametrize(
    ("text", "kinds", "most"),
    [
        (NORM_BACKWARD, ["reduction", "pointwise"], 165e-6),
        (TWO_MEANS, ["reduction", "reduction", "pointwise"], 165e-6),
        (SOFTMAX.format(shape="4, 16777216", axis=1), ["reduction", "pointwise"], 165e-6),
        (SOFTMAX.format(shape="64, 1048576", axis=1), ["reduction", "pointwise"], 165e-6),
        (SOFTMAX.format(shape="8388608, 8", axis=0), ["reduction", "pointwise"], 165e-6),
        (SOFTMAX.format(shape="16384, 8192", axis=1), ["inner_persistent"], 165e-6),
    ],
    ids=["norm backward", "two means", "4 rows", "64 rows", "8 columns", "many rows"],
)
def test_no_kernel_leaves_the_gpu_idle_that_several_would_fill(
    text: str, kinds: list[str], most: float
) -> None:
    found = segmented(read_text(text))
    assert [s.scheduler for s in found.segments] == kinds
    assert min(blocks(found)) >= H200.sms
    assert found.seconds(H200) < most


def test_the_parts_of_one_kernel_are_told_with_both_times() -> None:
    found = segmented(read_text(NORM_BACKWARD))
    (split,) = [d for d in found.decisions if d.action == "split"]
    assert set(split.subject) == {"dx", "dw", "db"}
    assert split.because.startswith("one kernel takes ")
    assert f"separate kernels {found.seconds(H200) * 1e6:.2f} us" in split.because


def test_a_large_kernel_is_parted_where_it_stands_too() -> None:
    # Of several segments one is a norm that had better be two.
    text = NORM_BACKWARD.replace("outputs: [dx, dw, db]", "").rstrip() + (
        "\n  - p = matmul(reshape(dx, new_shape=[100352, 512]), v)\noutputs: [p, dw, db]\n"
    )
    text = text.replace("  w: f32[512]\n", "  w: f32[512]\n  v: bf16[512, 64]\n")
    found = segmented(read_text(text))
    assert [s.scheduler for s in found.segments] == ["reduction", "pointwise", "matmul"]


# -- what is computed again

CROSSING = """
fusion: crossing
dims: {B: 64, H: 8192}
inputs: {x: "f32[B, H]", z: "f32[B, H]"}
ops:
  - t = mul(sin(x), z)
  - r = sum(t, dims=[1])
  - c = sum(mul(t, z), dims=[0])
outputs: [r, c]
segments:
  rows: [t, r]
  columns: [c]
"""


@dataclass
class Priced:
    """Takes everything, for a time that follows from what a segment reads."""

    seconds: Callable[[Fusion], float]
    name: str = "priced"

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        wanted = (self.seconds(segment) - target.launch) * target.bandwidth
        return Estimate(
            bytes=traffic(segment), efficiency=traffic(segment) / wanted, ctas=10_000, written=0
        )


def reads(part: Fusion, name: str) -> bool:
    return any(i.value.name == name for i in part.inputs)


@pytest.mark.parametrize(("again", "stored", "kept"), [(90, 100, True), (101, 100, False)])
def test_a_value_is_computed_again_where_that_is_faster(
    again: int, stored: int, kept: bool
) -> None:
    def seconds(part: Fusion) -> float:
        is_reader = any(o.value.name == "c" for o in part.outputs)
        return (stored if reads(part, "t") else again) * 1e-6 if is_reader else 50e-6

    found = segment(read_text(CROSSING), [Priced(seconds)], H200)
    assert bool(found.rematerialised) == kept


def test_of_equal_times_the_fewer_bytes_win() -> None:
    found = segment(read_text(CROSSING), [Priced(lambda part: 50e-6)], H200)
    assert [r.value.name for r in found.rematerialised] == ["t"]


# -- no result is slower than what the search itself has seen


def watched(fusion: Fusion, takers: Any) -> tuple[SegmentedFusion, dict[frozenset[str], float]]:
    """Return the segments, and what each fusion that was searched in parts takes in these."""
    inner, seen = search._search, dict[frozenset[str], float]()  # pyright: ignore[reportPrivateUsage]

    def noting(part: Fusion, ways: Any, should_merge: Any) -> SegmentedFusion:
        found = inner(part, ways, should_merge)
        kernels = all(s.estimate is not None and s.estimate.kernels for s in found.segments)
        if ways.whole is not None and kernels and len(found.segments) > 1:
            names = frozenset(n.output.name for n in part.nodes)
            seen[names] = min(found.seconds(H200), seen.get(names, 1e9))
        return found

    search._search = noting  # pyright: ignore[reportPrivateUsage]
    try:
        return segment(fusion, takers, H200), seen
    finally:
        search._search = inner  # pyright: ignore[reportPrivateUsage]


def assert_nothing_seen_was_faster(fusion: Fusion, takers: Any) -> SegmentedFusion:
    found, seen = watched(fusion, takers)
    check_structure(found)
    total = found.seconds(H200) - MARGIN * (1 + len(found.segments))
    forced = any(n.op.name == "segment_set" for n in fusion.nodes)
    if not forced and all(s.estimate and s.estimate.kernels for s in found.segments):
        assert total <= Offers(takers, H200).ask(canonical(fusion), ALONE).seconds
    names = frozenset(n.output.name for n in canonical(fusion).nodes)
    assert total * (1 - MODEL_ERROR) <= seen.get(names, 1e9)
    for part in found.segments:
        assert part.estimate is not None
        apart = seen.get(frozenset(n.output.name for n in part.nodes), 1e9)
        least = part.estimate.seconds(H200) * (1 - MODEL_ERROR)
        assert least <= apart + MARGIN, "fused, and faster apart"
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_no_example_is_slower_than_what_the_search_has_seen(path: Path) -> None:
    for program in driver.programs(str(path), OPTIONS):
        optimised = replace(program.fusion, pins=())
        assert_nothing_seen_was_faster(optimised, schedulers())


def sized(fusion: Fusion, seed: int) -> Fusion:
    """Return a fusion at sizes at which bytes and blocks count."""
    rng = random.Random(seed)
    return replace(
        fusion,
        dims=tuple(
            replace(d, default=rng.choice((3, 64, 1000, 4096, 50_000))) for d in fusion.dims
        ),
    )


MANY = settings(drawn(25), suppress_health_check=list(HealthCheck), derandomize=True)


@MANY
@given(fusions(max_steps=14), st.integers(0, 1000))
def test_no_random_fusion_is_slower_than_what_the_search_has_seen(
    fusion: Fusion, seed: int
) -> None:
    if any(i.part for i in fusion.inputs):
        return
    fusion = lowering.optimise(sized(fusion, seed), OPTIONS)
    found = assert_nothing_seen_was_faster(fusion, schedulers())
    if len(found.segments) > 1:
        assert found.seconds(H200) >= least_seconds(found.fusion, H200), "the bound is none"


@dataclass
class Moody:
    """Takes everything, at a part of the bandwidth that follows from the structure alone."""

    seed: int
    name: str = "moody"

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        text = " ".join(sorted(n.op.name for n in segment.nodes))
        reach = 0.05 + zlib.crc32(f"{self.seed} {text}".encode()) % 16 / 18
        flops, sfu = work(segment)
        return Estimate(
            traffic(segment), flops=flops, sfu=sfu, efficiency=reach, ctas=10_000,
            written=bytes_written(segment),
        )  # fmt: skip


@settings(parent=MANY, max_examples=150)
@given(fusions(max_steps=14), st.integers(0, 1000))
@pytest.mark.nightly
def test_whatever_the_prices_nothing_seen_was_faster(fusion: Fusion, seed: int) -> None:
    found = assert_nothing_seen_was_faster(sized(fusion, seed), [Moody(seed)])
    again = segment(shuffled(sized(fusion, seed), seed), [Moody(seed)], H200)
    assert summary(again) == summary(found)


@settings(parent=MANY, max_examples=100)
@given(fusions(aliases=True, max_steps=14), st.integers(0, 1000))
@pytest.mark.nightly
def test_segments_that_were_parted_compute_the_same(fusion: Fusion, seed: int) -> None:
    found = segment(fusion, [Moody(seed)], replace(H200, launch=1e-9))
    check_structure(found)
    assert_same_numbers(fusion, found)


# -- groups


@settings(parent=MANY, max_examples=100)
@given(fusions(max_steps=16), st.integers(0, 1000))
@pytest.mark.nightly
def test_parts_put_together_again_are_what_they_were(fusion: Fusion, seed: int) -> None:
    fusion = canonical(fusion)
    graph = Graph(fusion, find_copied(fusion))
    groups, rng = Groups(graph, singles(graph, ())), random.Random(seed)
    while len(groups.pieces) > 2:
        groups.merge(groups.closure(rng.sample(sorted(groups), 2)) or frozenset())
    for piece in list(groups):
        before = shape(groups)
        nodes = sorted(piece.owned, key=graph.position.__getitem__)
        cut = rng.randint(0, len(nodes))
        both = [frozenset(nodes[:cut]), frozenset(nodes[cut:])]
        fragments = [Fragment(nodes, frozenset()) for nodes in both if nodes]
        touched = groups.split(piece, fragments)
        made = touched[: len(fragments)]
        settle(groups, touched)
        order = groups.order()
        assert order is not None
        assert {n for p in order for n in p.nodes} == set(graph.owned)
        groups.rank()
        assert all(earlier.rank < p.rank for p in groups for earlier in p.before)
        settle(groups, groups.rejoin(made, piece))
        assert shape(groups) == before


def settle(groups: Groups, touched: list[Any]) -> None:
    waiting = dict.fromkeys(touched)
    while waiting:
        piece, _ = waiting.popitem()
        makers = (groups.maker(v) for v in groups.refresh(piece))
        waiting.update(dict.fromkeys(m for m in makers if m is not None))


def shape(groups: Groups) -> Any:
    return [
        (
            frozenset(p.nodes), frozenset(p.leaves), tuple(p.made),
            frozenset(b.first for b in p.before), frozenset(a.first for a in p.after),
        )
        for p in groups
    ]  # fmt: skip


def test_a_fake_that_takes_all_is_not_parted() -> None:
    found = segment(read_text(CROSSING.partition("segments:")[0]), [everything()], H200)
    assert len(found.segments) == 1


def test_a_bound_spares_the_search_in_parts() -> None:
    fakes = [FakeScheduler("all", lambda part: None, efficiency=0.97)]
    text = (
        "fusion: f\ninputs: {x: 'f32[4096, 64]'}\nops:\n  - a = exp(x)\n  - b = sum(a, dims=[1])\n"
    )
    segment(read_text(text + "outputs: [a, b]\n"), fakes, H200)
    assert len(fakes[0].asked) == 1, "two launches take longer than one kernel"
