"""Values that segments compute again instead of reading them, and what undoes that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import drawn
from emulated import can_run, emulated
from fake_schedulers import H200, FakeScheduler, everything, one_signature, only_injective
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from paths import ROOT
from segment_runs import check_structure
from strategies import fusions
from strategies import random_inputs as random_arrays
from test_segment_random import shuffled, summary, up_to

from fusec import driver, lowering
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.reference.verdict import compare
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from tools.segments import run_segments

SEED = ROOT / "examples" / "seed_2146.yaml"

TWO_GROUPS = """
fusion: two_groups
dims: {B: 4096, H: 8192}
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


def split(text: str, *schedulers: FakeScheduler, **options: Any) -> SegmentedFusion:
    segmented = segment(read_text(text), schedulers or (everything(),), H200, **options)
    check_structure(segmented)
    return segmented


def again(segmented: SegmentedFusion) -> dict[str, tuple[int, ...]]:
    return {r.value.name: r.segments for r in segmented.rematerialised}


def actions(segmented: SegmentedFusion, action: str) -> list[tuple[str, ...]]:
    return [d.subject for d in segmented.decisions if d.action == action]


@pytest.mark.parametrize("keeps", [False, True])
def test_values_move_only_where_schedulers_stay_if_that_is_asked_for(keeps: bool) -> None:
    def too_many(segment: Fusion) -> str | None:
        return "more than two operations" if len(segment.nodes) > 2 else None

    small = FakeScheduler("small", too_many, efficiency=0.9)
    large = FakeScheduler("large", lambda segment: None, efficiency=0.89)
    found = split(TWO_GROUPS, small, large, keep_schedulers=keeps)
    assert [s.scheduler for s in found.segments] == ["large", "small" if keeps else "large"]
    assert again(found) == ({} if keeps else {"t": (1,)})
    undone = [d.because for d in found.decisions if d.action == "undo"]
    assert undone == (["the scheduler would change from small to large"] if keeps else [])


def test_the_seed_computes_its_three_crossing_values_again() -> None:
    fusion = lowering.optimise(driver.load(str(SEED)), CompileOptions())
    segmented = lowering.segment(fusion, CompileOptions())
    assert [s.scheduler for s in segmented.segments] == ["reduction", "inner_outer_persistent"]
    # Those are T12, T14 and T15 of the dump that was discussed.
    assert again(segmented) == {"T18": (1,), "T23": (1,), "T24": (1,)}
    assert not segmented.edges
    parts = sum(s.estimate.workspace_bytes for s in segmented.segments if s.estimate)
    assert segmented.bytes - parts <= 0.59e9  # but for what blocks leave each other


def test_the_seed_without_pins_is_one_segment_at_the_floor() -> None:
    text = SEED.read_text().partition("\nsegments:")[0]
    fusion = lowering.optimise(read_text(text), CompileOptions())
    segmented = lowering.segment(fusion, CompileOptions())
    assert len(segmented.segments) == 1
    assert segmented.bytes <= 1.05 * 352e6


def small_seed() -> Fusion:
    text = SEED.read_text()
    for old, new in (
        ("56, 1024, 1024", "3, 40, 64"),
        ("56, 1024, 1]", "3, 40, 1]"),
        ("56, 1024]", "3, 40]"),
        ("56, 1, 1024", "3, 1, 64"),
    ):
        text = text.replace(old, new)
    return read_text(text)


def test_segments_that_compute_again_have_the_right_numbers(tmp_path: Path) -> None:
    fusion = small_seed()
    program = driver.plan(fusion, CompileOptions())
    assert set(again(program.segmented)) == {"T18", "T23", "T24"}
    sizes = choose_sizes(fusion)
    assert can_run(program, sizes)
    inputs = random_inputs(fusion, sizes)
    device: Any = emulated(program, tmp_path)
    cubins = dict.fromkeys(device.kernels, b"")
    with Executable(device, program.host, cubins).bind(inputs, sizes) as bound:
        bound.reset()
        bound.run()
        verdict = compare(fusion, sizes, inputs, bound.outputs())
    assert verdict.ok, verdict.text()


# -- when it pays


def test_a_value_of_inputs_that_are_read_anyway_is_not_stored() -> None:
    segmented = split(TWO_GROUPS)
    assert again(segmented) == {"t": (1,)}
    (spared,) = segmented.rematerialised
    whole = 4096 * 8192 * 4
    # Storing t writes and reads it; computing it again reads x, which `columns` did not read.
    assert spared.saved_bytes == 2 * whole - whole
    assert actions(segmented, "rematerialise") == [("t",)]
    stored = split(TWO_GROUPS, rematerialise=False)
    assert stored.bytes - segmented.bytes == spared.saved_bytes
    assert [e.value.name for e in stored.edges] == ["t"]


def test_a_value_that_needs_more_reading_than_it_saves_is_stored() -> None:
    wide = TWO_GROUPS.replace("mul(sin(x), z)", "mul(mul(sin(x), y), w)")
    wide = wide.replace('x: "f32[B, H]"', 'x: "f32[B, H]", y: "f32[B, H]", w: "f32[B, H]"')
    segmented = split(wide)
    assert not segmented.rematerialised
    assert [e.value.name for e in segmented.edges] == ["t"]


def test_an_output_is_stored_anyway() -> None:
    segmented = split(TWO_GROUPS.replace("outputs: [r, c]", "outputs: [t, r, c]"))
    # Reading t and reading x cost the same.
    assert not segmented.rematerialised
    assert [e.value.name for e in segmented.edges] == ["t"]


def test_two_readers_spare_the_writing_together() -> None:
    text = """
        fusion: three
        dims: {B: 4096, H: 8192}
        inputs: {x: "f32[B, H]", z: "f32[B, H]", w: "f32[B, H]"}
        ops:
          - t = mul(sin(x), z)
          - r = sum(t, dims=[1])
          - c = sum(mul(t, w), dims=[0])
          - d = sum(mul(t, exp(w)), dims=[0, 1])
        outputs: [r, c, d]
        segments:
          rows: [t, r]
          columns: [c]
          all: [d]
    """
    # Either reader alone would read two inputs instead of t; together they spare its writing too,
    # which pays only if the reading of one of the inputs is spared.
    assert not split(text).rematerialised
    cheap = text.replace('z: "f32[B, H]"', 'z: "f32[H]"')
    assert again(split(cheap)) == {"t": (1, 2)}


def test_reductions_are_never_computed_again() -> None:
    text = TWO_GROUPS.replace("mul(sin(x), z)", "mul(max(x, dims=[1], keepdim=true), z)")
    segmented = split(text)
    for part in segmented.segments[1:]:
        assert not any(n.op.name == "max" for n in part.nodes)
    crossing = [str(e.value.type) for e in segmented.edges]
    assert again(segmented) == {"t": (1,)}
    assert crossing == ["f32[B, 1]"], "the maximum crosses, the product does not"


def test_a_forced_boundary_stays() -> None:
    text = TWO_GROUPS.replace("t = mul(sin(x), z)", "t = segment_set(mul(sin(x), z))")
    segmented = split(text.partition("segments:")[0])
    assert not segmented.rematerialised
    assert {e.value.name for e in segmented.edges} == {"t"}


def test_an_input_that_is_overwritten_is_read_no_more_often() -> None:
    text = """
        fusion: running
        dims: {B: 4096, H: 8192}
        inputs: {x: "f32[B, H]", z: "f32[B, H]"}
        ops:
          - t = mul(sin(x), z)
          - r = sum(t, dims=[1])
          - c = sum(mul(t, z), dims=[0])
          - more = add(x, 1.0)
        outputs: [r, c, {more: {alias: x}}]
        segments:
          rows: [t, r]
          columns: [c]
    """
    segmented = split(text)
    assert not segmented.rematerialised


# -- who undoes it


def test_a_scheduler_that_refuses_undoes_it() -> None:
    def no_sine_beside_columns(part: Fusion) -> str | None:
        names = {n.op.name for n in part.nodes}
        columns = any(o.value.name == "c" for o in part.outputs)
        return "no sine here" if columns and "sin" in names else None

    segmented = split(TWO_GROUPS, FakeScheduler("picky", no_sine_beside_columns))
    assert not segmented.rematerialised
    assert [e.value.name for e in segmented.edges] == ["t"]
    undone = [d for d in segmented.decisions if d.action == "undo"]
    assert [d.subject for d in undone] == [("t",)]
    assert undone[0].because == "picky: no sine here"


def test_a_dearer_scheduler_undoes_it() -> None:
    fast = FakeScheduler("fast", lambda f: "many" if len(f.nodes) > 3 else None, efficiency=0.9)
    slow = FakeScheduler("slow", lambda f: None, efficiency=0.05)
    segmented = split(TWO_GROUPS, fast, slow)
    assert not segmented.rematerialised
    (undone,) = [d for d in segmented.decisions if d.action == "undo"]
    assert undone.because.startswith("saves bytes, but takes ")


def test_a_pin_keeps_something_to_do() -> None:
    text = TWO_GROUPS.replace("  rows: [t, r]\n", "  first: [t]\n  rows: [r]\n")
    segmented = split(text)
    assert [s.pin for s in segmented.segments] == ["first", "rows", "columns"]


def test_a_segment_that_nobody_needs_any_more_is_gone() -> None:
    text = """
        fusion: gone
        dims: {B: 4096, H: 8192}
        inputs: {x: "f32[B, H]", z: "f32[H]"}
        ops:
          - t = mul(sin(x), z)
          - r = sum(t, dims=[1])
          - c = sum(exp(t), dims=[0])
        outputs: [r, c]
    """
    injective = FakeScheduler("injective", only_injective)

    def one_reduction_of_an_input(part: Fusion) -> str | None:
        return one_signature(part)

    segmented = split(text, injective, FakeScheduler("reduction", one_reduction_of_an_input))
    assert len(segmented.segments) == 2
    assert not segmented.edges


@settings(
    drawn(25),
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
)
@given(fusions(aliases=True, max_steps=16), st.integers(1, 4), st.integers(0, 1000))
def test_it_changes_no_number_saves_bytes_and_follows_from_structure(
    fusion: Fusion, limit: int, seed: int
) -> None:
    stored = segment(fusion, up_to(limit), H200, rematerialise=False)
    segmented = segment(fusion, up_to(limit), H200)
    check_structure(segmented)
    assert segmented.bytes <= stored.bytes
    if segmented.rematerialised:
        assert segmented.bytes < stored.bytes
    arrays = random_arrays(fusion)
    expected = evaluate(fusion, arrays, fusion.hints)
    found = run_segments(segmented, arrays, segmented.fusion.hints)
    for before, after in zip(fusion.outputs, segmented.fusion.outputs, strict=True):
        np.testing.assert_array_equal(found[after.value.name], expected[before.value.name])
    other = segment(shuffled(fusion, seed), up_to(limit), H200)
    assert summary(other) == summary(segmented)
    assert again(other) == again(segmented)


@pytest.mark.gpu
def test_the_small_seed_on_the_gpu() -> None:
    from gpu_check import check_on_gpu

    check_on_gpu(small_seed())
