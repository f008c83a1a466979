"""Targets as data, and what prices make of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fusec.diagnostics import FusecError
from fusec.segment.protocol import Estimate
from fusec.target import TARGETS, find
from fusec.target.table import FOLDER, load


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the folder that FUSEC_TARGETS names."""
    monkeypatch.setenv("FUSEC_TARGETS", str(tmp_path))
    load.cache_clear()
    yield tmp_path
    load.cache_clear()


def test_every_file_is_a_target() -> None:
    assert sorted(p.stem for p in FOLDER.glob("*.toml")) == sorted(TARGETS)
    for arch in TARGETS:
        assert find(arch).arch == arch
        assert all(0 < rate <= 1 for known in find(arch).rates.values() for rate in known.values())


def test_own_files_come_first_and_may_leave_rates_out(own: Path) -> None:
    text = (FOLDER / "sm_80.toml").read_text().replace("bandwidth = 1.8e12", "bandwidth = 1.7e12")
    (own / "sm_80.toml").write_text(text + "[reach.scan]\nvector = 0.25\n")
    assert find("sm_80").bandwidth == 1.7e12
    assert find("sm_80").reach("scan", "vector") == 0.25
    assert find("sm_80").reach("scan", "scalar") == find("sm_90a").reach("scan", "scalar")
    assert find("sm_89").bandwidth == 0.78e12


def test_an_absent_folder_is_told(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured there would else be left out without a word."""
    monkeypatch.setenv("FUSEC_TARGETS", str(own / "nowhere"))
    with pytest.raises(FusecError, match=r"FUSEC_TARGETS: `.*nowhere` is not a directory"):
        find("sm_90a")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sms = 108", "sms = 0", "`sms` must be a positive int"),
        ("sms = 108", "sms = 108.5", "`sms` must be a positive int"),
        ("sms = 108", "", "missing field `sms`"),
        ("sms = 108", "sms = 108\nsmss = 3", "unknown field `smss`"),
        ("bandwidth = 1.8e12", "bandwidth = nan", "`bandwidth` must be a positive float"),
        ("sms = 108", "sms = ", "Invalid value"),
        ("launch = 2.5e-6", "launch = 1e-6\n[reach]\nscan = 3", "`reach` must contain tables"),
        ("launch = 2.5e-6", "launch = 1e-6\n[reach.scan]\nvector = '1'", "`reach.scan.vector`"),
    ],
)
def test_a_wrong_file_is_named_with_its_field(own: Path, old: str, new: str, message: str) -> None:
    text = (FOLDER / "sm_80.toml").read_text()
    assert old in text
    (own / "sm_80.toml").write_text(text.replace(old, new))
    with pytest.raises(FusecError) as raised:
        find("sm_80")
    assert message in str(raised.value)
    assert str(own / "sm_80.toml") in str(raised.value)


def test_the_slowest_resource_is_the_price() -> None:
    target = find("sm_90a")
    plain = Estimate(bytes=1 << 30, ctas=10_000, efficiency=1.0)
    assert plain.bound_by(target) == "memory"
    assert plain.seconds(target) == pytest.approx((1 << 30) / target.bandwidth + target.launch)
    cases = {
        "L2": replace(plain, l2_bytes=1 << 34),
        "arithmetic": replace(plain, flops=1e12),
        "special functions": replace(plain, sfu=1e12),
        "tensor cores": replace(plain, tensor_flops=1e15),
        "launch": replace(plain, bytes=1 << 10),
    }
    for name, estimate in cases.items():
        assert estimate.bound_by(target) == name


@pytest.mark.parametrize("blocks", [1, 8, 66, 100, 132, 10_000])
def test_few_blocks_draw_more_than_their_share_of_the_bandwidth(blocks: int) -> None:
    target = find("sm_90a")
    full = Estimate(bytes=1 << 30, ctas=10_000).parts(target)
    found = Estimate(bytes=1 << 30, ctas=blocks).parts(target)
    drawn = min(1.0, target.draw * blocks / target.sms)
    assert found["memory"] == pytest.approx(full["memory"] / drawn)
    assert found["L2"] == pytest.approx(full["L2"] / drawn)
    busy = [replace(Estimate(bytes=1), flops=1e9, ctas=c).parts(target) for c in (blocks, 10_000)]
    filled = min(1.0, blocks / target.sms)
    assert busy[0]["arithmetic"] == pytest.approx(busy[1]["arithmetic"] / filled)


def test_what_waits_in_l2_is_paid_by_whoever_needs_its_place() -> None:
    target = find("sm_90a")
    reads = Estimate(bytes=1 << 28, written=0, ctas=10_000)
    copies = Estimate(bytes=1 << 28, written=1 << 27, ctas=10_000)
    waiting = target.write_back
    late = reads.seconds(target, waiting) - reads.seconds(target, 0)
    assert late == pytest.approx(waiting / (target.bandwidth * reads.efficiency), rel=0.01)
    assert copies.seconds(target, waiting) == pytest.approx(copies.seconds(target), rel=1e-6)
    assert reads.seconds(target) < copies.seconds(target), "writing is dearer than reading"


def test_resources_used_together_hinder_each_other() -> None:
    target = find("sm_90a")
    memory = Estimate(bytes=1 << 30, ctas=10_000)
    both = replace(memory, flops=memory.parts(target)["memory"] * target.flops / 2 * target.issue)
    assert 1.1 < both.seconds(target) / memory.seconds(target) < 1.3


COST = (FOLDER / "sm_90a.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tile_seconds = 3.2e-6", "", "missing field `cost.matmul.tile_seconds`"),
        ("tile_seconds = 3.2e-6", "tile = 1\ntile_seconds = 1", "unknown field `cost.matmul.tile`"),
        ("tile_seconds = 3.2e-6", "tile_seconds = '1'", "`cost.matmul.tile_seconds` must be a pos"),
        ("tile_seconds = 3.2e-6", "tile_seconds = nan", "`cost.matmul.tile_seconds` must be a pos"),
        ("overlap_exponent = 4", "overlap_exponent = 4.5", "`cost.matmul_gemv.overlap_exponent`"),
        ("[[0, 0.0], [16, 0.14],", "[[16, 0.14], [0, 0.0],", "`cost.matmul.tensor_reach`"),
        ("[1.15, 1.3]", "1.15", "`cost.matmul_wgmma.shared_a_penalty` must be a list"),
        ("{ 16 = 2.08,", "{ a = 2.08,", "`cost.matmul_wgmma.line_penalty` must be a table"),
        ("[cost.matmul_gemv]", "[cost.gemv]", "missing field `cost.matmul_gemv`"),
        ("launch = 3.4e-6", "launch = 3.4e-6\ncost_of = 'sm_90a'", "exclude each other"),
    ],
)
def test_a_wrong_coefficient_is_named_with_its_file(
    own: Path, old: str, new: str, message: str
) -> None:
    assert old in COST
    (own / "sm_90a.toml").write_text(COST.replace(old, new))
    with pytest.raises(FusecError) as raised:
        find("sm_90a")
    assert message in str(raised.value)
    assert str(own / "sm_90a.toml") in str(raised.value)


def test_coefficients_are_those_of_the_target_that_a_file_names(own: Path) -> None:
    fitted = find("sm_90a")
    assert fitted.cost_of == "sm_90a"
    for arch in TARGETS:
        assert (find(arch).cost, find(arch).cost_of) == (fitted.cost, "sm_90a")
    text = (FOLDER / "sm_80.toml").read_text()
    (line,) = (each for each in text.splitlines() if each.startswith("cost_of"))
    for other in ("cost_of = 'sm_89'", "cost_of = 'sm_1'", "cost_of = 3"):
        (own / "sm_80.toml").write_text(text.replace(line, other))
        load.cache_clear()
        with pytest.raises(FusecError, match=r"sm_80.toml`: `cost_of` must be one of sm_90a,"):
            find("sm_80")


def test_own_files_may_have_coefficients_of_their_own(own: Path) -> None:
    (own / "sm_90a.toml").write_text(COST.replace("tile_seconds = 3.2e-6", "tile_seconds = 1e-6"))
    text = (FOLDER / "sm_80.toml").read_text().replace("cost_of", "# cost_of")
    (own / "sm_80.toml").write_text(text)
    assert find("sm_90a").cost.matmul.tile_seconds == 1e-6
    assert (find("sm_80").cost_of, find("sm_80").cost.matmul.tile_seconds) == ("sm_90a", 3.2e-6)
