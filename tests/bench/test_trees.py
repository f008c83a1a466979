"""Programs of two trees are compared by their kernels, and timed in alternating rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from benchmarks import trees
from fusec.diagnostics import FusecError

ROW = "silu_mul_1x8192"


class Made:
    """A tree whose rounds take some time, in turn."""

    def __init__(self, log: list[str], name: str, seconds: list[float]) -> None:
        """Take what it answers."""
        self.log, self.name, self.seconds = log, name, seconds

    def ask(self, command: str, *arguments: Any) -> Any:
        """Answer like a worker."""
        assert command in ("load", "round", "free")
        self.log.append(f"{self.name} {command}")
        if command == "load":
            return {"launches": 1}
        return self.seconds[len(self.log) % len(self.seconds)] if command == "round" else None


def test_rounds_alternate_and_begin_with_another_tree() -> None:
    log: list[str] = []
    new, old = Made(log, "new", [2e-6]), Made(log, "old", [1e-6])
    found = trees.compared(new, old, ROW, rounds=4)  # type: ignore[arg-type]
    assert found["us"] == {"new": 2.0, "old": 1.0}
    assert found["ratio"] == [2.0, 2.0, 2.0]
    order = [entry.split()[0] for entry in log if entry.endswith("round")]
    assert order == ["new", "old", "old", "new"] * 2 * trees.PLACEMENTS
    for command in ("load", "free"):
        assert log.count(f"new {command}") == log.count(f"old {command}") == trees.PLACEMENTS
    assert log[-2:] == ["new free", "old free"]


def test_a_row_is_slower_where_its_whole_interval_is() -> None:
    rows = {
        "a": {"ratio": [1.03, 1.021, 1.04]}, "b": {"ratio": [1.03, 1.01, 1.05]},
        "c": {"ratio": [0.9, 0.89, 0.91]}, "d": {"same": True}, "e": {"failed": "why"},
    }  # fmt: skip
    found = trees.summary(rows)
    assert (found["slower"], found["quicker"], found["failed"]) == (["a"], ["c"], ["e"])
    assert (found["rows"], found["same"], found["timed"]) == (5, 1, 3)


@pytest.mark.nightly
def test_a_tree_builds_the_same_kernels_as_itself(tmp_path: Path) -> None:
    """Nothing is timed; the workers run in processes, as with a tree of another commit."""
    out = tmp_path / "trees.json"
    given = ["--suite", "small", "--only", ROW, "--build", "--target", "sm_90a", "--jobs", "2"]
    assert trees.main([str(ROOT), *given, "--out", str(out)]) == 0
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["rows"] == {f"small/{ROW}": {"same": True}}


def test_a_worker_that_fails_is_an_error() -> None:
    tree = trees.Tree(ROOT, {"suite": "small", "only": [ROW], "seeds": [], "jobs": 1})
    try:
        with pytest.raises(FusecError, match=r"round in .*AttributeError"):
            tree.ask("round", "nothing is loaded")
    finally:
        tree.close()


def test_a_folder_without_fusec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        trees.main([str(tmp_path), "--suite", "small"])
    assert "is no checkout of fusec" in capsys.readouterr().err
