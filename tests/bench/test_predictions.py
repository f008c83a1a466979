"""Fusions that no suite contains are chosen by what they are predicted to spend their time in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import ROOT

from benchmarks import predictions

GRAPHS = ROOT.parent / "shared" / "corpus" / "graphs"
EXAMPLE = ROOT / "examples" / "softmax.yaml"


def test_a_scheduler_is_spoken_for_by_what_takes_most_of_the_time() -> None:
    found = {"pointwise": 3.0, "scan": 6.0}
    assert predictions._speaks(found, "scan")
    assert not predictions._speaks(found, "pointwise")
    assert not predictions._speaks(found, "sort")
    assert not predictions._speaks({}, "scan")


def test_files_are_taken_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert predictions.main([str(EXAMPLE), "--list", "--target", "sm_90a", "--jobs", "1"]) == 0
    assert capsys.readouterr().out == f"{EXAMPLE}\n"


@pytest.mark.skipif(not GRAPHS.is_dir(), reason="no recorded graphs in ../shared")
def test_graphs_are_predicted_by_scheduler(tmp_path: Path) -> None:
    (path,) = GRAPHS.glob("test_python_frontend_test_cummax.json")
    assert set(predictions.predicted(path, "sm_90a")) == {"scan"}
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({"inputs": []}), encoding="utf-8")
    assert predictions.predicted(broken, "sm_90a") == {}
