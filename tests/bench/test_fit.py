"""Coefficients of the cost model are fitted to recorded times: by name, with all others held."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache
from itertools import islice
from math import log
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from paths import ROOT

from benchmarks.fit import __main__ as script
from benchmarks.fit import removal
from benchmarks.fit.choices import Choices
from benchmarks.fit.coefficients import Source, chosen, coefficients, with_value
from benchmarks.fit.descent import Fitting
from benchmarks.fit.measured import (
    OPTIONS,
    RECORDS,
    SUITES,
    Measurement,
    is_as_timed,
    of_program,
    rows_in,
)
from benchmarks.fit.removal import decide, neutral, without
from benchmarks.patterns import patterns
from fusec.driver import Compilation, load
from fusec.parse import read_text
from fusec.target import Target, find

H200 = find("sm_90a")
ALL = coefficients(H200)


@cache
def recorded_choices() -> Choices:
    return Choices(H200)


def test_another_value_of_each_number_changes_it_alone() -> None:
    for each in ALL:
        other = each.value + 1 if each.is_count else each.value * 1.5
        changed = {c.name: c.value for c in coefficients(with_value(H200, each.name, other))}
        assert changed == {c.name: c.value for c in ALL} | {each.name: other}


def test_numbers_are_called_as_in_the_file() -> None:
    text = (ROOT / "fusec" / "target" / "sm_90a.toml").read_text(encoding="utf-8")
    whole = tomllib.loads(text)
    for each in ALL:
        found: Any = whole
        for key in each.name.split("."):
            if isinstance(found, list):
                pairs: Any = found if isinstance(found[0], list) else enumerate(found)
                found = {str(at): value for at, value in pairs}
            found = found[key]
        assert found == each.value, each.name


def test_every_number_has_a_source() -> None:
    by_source = {source: [c.name for c in ALL if c.source is source] for source in Source}
    assert "sms" in by_source[Source.LIMIT]
    assert "reach.pointwise.vector" in by_source[Source.PROBE]
    assert all(c.value == 1.0 for c in ALL if c.source is Source.UNIT)
    assert [c.name for c in chosen(H200, ["cost.matmul.tile_*"])] == ["cost.matmul.tile_seconds"]
    assert chosen(H200, ["sms", "bandwidth"]) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_value_is_found_that_the_times_were_made_with(seed: int) -> None:
    rng = Random(seed)
    value = H200.cost.matmul.tile_seconds * 2 ** rng.uniform(-0.9, 0.9)
    made = with_value(H200, "cost.matmul.tile_seconds", value)

    def measured(tiles: int, base: float) -> Measurement:
        def predict(target: Target) -> float:
            return base + tiles * target.cost.matmul.tile_seconds

        return Measurement("made", str(tiles), predict(made), predict)

    times = [measured(rng.randint(1, 20), rng.uniform(0, 5e-5)) for _ in range(9)]
    other = Measurement("made", "other", 1.0, lambda target: target.launch)
    (coefficient,) = chosen(H200, ["cost.matmul.tile_seconds"])
    found = Fitting([*times, other], H200).fit(coefficient)
    assert found.times == len(times)
    assert abs(log(found.fitted / value)) < 0.01
    assert found.fitted_error <= found.error
    assert 0 < found.elasticity <= 1.1


@pytest.mark.parametrize("name", ["flip_bf16", "pick64", "gemm_f32_34x192x48"])
def test_a_plan_is_predicted_again_as_it_was(name: str) -> None:
    program = Compilation(read_text(patterns()[name]), OPTIONS)
    assert of_program(program)(H200) == pytest.approx(program.segmented.seconds(H200))
    slower = replace(H200, launch=2 * H200.launch)
    assert of_program(program)(slower) > of_program(program)(H200)


@pytest.mark.parametrize("suite", [name for _, name in SUITES if name != "memory"])
def test_suites_are_planned_as_they_were_timed(suite: str) -> None:
    """Else a record has no effect on the fit; tests do not take the tuned plans of `memory`."""
    rows = islice(rows_in(s for s in SUITES if s[1] == suite), 3)
    for _, measured, row in rows:
        assert is_as_timed(Compilation(row.fusion, OPTIONS), measured), row.name


@cache
def recorded_sums() -> list[Measurement]:
    return list(RECORDS["sums"]())


@pytest.fixture
def one_table(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the recorded times be those of sums over ranks, which take a second to plan."""
    monkeypatch.setattr(script, "measurements", lambda names: recorded_sums())
    return ["--only", "links.pushed_sum.*,links.pushed_slices.*,links.all_reduce.*"]


def test_the_stored_values_are_not_worse_than_fitted_ones(
    one_table: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([*one_table, "--check", "--out", str(tmp_path / "fit.json")]) == 0
    assert "exceeding the least error by more than 0.02: none" in capsys.readouterr().out
    assert '"name": "links.pushed_sum.reach"' in (tmp_path / "fit.json").read_text()


def test_a_worse_value_fails(
    one_table: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = with_value(H200, "links.pushed_sum.latency", 4e-6)
    monkeypatch.setattr(script, "find", lambda arch: worse)
    assert script.main([*one_table, "--check"]) == 1
    assert "links.pushed_sum.latency" in capsys.readouterr().out.splitlines()[-1]


def test_later_sweeps_hold_what_was_fitted_before() -> None:
    names = ["links.pushed_slices.*"]
    recorded = recorded_sums()
    first, second, *_, last = script.fits(names, recorded, sweeps=3)
    assert second.error <= first.fitted_error + 1e-9
    assert last.fitted_error <= first.error


def test_sources_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--sources"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(ALL)
    assert any(line.startswith("bandwidth") and "doctor --measure" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cost.matmul.tile_seconds", removal.NOTHING),
        ("cost.matmul_wgmma.staged_sum_seconds.2", removal.NOTHING),
        ("cost.matmul.line_penalty_along_k.16", 1),
        ("cost.matmul_wgmma.l2_rate", removal.BOUNDLESS),
        ("links.all_gather.crowding", removal.NOTHING),
    ],
)
def test_without_a_coefficient_it_has_no_effect(name: str, value: float) -> None:
    assert neutral(name) == value


def test_what_a_program_reads_decides_whether_it_is_decided_again() -> None:
    fusion = load(str(ROOT / "examples" / "softmax.yaml"))
    found = decide(fusion, H200, H200)
    assert found.schedules[0][0] == "inner_persistent"
    assert "cost.rows.enough_blocks" in found.read
    assert "cost.rows" not in found.read
    assert not any(name.startswith("cost.attention") for name in found.read)
    again = decide(fusion, without(H200, "cost.attention.tile_seconds"), H200)
    assert (again.schedules, again.seconds) == (found.schedules, found.seconds)


@pytest.mark.parametrize(
    ("name", "least"),
    [("cost.matmul_wgmma.l2_rate", 0.02), ("cost.matmul.serial_hand_off_seconds", 0.005)],
)
def test_choices_among_recorded_schedules_need_some_coefficients(name: str, least: float) -> None:
    choices = recorded_choices()
    assert choices.loss(without(H200, name)) > choices.loss(H200) + least


def test_the_chosen_schedules_are_near_the_fastest() -> None:
    assert recorded_choices().loss(H200) < 0.022


def test_removals_are_judged_by_choices_and_times() -> None:
    target = with_value(H200, "cost.matmul.slice_rate", 1.0)  # which nothing here depends on

    class Flat:
        def loss(self, target: Target) -> float:
            return 0.5 if target.cost.matmul.tile_seconds < 1e-9 else 0.0

    def predict(target: Target) -> float:
        return 1e-6 + target.cost.matmul.tile_seconds

    times = [Measurement("made", "x", predict(target), predict)]
    (tile,) = chosen(target, ["cost.matmul.tile_seconds"])
    found = removal.removed(Fitting(times, target), cast("Choices", Flat()), tile)
    assert (found.times, found.loss, found.error) == (1, 0.5, 0.0)
    assert found.error_without == pytest.approx(log(predict(target) / 1e-6), rel=1e-3)
