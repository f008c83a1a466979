"""Recorded times of loops around ranks, and what is predicted of them.

`python -m benchmarks.fit --only 'links.*,contention' --records loops,sums --sweeps 10` fits what
`[links.receive_slice]`, `[links.send_slice]` and `[links.all_gather]` of `sm_90a.toml` have, and
`contention`, to them. Nothing is timed.

`loop_times.json`: microseconds on two H200 (torch 2.11, CUDA 13), by replay where rows are gathered
and by call where sums are scattered, in a run of `benchmarks.two_gpus` before kernels of loops that
send had a stream of their own; the shape that calls from Python bound then is left out. The others
of `benchmarks/results`: by call and by replay, of loops that the C launch helper issued.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.segmentation import ROOT
from benchmarks.two_gpus import LOOPED, Matmul
from fusec.driver import Compilation
from fusec.hostir.overlap import ProgramTime
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.segmented import SegmentedFusion

RECORDS = (("two-gpus", 2), ("four-gpus", 4))
OPTIONS = CompileOptions(without=LOOPED)


@dataclass(frozen=True, eq=False)
class Times:
    """Recorded microseconds of one shape, by slices; 0: of the sequence. way: call or replay."""

    record: str
    way: str
    ranks: int
    name: str
    by_slices: dict[int, float]

    def __str__(self) -> str:
        return f"{self.record} {self.way} {self.name}"


def shape_of(name: str) -> Matmul:
    """Return the matmul that is recorded under a name."""
    kind, rows, depth, columns = re.split("[ x]", name)
    return Matmul(kind, int(rows), int(depth), int(columns))


def recorded() -> Iterator[Times]:
    """Yield all recorded times."""
    old = json.loads((ROOT / "tests" / "loop_times.json").read_text())
    for name, times in old.items():
        way = "replay" if name.startswith("gather") else "call"
        yield Times("loop_times", way, 2, name, _by_slices(times))
    for record, ranks in RECORDS:
        parts = json.loads((ROOT / "benchmarks" / "results" / f"{record}.json").read_text())
        shapes: list[tuple[str, Any]] = [
            (name, found)
            for part in ("known", "sampled")
            for name, found in parts.get(part, {}).items()
            if re.match(r"(gather|scatter) \d", name)
        ]
        for name, found in shapes:
            for way in ("call", "replay"):
                yield Times(record, way, ranks, name, _by_slices(found[way]))


def _by_slices(times: Mapping[str, float]) -> dict[int, float]:
    """Return times by slices, of loops and the sequence alone."""
    loops = {int(n.split()[0]): t for n, t in times.items() if n.endswith("slices")}
    return {0: times["sequence"], **loops}


def segmented(name: str, ranks: int, slices: int) -> SegmentedFusion:
    """Return the segments of a loop of so many slices, or of the sequence."""
    return Compilation(read_text(shape_of(name).text(ranks, slices)), OPTIONS).segmented


def microseconds(found: ProgramTime, way: str) -> float:
    """Return what is predicted of a call or of a replay."""
    return 1e6 * (found.call if way == "call" else found.seconds)
