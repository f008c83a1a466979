"""The record of the last GPU run is whole and lists no failure."""

from __future__ import annotations

import json
import re

from paths import TESTS

RECORD = TESTS / "gpu_record.json"


def test_the_record_is_well_formed() -> None:
    if not RECORD.exists():
        return  # no GPU run has been recorded in this tree
    record = json.loads(RECORD.read_text())
    assert set(record) == {"device", "driver", "trees", "passed", "failed", "skipped"}
    assert record["device"] != "none"
    assert record["failed"] == []
    assert set(record["trees"]) == {"fusec", "tests", "examples"}
    assert all(re.fullmatch(r"[0-9a-f]{40}", tree) for tree in record["trees"].values())
    for outcome in ("passed", "skipped"):
        assert record[outcome] == sorted(set(record[outcome]))
    assert len(record["passed"]) > 500
    files = {node.split("::")[0] for node in record["passed"]}
    assert "tests/gpu/test_gpu_examples.py" in files
