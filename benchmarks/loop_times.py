"""Recorded times of loops around ranks, and the cost model's constants that are fitted to them.

python -m benchmarks.loop_times [--seconds N]

Fits what `[links.receive_slice]`, `[links.send_slice]` and `[links.all_gather]` of `sm_90a.toml`
have, and `contention`, to all times of RECORDS by coordinate descent from the shipped values, and
prints them, with the predictions that are wrong by more than NEAR. Nothing is timed.

`loop_times.json`: microseconds on two H200 (torch 2.11, CUDA 13), by replay where rows are gathered
and by call where sums are scattered, in a run of `benchmarks.two_gpus` before kernels of loops that
send had a stream of their own; the shape that calls from Python bound then is left out. The others
of `benchmarks/results`: by call and by replay, of loops that the C launch helper issued.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from benchmarks.entry import end_with
from benchmarks.segmentation import ROOT
from benchmarks.two_gpus import LOOPED, Matmul
from fusec.driver import Compilation
from fusec.hostir.overlap import ProgramTime, program_time
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.segmented import SegmentedFusion
from fusec.target import Target, find

RECORDS = (("two-gpus", 2), ("four-gpus", 4))
NEAR = 0.15
FITTED = {
    "receive_slice": ("latency", "serial", "crowding", "reach"),
    "send_slice": ("latency", "serial", "crowding", "reach"),
    "all_gather": ("serial", "crowding"),
}
"""Constants of links; of an all-gather, those that count on three and more ranks."""
STEP, LEAST_STEP = 0.2, 0.01
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


# Fitting.


class Fit:
    """The errors of a target's predictions, and constants that make them small."""

    def __init__(self, times: Sequence[Times]) -> None:
        """Segment each program once: which segments there are does not depend on links."""
        self.times = times
        keys = {(t.name, t.ranks, slices) for t in times for slices in t.by_slices}
        self.programs = {key: segmented(*key) for key in sorted(keys)}

    def errors(self, target: Target) -> dict[tuple[Times, int], float]:
        """Return the logarithms of predicted over recorded times, by times and slices."""
        streams = OPTIONS.streams
        found = {k: program_time(p, target, streams) for k, p in self.programs.items()}
        return {
            (t, slices): math.log(microseconds(found[t.name, t.ranks, slices], t.way) / took)
            for t in self.times
            for slices, took in t.by_slices.items()
        }

    def loss(self, target: Target) -> float:
        """Return the mean square error; the largest errors count more."""
        return mean(e**2 + 5 * e**4 for e in self.errors(target).values())

    def descend(self, target: Target, seconds: float) -> Target:
        """Return a target whose constants no small step makes better, or the best in a time."""
        names = [(kind, name) for kind, fields in FITTED.items() for name in fields]
        steps: dict[tuple[str, str], float] = dict.fromkeys([*names, ("", "contention")], STEP)
        least, begun = self.loss(target), time.monotonic()
        while max(steps.values()) > LEAST_STEP and time.monotonic() - begun < seconds:
            for key, step in steps.items():
                tried = [_scaled(target, *key, 1 + step), _scaled(target, *key, 1 / (1 + step))]
                losses = {self.loss(t): t for t in tried if _is_valid(t)}
                best = min(losses, default=least)
                if best < least:
                    least, target = best, losses[best]
                else:
                    steps[key] /= 2
        return target


def _scaled(target: Target, kind: str, name: str, factor: float) -> Target:
    """Return a target with one constant multiplied, of a link or its own."""
    if not kind:
        return replace(target, **{name: getattr(target, name) * factor})
    link = target.links[kind]
    changed = replace(link, **{name: getattr(link, name) * factor})
    return replace(target, links={**target.links, kind: changed})


def _is_valid(target: Target) -> bool:
    links = target.links.values()
    return all(link.reach <= 1.2 and link.serial <= link.latency for link in links)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, and print the constants and what they predict badly."""
    parser = argparse.ArgumentParser(prog="benchmarks.loop_times", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    given = parser.parse_args(arguments)
    fit, shipped = Fit([*recorded()]), find("sm_90a")
    target = fit.descend(shipped, given.seconds)
    print(f"mean square error: {fit.loss(shipped):.4f}, fitted {fit.loss(target):.4f}")
    for kind, names in FITTED.items():
        values = (f"{name} = {getattr(target.links[kind], name):.3g}" for name in names)
        print(f"links.{kind}: {', '.join(values)}")
    print(f"contention = {target.contention:.3g}")
    for (times, slices), error in fit.errors(target).items():
        if abs(error) > NEAR:
            print(f"{times}, {slices} slices: {math.exp(error) - 1:+.0%}")
    return 0


if __name__ == "__main__":
    end_with(main)
