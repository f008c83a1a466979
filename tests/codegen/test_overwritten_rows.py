"""Threads past the end repeat the last row or column, but read nothing that is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import TESTS
from segments_on_cpu import wrong

from fusec.kernel.lowering.nest import Nest

REGRESSIONS = TESTS / "regressions"
FILES = {
    "one row": (REGRESSIONS / "one_row_overwritten.yaml").read_text(),
    "rows": """
fusion: rows
inputs: {x: "f32[33, 16]"}
ops:
  - m = max(x, [1], keepdim=true)
  - y = sub(x, m)
outputs:
  - y: {alias: x}
""",
    "columns": """
fusion: columns
inputs: {x: "f32[300, 5]", r: "f32[300, 5]"}
ops:
  - w = maximum(x, r)
  - s = sum(mul(w, w), [0], keepdim=true)
  - z = mul(w, rsqrt(add(s, 0.001)))
  - y = mul(w, 0.5)
outputs:
  - y: {alias: r}
  - z
""",
}


@pytest.mark.parametrize("name", FILES)
def test_what_others_overwrite_is_not_read(name: str, tmp_path: Path) -> None:
    assert wrong(FILES[name], tmp_path) == ""


@pytest.mark.parametrize("name", ["one row"])
def test_a_load_without_the_test_is_a_race(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nest, "load_test", lambda *_: None)
    assert "without a barrier or a release" in wrong(FILES[name], tmp_path)
