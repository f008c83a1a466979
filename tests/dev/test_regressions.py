"""Fusions that once failed somewhere, small: each comes through every stage."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from gpu_check import DRY, the_device
from paths import TESTS

from fusec.parse import read_text
from tools.draw import Run
from tools.reducing import read_case
from tools.trial import Depth, Outcome, Trials

FOLDER = TESTS / "regressions"
FILES = sorted(FOLDER.glob("*.yaml"))
REFUSED = "# refused: "
"""The line of a file that is to be refused, with the beginning of the message."""
UNDECIDED = "# undecided: "
"""The line of a file whose random inputs leave something open, with the reason."""

LONG = "# takes long: "
"""The line of a file that is planned nightly, with the reason."""


def outcome_of(path: Path, depth: Depth) -> Outcome:
    case = read_case(path)
    trials = Trials(depth)
    try:
        return trials.perform(Run(read_text(case.text, path.name), case.without))
    finally:
        trials.close()


def told(path: Path, begin: str) -> str | None:
    lines = path.read_text().splitlines()
    return next((x.removeprefix(begin) for x in lines if x.startswith(begin)), None)


def check(path: Path, outcome: Outcome) -> None:
    refusal = told(path, REFUSED)
    if refusal is None:
        right = ("ok", "undecided") if told(path, UNDECIDED) else ("ok",)
        assert outcome.status in right, f"{outcome.signature}\n{outcome.message}"
    else:
        assert outcome.status == "refused", outcome.signature
        assert outcome.kind.startswith(refusal), outcome.kind


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.nightly] if told(p, LONG) else []) for p in FILES],
    ids=lambda p: p.stem,
)
def test_comes_to_its_text(path: Path) -> None:
    check(path, outcome_of(path, Depth(builds=False)))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_comes_through_every_stage(path: Path) -> None:
    compiler = importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    check(path, outcome_of(path, Depth(builds=compiler)))


@pytest.mark.gpu
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_is_right_on_a_gpu(path: Path) -> None:
    if DRY:
        check(path, outcome_of(path, Depth()))
        return
    target = the_device().facts.target
    assert target is not None
    check(path, outcome_of(path, Depth(on_gpu=True, target=target.arch)))


def test_there_are_some() -> None:
    assert len(FILES) >= 5
