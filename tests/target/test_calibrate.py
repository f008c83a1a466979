"""Rates from the times of probes: what a price says, turned round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusec import driver, lowering
from fusec.cli import cli
from fusec.commands.calibrate import BASE, PROBES, SHARES, Probe, as_toml, comparison, rates
from fusec.options import CompileOptions
from fusec.run.device import device_available
from fusec.segment.protocol import Estimate
from fusec.target import find

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True)
NAMES = sorted(p.stem for p in PROBES.glob("*.yaml"))


def test_there_is_a_probe_for_every_rate() -> None:
    known = find("sm_90a").rates
    assert sorted((*BASE, *(f"{f}.{a}" for f, of in known.items() for a in of))) == sorted(
        (*NAMES, "matmul.vector")  # part of half_flops
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_takes_the_path_that_it_is_named_after(name: str) -> None:
    fusion = driver.load(str(PROBES / f"{name}.yaml"))
    segmented = lowering.segment(lowering.optimise(fusion, OPTIONS), OPTIONS)
    (segment,) = segmented.segments
    target = find("sm_90a")
    assert segment.estimate is not None
    if name not in BASE:
        family, access = name.split(".")
        assert segment.scheduler == {"topk": "sort"}.get(family, family)
        if name not in SHARES:
            assert segment.estimate.efficiency == target.reach(family, access)
    bound = {"issue": "arithmetic", "half_flops": "tensor cores", "launch": "launch"}
    if name in bound:
        assert segment.estimate.bound_by(target) == bound[name]


def test_rates_turn_prices_round() -> None:
    known = find("sm_90a")
    true = replace(
        known,
        launch=3e-6,
        bandwidth=2e12,
        issue=0.4,
        rates={f: {a: r / 2 for a, r in of.items()} for f, of in known.rates.items()},
    )
    reach = dict(efficiency=1.0, ctas=10_000)
    probes = {
        "launch": Estimate(bytes=256, **reach),
        "bandwidth": Estimate(bytes=1 << 30, **reach),
        "issue": Estimate(bytes=1 << 20, flops=4e12, **reach),
        "half_flops": Estimate(bytes=1 << 20, tensor_flops=2 * 8192**3 * 1.25, **reach),
    }
    for family, of in true.rates.items():
        for access, rate in of.items():
            if (share := SHARES.get(f"{family}.{access}")) is not None:
                rate = 1 / ((1 - share) / of["vector"] + share / rate)
            probes[f"{family}.{access}"] = Estimate(bytes=1 << 29, efficiency=rate, ctas=10_000)
    slow = replace(true, special=1e20, l2_bandwidth=1e20)
    timed = {n: Probe(n, e.seconds(slow), e) for n, e in probes.items() if n != "launch"}
    timed["launch"] = Probe("launch", true.launch, probes["launch"])
    found = rates(known, timed)
    assert found.launch == true.launch
    assert found.bandwidth == pytest.approx(true.bandwidth, rel=0.01)
    assert found.issue == pytest.approx(true.issue, rel=0.01)
    for family, of in true.rates.items():
        assert found.rates[family] == pytest.approx(of, rel=0.02, abs=1e-3)
    assert len(comparison(known, found)) == len(timed)


def test_a_measured_target_is_a_file_that_reads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusec.target.table import load

    known = replace(find("sm_90a"), bandwidth=1.5e12, issue=0.25)
    (tmp_path / "sm_90a.toml").write_text(as_toml(known, "a test"))
    monkeypatch.setenv("FUSEC_TARGETS", str(tmp_path))
    load.cache_clear()
    try:
        assert find("sm_90a") == known
    finally:
        load.cache_clear()


@pytest.mark.skipif(device_available() is None, reason="there is a GPU")
def test_measuring_needs_a_gpu(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["doctor", "--measure", str(tmp_path / "t")])
    assert result.exception is not None
    assert not (tmp_path / "t").exists()
