"""The model against the clock: alternative segmentations of a graph, predicted and measured."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import Any

from benchmarks.examples import EXAMPLES, WORKLOADS
from benchmarks.first_fit import first_fit
from fusec import driver, lowering
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.run.device import Device
from fusec.schedule.registry import schedulers
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from fusec.target import Target

MORE: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("cross_entropy", {}),
    ("attention_softmax", {}),
    ("log_softmax", {"B": 16384, "H": 8192}),
)
ALTERNATIVES = 4
"""Segmentations of one graph: the search's own and others."""
TRIES = 24
LEAST_SECONDS = 20e-6
"""Below it launches and the clock decide, not the segmentation."""
CLOSE = 0.02
"""Measured times that differ by less are the same."""


@dataclass(frozen=True)
class Alternative:
    """A segmentation with how it came about, and what it takes."""

    how: str
    segmented: SegmentedFusion
    predicted: float
    measured: float
    parts: tuple[tuple[str, float, float], ...]
    """Of each segment: the scheduler, the predicted and the measured seconds."""


def run(repeats: int) -> dict[str, Any]:
    """Return every pair of alternatives, with the mis-ranked ones, and the error by segment."""
    pairs: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    skipped: list[str] = []
    with Device() as device:
        gpu = device.facts.target
        assert gpu is not None, "no target describes this GPU"
        options = CompileOptions(targets=(gpu.arch,))
        for name, sizes in (*WORKLOADS, *MORE):
            try:
                fusion = lowering.optimise(
                    driver.load(str(EXAMPLES / f"{name}.yaml"), sizes), options
                )
                fusion = replace(fusion, pins=())
                found: list[Alternative] = []
                for how, segmented in alternatives(fusion, gpu):
                    found.append(_timed(device, how, segmented, options, gpu, repeats))
            except FusecError as error:
                skipped.append(f"{name}: {error.diagnostic.message}")
                continue
            label = ", ".join([name, *(f"{k}={v}" for k, v in sizes.items())])
            for one in found:
                segments += [{"graph": label, "how": one.how, **_part(*part)} for part in one.parts]
            pairs += [_pair(label, *both) for both in combinations(found, 2)]
            print(f"{label}: {len(found)} alternatives", flush=True)
        record = {"device": device.facts.text(), **_summary(pairs, segments)}
    return {**record, "skipped": skipped, "pairs": pairs, "segments": segments}


def alternatives(fusion: Fusion, gpu: Target) -> Iterator[tuple[str, SegmentedFusion]]:
    """Yield different segmentations: the search's, first fit's, and with merges forbidden."""
    seen: set[object] = set()

    def new(found: SegmentedFusion) -> bool:
        key = frozenset(
            (
                frozenset(n.output.name for n in s.nodes),
                tuple(o.value.name for o in s.fusion.outputs),
            )
            for s in found.segments
        )
        known = key in seen
        seen.add(key)
        return not known

    first = segment(fusion, schedulers(), gpu)
    new(first)
    yield "search", first
    stored = segment(fusion, schedulers(), gpu, rematerialise=False)
    if new(stored):
        yield "nothing rematerialised", stored
    simple = first_fit(fusion, schedulers(), gpu)
    if new(simple):
        yield "first fit", simple
    rng, tries = random.Random(fusion.name), 0
    edges = [
        (v.name, u.output.name)
        for n in fusion.nodes
        for v in n.outputs
        for u in fusion.users.get(v, ())
        if not v.is_scalar and n.op.family != "scalar"
    ]
    rng.shuffle(edges)
    while len(seen) < ALTERNATIVES and edges and tries < TRIES:
        tries += 1
        apart = edges.pop()
        try:
            found = segment(fusion, schedulers(), gpu, may_merge=_parting(apart))
        except FusecError:
            continue
        if new(found):
            yield f"`{apart[0]}` and `{apart[1]}` apart", found


def _parting(names: tuple[str, str]) -> Any:
    """Return a predicate that forbids a segment with both values."""

    def may_merge(*parts: Fusion) -> bool:
        made = {v.name for part in parts for n in part.nodes for v in n.outputs}
        return not made.issuperset(names)

    return may_merge


def _timed(
    device: Device,
    how: str,
    segmented: SegmentedFusion,
    options: CompileOptions,
    gpu: Target,
    repeats: int,
) -> Alternative:
    fusion = segmented.fusion
    package = driver.build(driver.Compilation(fusion, options, fusion=fusion, segmented=segmented))
    timing = driver.measure(device, package, gpu.arch, repeats)
    # An event between two kernels takes time of its own, which their sum has and the whole has not.
    between = sum(k.seconds for k in timing.kernels) - timing.seconds
    spent = max(0.0, between) / max(1, len(timing.kernels) - 1)
    first = timing.kernels[0] if timing.kernels else None
    parts: list[tuple[str, float, float]] = []
    times = segmented.times(gpu)
    for each, predicted in zip(segmented.segments, times, strict=True):
        own = [
            k.seconds - (0.0 if k is first else spent)
            for k in timing.kernels
            if k.segment in (each.name, each.fusion.name)
        ]
        if each.estimate is not None and own:
            parts.append((each.scheduler, predicted, sum(own)))
    return Alternative(how, segmented, sum(times), timing.seconds, tuple(parts))


def _part(scheduler: str, predicted: float, measured: float) -> dict[str, Any]:
    return {
        "scheduler": scheduler,
        "predicted_us": round(predicted * 1e6, 2),
        "measured_us": round(measured * 1e6, 2),
        "error": round(predicted / measured - 1, 4),
    }


def _pair(graph: str, one: Alternative, other: Alternative) -> dict[str, Any]:
    apart = abs(one.measured - other.measured) / max(one.measured, other.measured)
    same = (one.predicted <= other.predicted) == (one.measured <= other.measured)
    row: dict[str, Any] = {
        "graph": graph,
        "how": [one.how, other.how],
        "segments": [[p[0] for p in a.parts] for a in (one, other)],
        "predicted_us": [round(a.predicted * 1e6, 2) for a in (one, other)],
        "measured_us": [round(a.measured * 1e6, 2) for a in (one, other)],
        "apart": round(apart, 4),
        "right": same or apart < CLOSE,
    }
    if not row["right"]:
        row["cause"] = _cause((one, other))
    return row


def _cause(both: Sequence[Alternative]) -> str:
    """Return which segment's price was furthest from what it took, of the two alternatives."""
    parts = [(m - p, name, p, m) for a in both for name, p, m in a.parts]
    if not parts:
        return "no segment was timed"
    off, name, predicted, measured = max(parts, key=lambda part: abs(part[0]))
    word = "slower" if off > 0 else "faster"
    text = f"a {name} segment is {word} than priced: {predicted * 1e6:.1f} us predicted"
    return f"{text}, {measured * 1e6:.1f} us measured"


def _summary(pairs: Sequence[dict[str, Any]], segments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    kinds = sorted({s["scheduler"] for s in segments})
    large = [s for s in segments if s["measured_us"] >= LEAST_SECONDS * 1e6]
    return {
        "pairs_measured": len(pairs),
        "pairs_right": sum(p["right"] for p in pairs),
        "share_right": round(sum(p["right"] for p in pairs) / max(1, len(pairs)), 4),
        "median_error": _median(segments),
        "median_error_from_20_us": _median(large),
        "median_error_by_scheduler": {
            k: _median([s for s in segments if s["scheduler"] == k]) for k in kinds
        },
        "mis_ranked": [p for p in pairs if not p["right"]],
    }


def _median(segments: Sequence[dict[str, Any]]) -> float | None:
    return round(median(abs(s["error"]) for s in segments), 4) if segments else None
