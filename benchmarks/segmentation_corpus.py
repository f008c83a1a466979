"""Segmentations of real fusions against the optimum, the floor, and merging without prices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.corpus_graph import read_graph
from benchmarks.corpus_inputs import prepare
from benchmarks.first_fit import first_fit
from fusec import lowering, target
from fusec.diagnostics import FusecError
from fusec.exact.bound import bound
from fusec.exact.space import Space, bits
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.schedule.registry import schedulers
from fusec.segment.canonical import canonical, sizes_of_inputs
from fusec.segment.offers import Offers, Surroundings
from fusec.segment.segmented import SegmentedFusion


@dataclass(frozen=True)
class Settings:
    """What all rows share: the target, and the seconds that the optimum of a graph may take."""

    target: str
    seconds: float

    @property
    def options(self) -> CompileOptions:
        """Return the options to compile with."""
        return CompileOptions(targets=(self.target,), jobs=1)


def optimised(path: Path, settings: Settings) -> Fusion:
    """Return a recorded graph as it is segmented."""
    return lowering.optimise(prepare(read_graph(path), "graph").fusion, settings.options)


def run(folder: Path, settings: Settings, only: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the rows of all graphs with two or more segments, and what schedulers accept."""
    rows: list[dict[str, Any]] = []
    segments: Counter[str] = Counter()
    nodes: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    probed: Counter[str] = Counter()
    for path in sorted(folder.glob("*.json")):
        if only and only not in path.stem:
            continue
        try:
            fusion = optimised(path, settings)
            began = time.perf_counter()
            found = lowering.segment(fusion, settings.options)
            spent = time.perf_counter() - began
        except FusecError as error:
            outcomes["refused" if error.exit_code == 3 else "wrong"] += 1
            continue
        probed.update(probes(fusion, settings))
        outcomes["whole" if len(found.segments) == 1 else "several"] += 1
        for part in found.segments:
            segments[part.scheduler] += 1
            nodes[part.scheduler] += len(part.nodes)
        if len(found.segments) > 1:
            rows.append(row(path.stem, fusion, found, spent, settings))
            say(line(rows[-1]))
    accepted = {
        name: {"probes": probed[name], "segments": segments[name], "nodes": nodes[name]}
        for name in sorted(probed)
    }
    return {
        "graphs": dict(sorted(outcomes.items())),
        "accepted": accepted,
        "summary": summary(rows),
        "rows": rows,
    }


def probes(fusion: Fusion, settings: Settings) -> Iterable[str]:
    """Yield the name of each scheduler as often as it accepts a part of the fusion.

    The parts do not depend on how the fusion is segmented: all of it, what each node computes from
    its operands, and what each output needs.
    """
    gpu = target.find(settings.target)
    work = canonical(sizes_of_inputs(fusion))
    space = Space(work)
    everything = (1 << len(space.nodes)) - 1
    parts = {(everything, space.outputs)}
    parts |= {(1 << k, space.results[k]) for k in range(len(space.nodes))}
    parts |= {(space.above[v], 1 << v) for v in bits(space.outputs)}
    for nodes, results in sorted(parts):
        if not nodes or not results:
            continue
        part = space.part(nodes, results)
        around = Surroundings(frozenset(), frozenset())
        for scheduler in schedulers():
            if Offers((scheduler,), gpu).ask(part, around).accepted:
                yield scheduler.name


def row(
    name: str, fusion: Fusion, found: SegmentedFusion, spent: float, settings: Settings
) -> dict[str, Any]:
    """Return one graph's figures."""
    gpu = target.find(settings.target)
    began = time.perf_counter()
    known = bound(fusion, schedulers(), gpu, seconds=settings.seconds)
    proof = time.perf_counter() - began
    simple = first_fit(fusion, schedulers(), gpu)
    ours = found.bytes
    return {
        "name": name,
        "nodes": len(fusion.nodes),
        "segments": len(found.segments),
        "schedulers": [s.scheduler for s in found.segments],
        "bytes": ours,
        "us": round(found.seconds(gpu) * 1e6, 3),
        "seconds": round(spent, 3),
        "best_bytes": known.bytes,
        "best_segments": [list(s) for s in known.segments] if known.bytes < ours else None,
        "lower_bytes": known.lower_bytes,
        "proven": known.proven,
        "method": known.method,
        "proof_seconds": round(proof, 2),
        "floor_bytes": known.floor_bytes,
        "first_fit_bytes": simple.bytes,
        "first_fit_segments": len(simple.segments),
        "first_fit_us": round(simple.seconds(gpu) * 1e6, 3),
        "to_optimum": ratio(ours, known.bytes) if known.proven else None,
        "to_lower": ratio(ours, known.lower_bytes),
        "to_floor": ratio(ours, known.floor_bytes),
        "to_first_fit": ratio(ours, simple.bytes),
    }


def ratio(one: int, other: int) -> float | None:
    """Return one over the other; 1 where both are nothing, None where only the other is."""
    return round(one / other, 4) if other else 1.0 if not one else None


def line(found: dict[str, Any]) -> str:
    """Return a row as text."""
    best = f"{found['to_optimum']:.3f}" if found["proven"] else f"<= {found['to_lower']:.3f}"
    return (
        f"{found['name'][:60]:<60} {found['segments']:3} segments, {best} of the optimum"
        f" ({found['method']}, {found['proof_seconds']:.1f} s), floor {found['to_floor']},"
        f" first fit {found['to_first_fit']}"
    )


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the geometric means and the worst ratios."""
    proven = [r for r in rows if r["proven"]]
    worst = max(proven, key=lambda r: r["to_optimum"], default=None)
    return {
        "graphs": len(rows),
        "proven": len(proven),
        "to_optimum": mean(r["to_optimum"] for r in proven),
        "worst_to_optimum": worst and worst["to_optimum"],
        "worst": worst and worst["name"],
        "above_1.03": [r["name"] for r in proven if r["to_optimum"] > 1.03],
        "not_proven": {r["name"]: r["to_lower"] for r in rows if not r["proven"]},
        "to_floor": mean(r["to_floor"] for r in rows),
        "to_first_fit": mean(r["to_first_fit"] for r in rows),
        "worse_than_first_fit": [r["name"] for r in rows if (r["to_first_fit"] or 0) > 1],
    }


def mean(ratios: Iterable[float | None]) -> float | None:
    """Return the geometric mean."""
    known = [r for r in ratios if r]
    return round(exp(sum(log(r) for r in known) / len(known)), 4) if known else None
