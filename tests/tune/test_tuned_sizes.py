"""Measured schedules at sizes other than their own: used where they are predicted to be as fast."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from nightly import mostly_nightly
from paths import ROOT

from fusec import driver
from fusec.options import CompileOptions
from fusec.segment.segmented import Segment
from fusec.target import find
from fusec.tuned.store import shipped_file, store_of

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True)
WORKLOADS = ROOT / "benchmarks" / "workloads"
MEASURED = ("layernorm", "rmsnorm", "softmax", "sum_outer")
"""Workloads of which several sizes were measured."""


def both(name: str, rows: int, columns: int) -> list[tuple[Segment, Segment]]:
    """Return each segment with the schedules that come with fusec, and untuned."""
    fusion = driver.load(str(WORKLOADS / f"{name}.yaml"), {"B": rows, "H": columns})
    tuned, untuned = (
        driver.Compilation(fusion, replace(OPTIONS, untuned=without)).segmented.segments
        for without in (False, True)
    )
    return list(zip(tuned, untuned, strict=True))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the schedules that come with fusec, and none of the user's."""
    monkeypatch.setenv("FUSEC_TUNED", str(tmp_path))


@pytest.mark.usefixtures("shipped")
def test_rows_too_short_for_a_measured_schedule_do_not_take_it() -> None:
    """Measured at 65536 x 1024, where it is faster: 55 us here, the untuned one takes 44 (H200)."""
    ((tuned, untuned),) = both("layernorm", 100003, 384)
    assert tuned == untuned
    ((exact, _),) = both("layernorm", 65536, 1024)
    assert exact.tuned is not None
    assert exact.tuned.exact


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("name", mostly_nightly(MEASURED, 4))
def test_a_schedule_of_other_sizes_is_predicted_to_be_as_fast(name: str) -> None:
    draw, gpu, others = random.Random(name), find("sm_90a"), 0
    near = [e for e in store_of(shipped_file("sm_90a")).entries() if e.of.startswith(f"{name} s0")]
    for number in range(100):
        if number >= 8 and others:
            break  # some entries are rarely predicted to be as fast
        rows, columns = map(int, draw.choice(near).sizes.split()[0].split("x"))
        rows = max(1, int(rows * 2 ** draw.uniform(-2, 2)))
        columns = max(8, int(columns * 2 ** draw.uniform(-2, 2)) // 8 * 8)
        for tuned, untuned in both(name, rows, columns):
            if tuned.tuned is None:
                assert tuned == untuned
                continue
            assert tuned.estimate is not None
            assert untuned.estimate is not None
            assert tuned.estimate.seconds(gpu) <= 1.05 * untuned.estimate.seconds(gpu)
            others += 1
    assert others, "no entry was taken"
