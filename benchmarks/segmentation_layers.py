"""How long recorded models take to segment with 2 layers, and with more.

`python -m benchmarks.segmentation_layers FILE [--layers 12]` takes a recording of a model of two
layers; the graphs of more layers are made of the lines of its two.
"""

from __future__ import annotations

import argparse
import json
import re
from time import process_time
from typing import Any

from benchmarks.entry import end_with
from fusec import lowering, target
from fusec.models.convert import converted
from fusec.models.fusion_text import fusion_text
from fusec.models.recorded import recorded_graphs
from fusec.ops.names import UNUSED
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.floor import Floor

LAYER = re.compile(r"  # .*\.(?:h|layers?|block)\.(\d+)(?:\.|$)")
WORD = re.compile(r"[A-Za-z_]\w*")


def with_layers(text: str, count: int) -> str | None:
    """Return the text of a model of two layers with more of the second one; None without layers."""
    lines = text.splitlines()
    first: dict[str, int] = {}
    for k, line in enumerate(lines):
        found = LAYER.match(line)
        if found:
            first.setdefault(found[1], k)
    if len(first) != 2:
        return None
    start, middle = sorted(first.values())
    size = middle - start
    one, two = lines[start:middle], lines[middle : middle + size]
    pairs: dict[str, str] = {}
    for here, there in zip(one, two, strict=True):
        words = WORD.findall(here), WORD.findall(there)
        if here.startswith("  - ") and len(words[0]) == len(words[1]):
            pairs.update((b, a) for a, b in zip(*words, strict=True) if a != b)
    made = _made(two)
    latest = {b: b for b in pairs}
    body: list[str] = []
    inputs: list[str] = []
    outputs: list[str] = []
    declared = {line.split(":")[0].strip(): line for line in lines if line.startswith("  ")}
    for layer in range(2, count):
        own = {
            b: f"{b}_l{layer}" if b in made or (a in declared and b in declared) else
            latest.get(_next(b, pairs), b)
            for b, a in pairs.items()
        }  # fmt: skip
        inputs += [declared[b].replace(b, own[b], 1) for b in own if b in declared and own[b] != b
                   and pairs[b] in declared]  # fmt: skip
        body += [WORD.sub(lambda m, own=own: own.get(m[0], m[0]), line) for line in two]
        latest = own
    ends = lines[middle + size :]
    at = ends.index("outputs:")
    outputs = [f"  - {b}_l{k}" for k in range(2, count) for b in made if f"  - {b}" in ends[at:]]
    renamed = {b: latest[b] for b in made}
    rest = [WORD.sub(lambda m: renamed.get(m[0], m[0]), line) for line in ends[:at]]
    ops = lines.index("ops:")
    return "\n".join(
        [*lines[:ops], *inputs, *lines[ops : middle + size], *body, *rest, *ends[at:], *outputs, ""]
    )


def _made(lines: list[str]) -> list[str]:
    """Return the names that op lines define."""
    return [
        name
        for line in lines
        if line.startswith("  - ")
        for name in WORD.findall(line.split(" = ", 1)[0])
        if name != UNUSED
    ]


def _next(name: str, pairs: dict[str, str]) -> str:
    """Return the second layer's counterpart of a name of the first one."""
    return next((b for b, a in pairs.items() if a == name), name)


def measured(text: str) -> dict[str, Any]:
    """Return the nodes, the seconds of one core of segmentation, and what the segments take."""
    options = CompileOptions()
    fusion = lowering.optimise(read_text(text), options)
    began = process_time()
    found = lowering.segment(fusion, options)
    return {
        "nodes": len(fusion.nodes),
        "seconds": round(process_time() - began, 3),
        "segments": len(found.segments),
        "us": round(found.seconds(target.find(options.target)) * 1e6, 2),
        "bytes_to_floor": round(found.bytes / Floor(fusion).bytes, 3),
        "repeated": any(d.action == "repeat" for d in found.decisions),
    }


def main() -> int:
    """Measure the graphs of a recording, and those with more layers, and print them as JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks.segmentation_layers", description=__doc__)
    parser.add_argument("file", help="a recording of ATen graphs")
    parser.add_argument("--layers", type=int, default=12)
    given = parser.parse_args()
    for graph in recorded_graphs(given.file):
        text, _ = fusion_text(converted(graph))
        more = with_layers(text, given.layers)
        found = {"2": measured(text)}
        if more is not None:
            found[str(given.layers)] = measured(more)
        print(graph.name, json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    end_with(main)
