"""Mermaid flowcharts: every box is there before an arrow needs it, nothing breaks the syntax."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

from fusec import driver, lowering
from fusec.cli import run_main
from fusec.dumps.mermaid import segmented_fusion_mermaid
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.segmented import SegmentedFusion

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

TEXT = """
fusion: boundary
dims: {B: 64, H: 512}
inputs: {x: "bf16[B, H]", z: "f32[B]"}
ops:
  - t = sum(cast(x, f32), dims=[1])
  - y = add(segment_set(t), z)
outputs: [{y: {alias: z}}]
"""

QUOTED = r'"([^"\n]*)"'
LINES = {
    "end": re.compile(rf"  ([io]\d+)\(\[{QUOTED}\]\)"),
    "segment": re.compile(rf"  (s\d+)\[{QUOTED}\]"),
    "crossing": re.compile(rf"  (s\d+) == {QUOTED} ==> (s\d+)"),
    "alias": re.compile(rf"  (s\d+) -\. {QUOTED} \.-> (o\d+)"),
    "arrow": re.compile(r"  ([is]\d+) --> ([so]\d+)"),
    "style": re.compile(r"  style (s\d+) stroke:#[0-9a-f]{6},stroke-width:3px"),
}


def segmented(text: str) -> SegmentedFusion:
    options = CompileOptions()
    return lowering.segment(lowering.optimise(read_text(text), options), options)


def read(text: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the lines of a flowchart by kind; every line is one of them."""
    first, *lines = text.rstrip("\n").split("\n")
    assert first == "flowchart TB"
    found: dict[str, list[tuple[str, ...]]] = {kind: [] for kind in LINES}
    known: set[str] = set()
    for line in lines:
        ((kind, match),) = ((k, m) for k, p in LINES.items() if (m := p.fullmatch(line)))
        found[kind].append(match.groups())
        if kind in ("end", "segment"):
            assert match.group(1) not in known
            known.add(match.group(1))
        else:
            ends = [g for g in match.groups() if re.fullmatch(r"[ios]\d+", g)]
            assert known >= set(ends), line
    return found


def test_a_flowchart_by_the_letter() -> None:
    assert segmented_fusion_mermaid(segmented(TEXT)).splitlines() == [
        "flowchart TB",
        '  i0(["x bf16[B, H]"])',
        '  i1(["z f32[B]"])',
        '  s0["<b>s0 reduction</b><br/>cast, sum, segment_set"]',
        '  s1["<b>s1 pointwise</b><br/>add"]',
        '  o0(["y f32[B]"])',
        "  i0 --> s0",
        "  i1 --> s1",
        '  s0 == "segment_set_1<br/>256 bytes" ==> s1',
        '  s1 -. "into z" .-> o0',
        "  style s0 stroke:#0072b2,stroke-width:3px",
        "  style s1 stroke:#c44e00,stroke-width:3px",
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_flowcharts_of_the_examples(path: Path) -> None:
    options = CompileOptions()
    found = lowering.segment(lowering.optimise(driver.load(str(path)), options), options)
    lines = read(segmented_fusion_mermaid(found))
    assert [name for name, _ in lines["segment"]] == [s.name for s in found.segments]
    edges = {(f"s{e.producer}", e.value.name, f"s{e.consumer}") for e in found.edges}
    drawn = {(a, label.partition("<br/>")[0], b) for a, label, b in lines["crossing"]}
    assert drawn == edges
    reached = {b for _, b in lines["arrow"]} | {b for *_, b in lines["alias"]}
    assert {name for name, _ in lines["end"] if name[0] == "o"} <= reached


def test_signs_are_entities() -> None:
    from fusec.dumps.mermaid import _escaped

    assert _escaped('a"b<c>&#`') == "a#quot;b#lt;c#gt;#amp;#35;#96;"


def test_the_command_names_each_target(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples" / "cross_entropy.yaml")
    assert run_main(["dump", file, "--style", "mermaid", "--target", "sm_80,sm_90a"]) == 0
    parts = re.split(r"^%% (\w+)\n", capsys.readouterr().out, flags=re.MULTILINE)
    assert parts[1::2] == ["sm_80", "sm_90a"]
    for text in parts[2::2]:
        assert len(read(text)["segment"]) >= 1
