"""Expected errors are as large as those of f32 arithmetic, neither much smaller nor much larger.

Few fusions and evaluations, to notice a rule that breaks; `benchmarks.verdicts` has the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import isinf

import numpy as np
import pytest
from draws import times

from fusec.reference.errors.estimate import Estimate
from fusec.run.inputs import choose_sizes
from tools import verdicts
from tools.draw import draw_fusion
from tools.verdicts import Calibration, calibrate

FUSIONS, EVALUATIONS = times(20), 12


@cache
def found() -> tuple[Calibration, ...]:
    return tuple(measured())


def measured() -> list[Calibration]:
    rows = list[Calibration]()
    for number in range(FUSIONS):
        fusion = draw_fusion(3, number)
        rows += calibrate(fusion, choose_sizes(fusion), EVALUATIONS)
    return rows


def ratios(rows: tuple[Calibration, ...] | list[Calibration]) -> np.ndarray:
    return np.array([r.expected / r.spread for r in rows if r.counts])


def test_expected_errors_are_not_too_small() -> None:
    assert len(ratios(found())) > FUSIONS / 2
    assert ratios(found()).min() >= 0.25
    assert np.mean(ratios(found()) >= 0.5) >= 0.97
    assert max(r.ratio for r in found() if not isinf(r.ratio)) < 7


def test_expected_errors_are_not_too_large() -> None:
    wide = ratios([r for r in found() if not r.halves])
    assert np.mean(wide <= 10) >= 0.8
    assert np.mean(wide <= 3) >= 0.5


@pytest.mark.parametrize("factor", [1 / 16, 16.0])
def test_other_errors_would_be_noticed(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    known: Callable[..., dict[str, Estimate]] = verdicts.estimate

    def scaled(*arguments: object) -> dict[str, Estimate]:
        return {name: times(each, factor**2) for name, each in known(*arguments).items()}

    monkeypatch.setattr(verdicts, "estimate", scaled)
    rows = measured()
    if factor < 1:
        assert np.mean(ratios(rows) >= 0.5) < 0.97
    else:
        assert np.mean(ratios([r for r in rows if not r.halves]) <= 3) < 0.5


def times(each: Estimate, factor: float) -> Estimate:
    variances = {"independent": each.independent, "common": each.common}
    return replace(each, **{k: None if v is None else v * factor for k, v in variances.items()})
